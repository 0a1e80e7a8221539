"""Branches and worktrees that cannot be submitted: one sentence each, a command that can be typed, nothing changed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.journeys.crews import BIN, Crew
from tests.journeys.test_submissions import branch, commit


def orphan(crew: Crew) -> Path:
    crew.git("switch", "-q", "--orphan", "island")
    commit(crew, "island.txt", "x\n")
    crew.git("switch", "-q", "main")
    return crew.root


def merged(crew: Crew) -> Path:
    crew.git("branch", "done", "integration")
    return crew.root


def named(name: str) -> Callable[[Crew], Path]:
    def make(crew: Crew) -> Path:
        if name != "integration":
            crew.git("branch", name, "main")
        return crew.root

    return make


def nothing(crew: Crew) -> Path:
    branch(crew, "fix")
    return crew.root


def twin(crew: Crew) -> Path:
    branch(crew, "fix")
    crew.git("branch", "twin", "fix")
    crew.prepare("submit", "fix")
    return crew.root


def returned(crew: Crew) -> Path:
    branch(crew, "fix")
    crew.prepare("submit", "fix")
    crew.prepare("verdict", "reject", "no", "--task", "fix")
    return crew.root


def worktree(crew: Crew) -> Path:
    branch(crew, "fix")
    there = crew.root / ".claude" / "worktrees" / "fix"
    crew.git("worktree", "add", "-q", str(there), "fix")
    return there


def dirty(crew: Crew) -> Path:
    there = worktree(crew)
    (there / "fix.txt").write_text("a longer text\n")
    return there


def staged(crew: Crew) -> Path:
    there = worktree(crew)
    (there / "new.txt").write_text("x\n")
    crew.git("add", "-A", cwd=there)
    return there


def rebasing(crew: Crew) -> Path:
    there = worktree(crew)
    commit(crew, "fix.txt", "another\n")
    subprocess.run(["git", "rebase", "-q", "main"], cwd=there, capture_output=True, check=False)
    return there


def other_repository(crew: Crew) -> Path:
    there = crew.root / "vendor"
    there.mkdir()
    crew.git("init", "-q", "-b", "main", cwd=there)
    commit(crew, "x.txt", "x\n", cwd=there)
    return there


def without_crew(crew: Crew) -> Path:
    there = crew.root.parent / "elsewhere"
    there.mkdir()
    crew.git("init", "-q", "-b", "main", cwd=there)
    commit(crew, "x.txt", "x\n", cwd=there)
    return there


def deleted(crew: Crew) -> Path:
    branch(crew, "fix")
    crew.prepare("submit", "fix")
    crew.git("branch", "-q", "-D", "fix")
    return crew.root


def moved(crew: Crew) -> Path:
    there = worktree(crew)
    return there.rename(there.with_name("elsewhere"))


def undone(crew: Crew) -> Path:
    branch(crew, "fix")
    crew.prepare("submit", "fix")
    crew.prepare("verdict", "approve", "read", "--task", "fix")
    crew.prepare("merge")
    crew.prepare("undo", "fix")
    return crew.root


class Refusal(NamedTuple):
    """``make`` returns the directory in which ``word`` is typed. ``says`` and ``step``: parts of the error."""

    make: Callable[[Crew], Path]
    word: str
    says: str
    step: str
    code: int = 1


REFUSALS = {
    "no merge base": Refusal(orphan, "island", "no commit in common", "git rebase --onto integration --root island"),
    "merged": Refusal(merged, "done", "has nothing that integration lacks", "git log -1"),
    "undone": Refusal(undone, "fix", "was merged as fix and undone", "git switch -c fix-again integration"),
    "no such branch": Refusal(nothing, "fxi", "did you mean fix?", "git branch --all"),
    "a commit": Refusal(nothing, "HEAD~0", "is no branch, no pull request", "git branch --all", 2),
    "a branch of a task": Refusal(
        named("task/x"), "task/x", "a name of Liza's own", "git branch task-x refs/heads/task/x"
    ),
    "a branch like a ref": Refusal(
        named("liza/x"), "liza/x", "a name of Liza's own", "git branch liza-x refs/heads/liza/x"
    ),
    "a ref": Refusal(nothing, "refs/liza/review/x", "there is no branch", "git branch --all"),
    "a name in reverse": Refusal(named("x\u202ey"), "x\u202ey", "cannot be shown", "&& liza submit my-work"),
    "a branch that is gone": Refusal(deleted, "fix", "branch fix of fix is gone; its commit", "git branch fix "),
    "a moved worktree": Refusal(moved, ".", "was moved", "worktree repair"),
    "integration": Refusal(named("integration"), "integration", "submit a branch of your own", "git branch"),
    "submitted as another": Refusal(twin, "twin", "is submitted already, as fix", "liza task show fix"),
    "sent back": Refusal(returned, "fix", "a new commit is needed", "liza submit fix --review human"),
    "changed files": Refusal(dirty, ".", "1 changed file of", "commit -a"),
    "staged files": Refusal(staged, ".", "new.txt", "commit -a"),
    "in a rebase": Refusal(rebasing, ".", "a rebase is in progress in", "status"),
    "another repository": Refusal(other_repository, ".", "is no worktree of", "liza submit their-work"),
    "no crew": Refusal(without_crew, "main", "there is no .liza", 'liza init "Land submitted work"', 5),
    "no remote": Refusal(nothing, "#12", "no remote", "git remote add", 5),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_has_its_reason_and_a_command(crew: Crew, name: str) -> None:
    row = REFUSALS[name]
    directory = row.make(crew)
    before = (crew.state().revision, crew.git("for-each-ref"))
    message, _, step = crew.liza("submit", row.word, cwd=directory, code=row.code).partition("\n  next: ")
    assert row.says in message
    assert "\n" not in message
    assert row.step in step
    assert (crew.state().revision, crew.git("for-each-ref")) == before


def test_a_missing_reviewer_names_a_program_that_is_there(crew: Crew, tmp_path: Path) -> None:
    branch(crew, "fix")
    for name in ("codex", "gemini"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{BIN}:/usr/bin:/bin"
    assert "next: liza submit fix --merge --program codex" in crew.liza("submit", "fix", "--merge", code=5, PATH=path)


def test_a_program_without_a_merge_is_refused(crew: Crew) -> None:
    branch(crew, "fix")
    said = crew.liza("submit", "fix", "--program", "codex", code=2)
    assert said.endswith("next: liza submit fix --merge --program=codex\n")


def test_a_branch_with_merges_of_the_target_lands(crew: Crew) -> None:
    branch(crew, "lower")
    crew.prepare("submit", "lower")
    crew.prepare("verdict", "approve", "read", "--task", "lower")
    crew.prepare("merge")
    made = branch(crew, "fix")
    crew.git("switch", "-q", "fix")
    crew.git("merge", "-q", "--no-edit", "integration")
    crew.git("switch", "-q", "main")
    crew.liza("submit", "fix")
    assert crew.liza("diff", "fix", "--stat").split()[0] == "fix.txt"
    assert crew.task("fix").description == "Add fix"
    crew.prepare("verdict", "approve", "read", "--task", "fix")
    assert crew.json("merge")["merged"] == ["fix"]
    assert crew.git("merge-base", "--is-ancestor", made, "integration") == ""


def test_five_hundred_commits_are_one_task(crew: Crew) -> None:
    crew.git("switch", "-q", "-c", "long")
    text = "".join(
        f"commit refs/heads/long\ncommitter Ada <ada@example.org> {1000 + number} +0000\ndata 9\nstep {number:04}\n"
        + ("from refs/heads/long^0\n" if number == 0 else "")
        + f"M 100644 inline d{number % 40}/f{number}.txt\ndata 2\nx\n\n"
        for number in range(500)
    )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=crew.root, input=text, text=True, check=True)
    crew.git("reset", "-q", "--hard")
    crew.git("switch", "-q", "main")
    crew.liza("submit", "long")
    task = crew.task("long")
    assert task.description.splitlines()[0] == "long: 500 commits"
    assert task.description.splitlines()[-1] == "- and 470 more"
    assert len(task.scope) < 2000
    crew.prepare("verdict", "approve", "read", "--task", "long")
    assert crew.json("merge")["merged"] == ["long"]


def test_a_worktree_that_git_cannot_read_holds_no_branch_up(crew: Crew) -> None:
    worktree(crew)
    (crew.root / ".git" / "worktrees" / "fix" / "index").write_text("junk")
    assert "what is not committed in" in crew.run("submit", "fix").stderr
    assert crew.status("fix") == "READY_FOR_REVIEW"


def test_a_broken_index_is_made_anew_by_the_next_step(crew: Crew) -> None:
    worktree(crew)
    there = crew.root / ".claude" / "worktrees" / "fix"
    index = crew.root / ".git" / "worktrees" / "fix" / "index"
    index.write_text("junk")
    refused = crew.prepare("submit", ".", cwd=there, code=3)
    assert f"what is not committed in {there} is not known" in refused
    subprocess.run(refused.partition("next: ")[2], shell=True, check=True, stdout=subprocess.DEVNULL)
    assert index.with_name("index.broken").read_text() == "junk"
    crew.prepare("submit", ".", cwd=there)
    assert crew.status("fix") == "READY_FOR_REVIEW"


def test_names_and_messages_of_any_bytes_are_submitted(crew: Crew) -> None:
    crew.git("switch", "-q", "-c", "bytes")
    commit(crew, "\udcff.txt", "x\n", "coffee")
    text = crew.git("cat-file", "commit", "HEAD").replace("coffee", "caf\udce9")
    words = ["git", "hash-object", "-w", "-t", "commit", "--stdin"]
    made = subprocess.run(words, cwd=crew.root, input=os.fsencode(text), capture_output=True, check=True).stdout
    crew.git("reset", "-q", "--hard", made.decode().strip())
    (crew.root / "a\nb.txt").write_text("x\n")
    crew.git("add", "-A")
    crew.git("commit", "-q", "--allow-empty-message", "-m", "")
    crew.git("switch", "-q", "main")
    crew.liza("submit", "bytes")
    task = crew.task("bytes")
    assert task.description == "bytes: 2 commits\n- caf\\xe9\n- a commit without a message"
    assert task.scope == "a\\nb.txt, \\xff.txt"
    crew.prepare("verdict", "approve", "read", "--task", "bytes")
    assert crew.json("merge")["merged"] == ["bytes"]


def test_new_files_of_a_worktree_are_named(crew: Crew) -> None:
    there = worktree(crew)
    (there / "forgotten.txt").write_text("x\n")
    assert "1 new file of" in crew.run("submit", ".", cwd=there).stderr


def test_a_filter_of_the_worktree_runs_no_program(crew: Crew) -> None:
    there = worktree(crew)
    mark = crew.notes / "ran"
    crew.git("config", "filter.trap.clean", f"touch {mark}; cat")
    crew.git("config", "filter.trap.required", "true")
    crew.git("config", "core.fsmonitor", f"touch {mark}; false")
    (there / ".gitattributes").write_text("*.txt filter=trap\n")
    (there / "fix.txt").write_text("other text\n")
    assert "not committed" in crew.liza("submit", ".", code=1, cwd=there)
    assert "not committed, so not submitted" in crew.run("submit", "fix").stderr
    assert not mark.exists()
