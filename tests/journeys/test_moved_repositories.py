"""A repository that is renamed, moved or copied, alone or with the worktrees beside it, at rest and under a crew."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import commit_all, git, until, variant, worktree_of
from tests.journeys.crews import APPROVE, Crew, begun


def drafted(crew: Crew, task: str = "first") -> Path:
    """The real directory of a claimed task's worktree, with a file that is not committed."""
    crew.add(task)
    crew.prepare("claim", task, "--agent", "coder-1")
    there = worktree_of(crew.root, task).resolve()
    (there / "draft.txt").write_text("half\n")
    return there


def elsewhere(crew: Crew, root: Path) -> Crew:
    moved = Crew(root, crew.notes)
    moved.children = crew.children
    return moved


def renamed(crew: Crew) -> Crew:
    root = crew.root.with_name("renamed")
    crew.root.rename(root)
    return elsewhere(crew, root)


def moved_with_its_worktrees(crew: Crew) -> Crew:
    away = crew.root.parent / "away"
    away.mkdir()
    for name in ("project", "project.worktrees"):
        if (crew.root.parent / name).exists():
            (crew.root.parent / name).rename(away / name)
    return elsewhere(crew, away / "project")


def renamed_with_its_worktrees(crew: Crew) -> Crew:
    now = renamed(crew)
    (crew.root.parent / "project.worktrees").rename(now.root.with_name("renamed.worktrees"))
    return now


def goes_on(crew: Crew, task: str = "first") -> None:
    """Everything that a person does next works, in the worktree as it was."""
    link = Path(crew.liza("path", task).removesuffix("\n"))
    assert link == worktree_of(crew.root, task)
    assert (link / "draft.txt").read_text() == "half\n"
    looked = subprocess.run(["git", "status", "--porcelain"], cwd=link, capture_output=True, text=True, check=False)
    assert looked.stdout == "?? draft.txt\n", looked.stderr
    commit_all(link, "work")
    crew.liza("submit", cwd=link.resolve())
    crew.liza("verdict", "approve", "ok", "--task", task)
    crew.liza("merge")
    assert crew.status(task) == "MERGED"
    assert git(crew.root, "for-each-ref", "refs/liza/salvage") == ""


@pytest.mark.parametrize(
    ("move", "first"),
    [
        (renamed, ("status",)),
        variant(renamed, ("claim", "second", "--agent", "coder-2")),
        variant(moved_with_its_worktrees, ("doctor", "--fix")),
        variant(renamed_with_its_worktrees, ("status",)),
    ],
)
def test_a_moved_repository_continues_with_its_uncommitted_files(
    crew: Crew, move: Callable[[Crew], Crew], first: tuple[str, ...]
) -> None:
    there = drafted(crew)
    crew.add("second")
    theirs = crew.root.parent / "theirs"
    git(crew.root, "worktree", "add", "-q", "--detach", str(theirs))
    record = crew.root / ".git" / "worktrees" / "theirs" / "gitdir"
    before = record.read_bytes(), (theirs / ".git").read_bytes()
    now = move(crew)
    now.run(*first)
    name = "renamed.worktrees" if move is renamed_with_its_worktrees else "project.worktrees"
    assert now.paths.slots == (there.parent if move is renamed else now.root.with_name(name))
    goes_on(now)
    record = now.root / ".git" / "worktrees" / "theirs" / "gitdir"
    assert (record.read_bytes(), (theirs / ".git").read_bytes()) == before, "a person's worktree was touched"


@pytest.mark.parametrize("move", [renamed, variant(moved_with_its_worktrees), variant(renamed_with_its_worktrees)])
def test_submodules_move_with_their_worktree_and_uncommitted_files(crew: Crew, move: Callable[[Crew], Crew]) -> None:
    library = crew.root.parent / "library"
    git(crew.root.parent, "init", "-q", "-b", "main", str(library))
    git(library, "commit", "-q", "--allow-empty", "-m", "first")
    there = drafted(crew)
    git(there, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "parts/lib")
    git(there, "commit", "-q", "-m", "the library")
    (there / "parts" / "lib" / "half.txt").write_text("half\n")
    now = move(crew)
    now.run("status")
    link = worktree_of(now.root, "first")
    assert git(link / "parts" / "lib", "status", "--porcelain") == "?? half.txt"
    # From the repository of the submodule to its files, too.
    repository = now.root / ".git" / "worktrees" / "s1" / "modules" / "parts" / "lib"
    assert git(repository, "ls-files", "--others") == "half.txt"
    assert git(link, "status", "--porcelain", "--ignore-submodules=untracked") == "?? draft.txt"


@pytest.mark.parametrize("move", [renamed, variant(moved_with_its_worktrees)])
def test_first_command_after_a_move_may_run_in_the_worktree(crew: Crew, move: Callable[[Crew], Crew]) -> None:
    drafted(crew)
    now = move(crew)
    git_dir = now.root / ".git" / "worktrees" / "s1"
    there = now.root.with_name("project.worktrees") / "s1"
    subprocess.run(["git", "--git-dir", git_dir, "--work-tree", there, "add", "-A"], check=True)
    subprocess.run(["git", "--git-dir", git_dir, "--work-tree", there, "commit", "-qm", "work"], check=True)
    now.liza("submit", cwd=there)
    assert now.status("first") == "READY_FOR_REVIEW"


