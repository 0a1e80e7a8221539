"""Work that Liza did not start: a branch, a worktree of another tool; reviewed, returned, mended, stacked, merged."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from liza.config.rules.test_proof import RED_REASON
from liza.crew.crew import find_crew
from liza.tasks import submission
from tests.conftest import commit_all
from tests.journeys.crews import BIN, Crew, start_up

REVIEWER = """\
if git grep -q wrong HEAD -- "*.txt"; then
    line=$(git grep -n wrong HEAD -- "*.txt" | head -1 | cut -d: -f2-3)
    liza verdict reject "the text is wrong" --comment "$line" "wrong"
else
    liza verdict approve "read it, ran it"
fi
"""


def commit(crew: Crew, name: str, text: str, subject: str = "Write it", cwd: Path | None = None) -> str:
    """Commit a file on the present branch, and return the commit."""
    ((cwd or crew.root) / name).write_text(text)
    return commit_all(cwd or crew.root, subject)


def branch(crew: Crew, name: str, text: str = "right\n", start: str = "main") -> str:
    """Make a branch with one commit; the person's checkout goes back to main. Return the commit."""
    crew.git("switch", "-q", "-c", name, start)
    made = commit(crew, f"{name.replace('/', '-')}.txt", text, f"Add {name}")
    crew.git("switch", "-q", "main")
    return made


def submit_stack(crew: Crew, order: tuple[str, ...], middle: str = "right\n") -> None:
    """Submit the branches one, two and three, each on top of the one before."""
    branch(crew, "one")
    branch(crew, "two", middle, start="one")
    branch(crew, "three", start="two")
    for name in order:
        crew.prepare("submit", name)