@pytest.mark.campaign
def test_a_copied_repository_never_touches_the_original_worktrees(crew: Crew) -> None:
    there = drafted(crew)
    shutil.copytree(crew.root, crew.root.with_name("copy"), symlinks=True)
    copy = elsewhere(crew, crew.root.with_name("copy"))
    copy.run("doctor", "--fix")
    mine = worktree_of(copy.root, "first").resolve()
    assert mine == copy.root.with_name("copy.worktrees") / "s1"
    (mine / "other.txt").write_text("other\n")
    copy.git("add", "-A", cwd=mine)
    copy.git("commit", "-q", "-m", "in the copy", cwd=mine)
    copy.liza("submit", cwd=mine)
    copy.liza("down", "--purge")
    assert not mine.parent.exists()
    assert (there / "draft.txt").read_text() == "half\n"
    goes_on(crew)


@pytest.mark.campaign
def test_sessions_without_a_supervisor_end_after_moves_and_not_copies(crew: Crew) -> None:
    program = crew.script(
        "agent",
        """\
        [ -f draft.txt ] || { echo half > draft.txt; echo here > "$NOTES/at-work"; exec sleep 600; }
        git add -A; git commit -q -m work; liza submit
        """,
    )
    crew.add("first")
    supervisor = crew.agent("coder-1", program)
    crew.wait_note("at-work")
    supervisor.kill()
    child = Path(f"/proc/{crew.session('coder-1.1')['child']['pid']}")
    shutil.copytree(crew.root, crew.root.with_name("copy"), symlinks=True)
    copy = elsewhere(crew, crew.root.with_name("copy"))
    assert "no supervisor runs" in copy.liza("down")
    assert child.exists(), "a copy ended the session of its original"
    now = renamed(crew)
    now.liza("status")
    assert not child.exists()
    now.agent("coder-1", program)
    now.wait_status("first", "READY_FOR_REVIEW")
    assert "crash" not in now.heard("first")
    assert now.git("show", "task/first:draft.txt") == "half"


@pytest.mark.campaign
def test_a_new_crew_never_gets_worktrees_of_a_moved_repository(
    tmp_path: Path,
) -> None:
    crew = begun(tmp_path)
    crew.liza("init", "Every file is there", "--no-test")
    there = drafted(crew)
    now = renamed(crew)
    git(crew.root.parent, "clone", "-q", str(now.root), str(crew.root))
    assert "state" in crew.liza("init", "Another goal", "--no-test")
    drafted(crew)
    assert crew.paths.slots != there.parent
    now.liza("status")
    assert now.paths.slots == there.parent
    goes_on(now)
    goes_on(crew)


@pytest.mark.campaign
def test_a_supervisor_at_the_former_path_keeps_its_worktrees(
    crew: Crew,
) -> None:
    drafted(crew)
    crew.add("second")
    supervisor = crew.agent("coder-9", crew.script("idle", "sleep 600\n"))
    crew.wait_status("second", "CLAIMED")
    supervisor.process.send_signal(signal.SIGSTOP)
    now = renamed(crew)
    told = now.liza("status")
    assert f"! the repository was moved here from {crew.root} under a running crew" in told, told
    assert "liza down" in told
    record = now.root / ".git" / "worktrees" / "s1" / "gitdir"
    before = record.read_bytes(), now.paths.slots_record.read_bytes()
    assert "coder-9 is still at work" in now.liza("submit", cwd=now.paths.slot("s1"), code=1, LIZA_ROOT=str(now.root))
    assert (record.read_bytes(), now.paths.slots_record.read_bytes()) == before
    supervisor.process.send_signal(signal.SIGCONT)
    assert supervisor.wait_gone() != 0
    now.run("status")
    goes_on(now)


@pytest.mark.campaign
def test_a_crew_whose_repository_moves_stops_and_can_continue_there(crew: Crew) -> None:
    program = crew.script(
        "agent",
        """\
        case "$LIZA_RUN" in
        coder-*)
            [ -f draft.txt ] || { echo half > draft.txt; echo here > "$NOTES/at-work"; exec sleep 600; }
            git add -A; git commit -q -m work; liza submit ;;
        *)
        """
        + f"    {APPROVE} ;;\n        esac\n",
    )
    crew.add("first")
    coder, reviewer = crew.agent("coder-1", program), crew.agent("code-reviewer-1", program)
    crew.wait_note("at-work")
    now = renamed(crew)
    told = now.liza("status")
    until(lambda: coder.process.poll() and reviewer.process.poll(), "supervisors did not leave a moved repository")
    assert f"the repository is no longer at {crew.root}, it is now at {now.root}" in coder.said()
    again = shlex.join(["liza", "up", "--planners", "0", "--program", program])
    assert f"next: cd {now.root} && {again}\n" in coder.said()
    assert now.living() == []
    assert not crew.root.exists(), sorted(crew.root.rglob("*"))
    told = now.liza("status")
    assert "first  working  coder-1  try 1  coder-1 is off" in told, told
    assert "it was moved" in told, told
    now.agent("coder-1", program)
    now.agent("code-reviewer-1", program)
    now.wait_status("first", "MERGED")
    assert "crash" not in now.heard("first")
    assert now.git("show", "integration:draft.txt") == "half"