def snapshot(worktree: Path) -> dict[str, bytes]:
    """All bytes of a worktree and of its git directory, but for the files that show when it was read."""
    record = Path((worktree / ".git").read_text().removeprefix("gitdir: ").strip())
    return {
        str(path): path.read_bytes()
        for top in (worktree, record)
        for path in sorted(top.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def test_a_worktree_of_another_tool_lands_after_a_return(crew: Crew) -> None:
    tool = crew.root / ".claude" / "worktrees" / "brave-fox"
    crew.git("worktree", "add", "-q", "-b", "claude/brave-fox", str(tool))
    first = commit(crew, "tax.txt", "wrong\n", "Add the tax\n\nCo-Authored-By: Claude <noreply@anthropic.com>", tool)
    before = snapshot(tool)
    start_up(crew, "--planners", "0", "--coders", "0", "--program", crew.script("reviewer", REVIEWER))
    crew.wait_supervised("code-reviewer-1")
    assert "a reviewer reviews it" in crew.liza("submit", ".", cwd=tool)
    crew.wait_status("claude-brave-fox", "REJECTED")
    (alarm,) = [row for row in crew.json("status")["alerts"] if row["kind"] == "back_with_author"]
    assert alarm["next"] == "liza submit claude/brave-fox"
    assert str(tool) in alarm["message"]
    assert "the text is wrong" in alarm["message"]
    assert "tax.txt:1" in crew.liza("diff", "claude-brave-fox")
    assert snapshot(tool) == before
    assert crew.git("rev-parse", "claude/brave-fox") == first
    second = commit(crew, "tax.txt", "right\n", "Mend the tax", tool)
    assert crew.json("submit", "claude/brave-fox")["commit"] == second
    task = crew.wait_status("claude-brave-fox", "MERGED")
    assert task.submission is not None
    assert (task.submission.program, task.review_commit) == ("claude", second)
    assert crew.git("show", "integration:tax.txt") == "right"
    assert crew.json("submit", "claude/brave-fox")["result"] == "unchanged"
    crew.prepare("archive")
    again = crew.json("submit", "claude/brave-fox")
    assert (again["result"], again["task"]) == ("unchanged", "claude-brave-fox")
    assert crew.git("rev-parse", "claude/brave-fox") == second


def test_one_command_reviews_tests_and_merges_without_a_crew(crew: Crew) -> None:
    branch(crew, "fix/rounding")
    words = ("submit", "fix/rounding", "--merge", "--program", crew.script("reviewer", REVIEWER))
    assert "fix-rounding is merged into integration" in crew.liza(*words)
    assert crew.living() == []
    assert list(crew.state().config.programs) == ["code-reviewer"]
    assert "fix-rounding" in crew.git("notes", "--ref", "liza", "show", "integration")
    branch(crew, "fix/tax", "wrong\n")
    said = crew.run("submit", "fix/tax", "--merge")
    assert said.returncode == 76
    assert "fix-tax is to fix: the text is wrong; it is back with" in said.stdout
    assert "next: liza submit fix/tax" in said.stdout


def test_a_command_judges_only_its_own_work(crew: Crew) -> None:
    branch(crew, "other")
    branch(crew, "mine")
    assert "next: liza submit other --merge" in crew.liza("submit", "other")
    assert "mine is merged" in crew.liza("submit", "mine", "--merge", "--program", crew.script("reviewer", REVIEWER))
    assert crew.heard("other") == ["add", "submit work"]
    status = crew.json("status")
    assert status["up"] == "liza submit other --merge"
    assert [agent["program"] for agent in status["agents"]] == [None]


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_approved", [False, True])
def test_a_red_integration_ends_with_the_reason(crew: Crew, is_approved: bool) -> None:
    commit(crew, "wrong.txt", "wrong\n")
    crew.prepare("sync", "main")
    red = "! test -e wrong.txt"
    crew.configure(integration_command=red, proof={"outcome": "unproved", "command": red, "why": RED_REASON})
    branch(crew, "fix")
    crew.prepare("submit", "fix")
    if is_approved:
        crew.prepare("verdict", "approve", "read", "--task", "fix")
    approve = crew.script("reviewer", 'liza verdict approve "read"\n')
    done = crew.run("submit", "fix", "--merge", "--program", approve)
    assert done.returncode == 76
    assert "fix is approved; it could not be merged: integration is red without any task" in done.stdout
    assert "next: liza merge fix" in done.stdout
    crew.git("rm", "-q", "wrong.txt")
    crew.git("commit", "-q", "-m", "Mend it")
    crew.prepare("sync", "main")
    assert "fix is merged into integration" in crew.liza("submit", "fix", "--merge")


def test_commands_that_merge_at_once_take_turns(crew: Crew) -> None:
    for name in ("one", "two"):
        branch(crew, name)
    program = crew.script("reviewer", REVIEWER)
    racers = [
        subprocess.Popen(
            [str(BIN / "liza"), "submit", name, "--merge", "--program", program],
            cwd=crew.root,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "one", "two")
    ]
    answers = [racer.communicate(timeout=90)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0], answers
    for name, answer in zip(("one", "one", "two"), answers, strict=True):
        assert f"{name} is merged into integration" in answer
    assert len(crew.git("log", "--first-parent", "--format=%s", "main..integration").splitlines()) == 2
    assert crew.living() == []


def test_a_person_reviews_in_the_same_words(crew: Crew) -> None:
    branch(crew, "mine")
    assert "liza verdict approve --task mine" in crew.liza("submit", "mine", "--review", "human")
    assert crew.run("submit", "mine", "--merge").returncode == 76
    crew.liza("verdict", "approve", "I read it", "--task", "mine")
    assert "mine is merged into integration" in crew.liza("submit", "mine", "--merge")


def test_a_stack_lands_in_one_batch_in_its_order(crew: Crew) -> None:
    submit_stack(crew, ("three", "one", "two"))
    assert (crew.task("two").depends_on, crew.task("three").depends_on) == (("one",), ("one", "two"))
    assert crew.liza("diff", "two", "--stat").split()[0] == "two.txt"
    for name in ("three", "two", "one"):
        crew.prepare("verdict", "approve", "read", "--task", name)
    assert "three is built on one" in crew.liza("merge", "three", code=1)
    assert sorted(crew.json("merge")["merged"]) == ["one", "three", "two"]
    subjects = crew.git("log", "--first-parent", "--format=%s", "integration").splitlines()
    assert [subject.split()[1] for subject in subjects[:3]] == ["three:", "two:", "one:"]


def test_one_command_lands_an_approved_stack(crew: Crew) -> None:
    submit_stack(crew, ("one", "two"))
    for name in ("two", "one"):
        crew.prepare("verdict", "approve", "read", "--task", name)
    assert "two is merged into integration" in crew.liza("submit", "two", "--merge")
    assert crew.status("one") == "MERGED"


def test_the_upper_branch_waits_for_a_returned_one(crew: Crew) -> None:
    submit_stack(crew, ("one", "two", "three"))
    crew.prepare("verdict", "approve", "read", "--task", "three")
    crew.prepare("verdict", "approve", "read", "--task", "one")
    crew.prepare("verdict", "reject", "no", "--task", "two")
    assert crew.json("merge")["merged"] == ["one"]
    (row,) = crew.json("queue")["queue"]
    assert (row["id"], row["why"], row["next"]) == ("three", "depends on two", "liza submit two")
    assert [alert["next"] for alert in crew.json("status")["waiting"]] == ["liza submit two"]
    waits = crew.run("submit", "three", "--merge")
    assert waits.returncode == 76
    assert "three is approved; it waits for two, whose commits it contains\nnext: liza submit two" in waits.stdout
    crew.git("switch", "-q", "two")
    crew.git("commit", "-q", "--amend", "-m", "Another two")
    crew.git("switch", "-q", "main")
    assert "three is held" in crew.run("submit", "two").stderr
    assert "git rebase --onto" in crew.json("queue")["queue"][0]["why"]
    crew.prepare("verdict", "approve", "read", "--task", "two")
    assert crew.json("merge", "two")["merged"] == ["two"]
    crew.git("rebase", "-q", "--onto", "two", "two@{1}", "three")
    crew.git("switch", "-q", "main")
    crew.prepare("submit", "three")
    crew.prepare("verdict", "approve", "read", "--task", "three")
    assert crew.json("merge")["merged"] == ["three"]


def test_a_coder_of_the_crew_mends_returned_work(crew: Crew) -> None:
    first = branch(crew, "gift", "wrong\n")
    crew.prepare("submit", "gift")
    crew.prepare("verdict", "reject", "the text", "--task", "gift")
    assert "its author goes on with it" in crew.liza("claim", "gift", "--agent", "coder-1", code=1)
    crew.liza("submit", "gift", "--fix", "crew")
    crew.prepare("claim", "gift", "--agent", "coder-1")
    there = Path(crew.liza("path", "gift").strip())
    assert crew.git("rev-parse", "HEAD", cwd=there) == first
    assert "coder-1 mends gift" in crew.liza("submit", "gift", code=1)
    commit(crew, "gift.txt", "nearly right\n", "Mend it", there)
    crew.prepare("submit", cwd=there)
    assert "coder-1 mended gift on task/gift" in crew.liza("submit", "gift", code=1)
    crew.git("switch", "-q", "gift")
    crew.git("merge", "-q", "task/gift")
    theirs = commit(crew, "gift.txt", "more right\n", "Go on")
    crew.git("switch", "-q", "main")
    assert crew.json("submit", "gift")["commit"] == theirs
    crew.prepare("verdict", "reject", "still not", "--task", "gift")
    crew.prepare("claim", "gift", "--agent", "coder-1")
    there = Path(crew.liza("path", "gift").strip())
    assert crew.git("rev-parse", "HEAD", cwd=there) == theirs
    commit(crew, "gift.txt", "right\n", "Mend it again", there)
    crew.prepare("submit", cwd=there)
    crew.prepare("verdict", "approve", "read", "--task", "gift")
    assert crew.json("merge")["merged"] == ["gift"]
    assert crew.git("rev-parse", "gift") == theirs


def test_a_branch_rewritten_under_review_is_reviewed_anew(crew: Crew) -> None:
    branch(crew, "fix")
    crew.prepare("submit", "fix")
    crew.prepare("claim", "fix", "--agent", "code-reviewer-1")
    crew.git("switch", "-q", "fix")
    crew.git("commit", "-q", "--amend", "-m", "Another subject")
    crew.git("switch", "-q", "main")
    (alarm,) = [row for row in crew.json("status")["alerts"] if row["kind"] == "branch_moved"]
    assert alarm["next"] == "liza submit fix"
    done = crew.run("submit", "fix")
    assert "code-reviewer-1 was reviewing" in done.stderr
    assert crew.task("fix").reviewing_by is None
    refused = crew.liza("verdict", "approve", "x", code=1, cwd=crew.paths.slot("code-reviewer-1"))
    assert "You no longer own this review" in refused
    assert {row["kind"] for row in crew.json("status")["alerts"]} == {"untested_merges"}
    crew.git("branch", "-D", "fix")
    (gone,) = [row for row in crew.json("status")["alerts"] if row["about"] == "fix"]
    assert (gone["kind"], gone["next"]) == ("branch_gone", 'liza task drop fix "…"')
    crew.prepare("verdict", "approve", "read", "--task", "fix")
    assert crew.json("merge")["merged"] == ["fix"]


def test_a_worktree_outside_of_the_repository_finds_its_crew(crew: Crew, tmp_path: Path) -> None:
    elsewhere = tmp_path / "codex" / "worktrees" / "ab12" / "project"
    crew.git("worktree", "add", "-q", "--detach", str(elsewhere))
    crew.git("worktree", "lock", str(elsewhere))
    made = commit(crew, "new.txt", "right\n", "Add new text", elsewhere)
    result = json.loads(crew.liza("submit", ".", "--json", cwd=elsewhere))
    assert (result["task"], result["commit"]) == ("add-new-text", made)
    assert crew.task("add-new-text").submission.worktree == str(elsewhere)  # type: ignore[union-attr]
    assert f"next: cd {crew.root} && liza task show add-new-text" in crew.liza("submit", ".", cwd=elsewhere)
    with contextlib.chdir(elsewhere):
        assert submission.type_step(find_crew(crew.root), "less .liza/x.log") == f"cd {crew.root} && less .liza/x.log"
    again = commit(crew, "new.txt", "righter\n", "Add better text", elsewhere)
    result = json.loads(crew.liza("submit", ".", "--json", cwd=elsewhere))
    assert (result["task"], result["commit"]) == ("add-new-text", again)


def test_many_processes_submit_one_branch_as_one_task(crew: Crew) -> None:
    branch(crew, "fix/it")
    branch(crew, "fix-it")
    words = ("fix/it", "fix-it") * 6
    racers = [
        subprocess.Popen([str(BIN / "liza"), "submit", word, "--json"], cwd=crew.root, stdout=subprocess.PIPE)
        for word in words
    ]
    results = [json.loads(racer.communicate(timeout=90)[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * len(words)
    tasks = {word: {row["task"] for row, other in zip(results, words, strict=True) if other == word} for word in words}
    assert sorted(task for ids in tasks.values() for task in ids) == ["fix-it", "fix-it-2"]
    assert sorted(row["result"] for row in results) == ["changed"] * 2 + ["unchanged"] * 10
    assert [task.id for task in crew.state().tasks] == sorted(task.id for task in crew.state().tasks)
    documents = {path.name: path.read_text() for path in (crew.root / ".liza" / "specs").glob("fix-it*")}
    for task in crew.state().tasks:
        assert f"branch {task.submission.branch};" in documents[f"{task.id}.md"]  # type: ignore[union-attr]
    assert len(documents) == 2


POINTS = (
    "git.log",
    "synced.fix.md",
    "renamed.fix.md",
    "submission.document",
    "synced.next",
    "written.seal",
    "renamed.seal",
    "renamed.state.yaml",
    "submission.recorded",
    "git.update-ref",
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_submission_is_repeated_and_nothing_doubled(crew: Crew, point: str) -> None:
    made = branch(crew, "fix")
    killed = crew.run("submit", "fix", LIZA_FAULT=point)
    assert killed.returncode in (-signal.SIGKILL, 137)
    crew.liza("submit", "fix")
    assert [(task.id, task.review_commit) for task in crew.state().tasks] == [("fix", made)]
    assert crew.heard("fix") == ["add", "submit work"]
    assert [path.name for path in (crew.root / ".liza" / "specs").glob("fix*")] == ["fix.md"]
    crew.run("doctor", "--fix")
    assert crew.git("rev-parse", "refs/liza/review/fix") == made


def test_a_red_branch_in_the_middle_returns_alone(crew: Crew) -> None:
    crew.configure(integration_command="! grep -rqs wrong --include=*.txt .", proof={"meaning": "off"})
    submit_stack(crew, ("one", "two", "three"), "wrong\n")
    for name in ("one", "two", "three"):
        crew.prepare("verdict", "approve", "read", "--task", name)
    merged = json.loads(crew.run("merge", "--json").stdout)
    assert (merged["merged"], merged["returned"]) == (["one"], ["two"])
    assert crew.status("three") == "APPROVED"
    (alarm,) = [row for row in crew.json("status")["waiting"] if row["about"] == "two"]
    assert (alarm["kind"], alarm["next"]) == ("back_with_author", "liza submit two")
    crew.git("switch", "-q", "two")
    commit(crew, "two.txt", "right\n", "Mend two")
    crew.git("switch", "-q", "main")
    crew.prepare("submit", "two")
    crew.prepare("verdict", "approve", "read", "--task", "two")
    crew.git("switch", "-q", "three")
    crew.git("merge", "-q", "--no-edit", "two")
    crew.git("switch", "-q", "main")
    crew.prepare("submit", "three")
    crew.prepare("verdict", "approve", "read", "--task", "three")
    assert crew.json("merge")["merged"] == ["two", "three"]


def test_a_crew_at_work_reviews_what_a_command_waits_for(crew: Crew) -> None:
    branch(crew, "fix")
    start_up(crew, "--planners", "0", "--coders", "0", "--program", crew.script("reviewer", REVIEWER))
    crew.wait_supervised("code-reviewer-1")
    answer = crew.liza("submit", "fix", "--merge")
    assert list(crew.board.read().agents) == ["code-reviewer-1"]
    assert "fix is merged into integration" in answer


def test_a_session_cannot_submit_the_branch_of_another(crew: Crew) -> None:
    branch(crew, "fix")
    there = crew.work_by_hand("task-1")
    run = {"LIZA_ROOT": str(crew.root), "LIZA_RUN": "coder-1.1", "LIZA_TASK": "task-1"}
    assert "submits its own task" in crew.liza("submit", "fix", code=1, cwd=there, **run)
    assert "submitted without an argument" in crew.liza("submit", ".", code=1, cwd=there)


def test_a_session_in_a_box_names_no_directory(crew: Crew) -> None:
    branch(crew, "fix")
    refused = crew.prepare("submit", "fix", code=2, LIZA_CONFINED="yes", LIZA_ROOT=str(crew.root), LIZA_RUN="coder-1.1")
    assert "runs outside of your box" in refused


def test_the_path_of_a_submission_is_its_authors_worktree(crew: Crew) -> None:
    tool = crew.root / ".claude" / "worktrees" / "fox"
    crew.git("worktree", "add", "-q", "-b", "fox", str(tool))
    commit(crew, "fox.txt", "x\n", cwd=tool)
    crew.prepare("submit", "fox")
    assert crew.liza("path", "fox").strip() == str(tool)


def test_commits_of_the_persons_branch_are_named(crew: Crew) -> None:
    commit(crew, "own.txt", "x\n", "On main")
    branch(crew, "fix")
    done = crew.run("submit", "fix")
    assert "it brings along 1 commit of main that integration lacks; to bring them first: liza sync main" in done.stderr
    crew.liza("sync", "main")
    assert crew.run("submit", "fix").stderr == ""


GH = """\
#!/bin/sh
here='{"repo": {"full_name": "acme/shop"}}'
case "$*" in
*/comments*--input*) cat > "$0.comment" ;;
*/comments*) echo "[]" ;;
*) echo '{"state": "open", "user": {"login": "ann"}, "head": '"$here"', "base": '"$here"'}' ;;
esac
"""


def test_what_a_reviewer_rejects_is_a_comment_on_the_request(
    crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, program = tmp_path / "origin.git", tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text(GH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    crew.git("init", "-q", "--bare", str(origin))
    crew.git("remote", "add", "origin", "https://github.com/acme/shop.git")
    crew.git("config", f"url.{origin}.insteadOf", "https://github.com/acme/shop.git")
    branch(crew, "fix", "wrong\n")
    crew.git("push", "-q", "origin", "fix:refs/pull/12/head")
    start_up(crew, "--planners", "0", "--coders", "0", "--program", crew.script("reviewer", REVIEWER))
    crew.liza("submit", "12", "--id", "fix")
    crew.wait_status("fix", "REJECTED")
    comment = Path(f"{program}.comment")
    crew.wait(lambda _: comment.exists() and "the text is wrong" in comment.read_text(), "the comment")
    assert "fix.txt:1: wrong" in comment.read_text()
    (alarm,) = [row for row in crew.json("status")["waiting"] if row["about"] == "fix"]
    assert alarm["next"] == "liza submit 12"
