"""A person's files in a checkout whose branch moves: named, shown, put away by the given commands, and never lost."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from liza.git import branch_moves, candidates
from liza.git.checkout_moves import MoveOutcome
from liza.git.runner import Git
from tests.campaign import forks
from tests.conftest import git, variant

TREE = """\
printf '*.o\\nbuild\\ndeep\\n' > .gitignore; mkdir -p sub/in docs; echo 1 > sub/f; echo 1 > sub/in/f; echo d > docs/d
echo 1 > cfg; echo 1 > plain
"""
SUBMODULE = """\
git init -q ../lib; echo l > ../lib/l; git -C ../lib add l; git -C ../lib commit -qm l; cp -a ../lib lib; git add lib
"""
MINE = "precious"

# The work of the task, what the person has in the checkout, and the names that are in the way.
BLOCKED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "ignored file, then directory": ("mkdir build; echo x > build/y", "echo precious > build", ("build",)),
    "ignored file further up": ("mkdir -p deep/a/b; echo x > deep/a/b/y", "echo precious > deep", ("deep",)),
    "link, then directory": ("mkdir o; echo x > o/y", "echo precious > ../out; ln -s ../out o", ("o",)),
    "dangling link": ("echo x > o", "echo precious > keep; ln -s nowhere o", ("o",)),
    "tracked directory made a link": (
        "echo 2 > docs/new",
        "mkdir ../out; echo precious > ../out/d; rm -r docs; ln -s ../out docs",
        ("docs",),
    ),
    "directory made a link, file in it changed": (
        "echo 2 > docs/d",
        "mkdir ../out; echo precious > ../out/d; rm -r docs; ln -s ../out docs",
        ("docs", "docs/d"),
    ),
    "ignored files in a directory, then file": (
        "git rm -rq sub; echo x > sub",
        "echo precious > sub/x.o; mkdir sub/in/build; echo precious > sub/in/build/z",
        ("sub/in/build/", "sub/x.o"),
    ),
    "untracked directory, then link": ("ln -s docs notes", "mkdir notes; echo precious > notes/n", ("notes/",)),
    "staged file in a directory, then file": (
        "git rm -rq sub; echo x > sub", "echo precious > sub/n; git add sub/n", ("sub/n",)
    ),
    "other repository": ("mkdir r; echo x > r/y", "git init -q r; echo precious > r/w", ("r",)),
    "other repository, then file": ("echo x > r", "git init -q r; echo precious > r/w", ("r/",)),
    "changed file": ("echo 2 > plain", "echo precious > plain", ("plain",)),
    "staged removal": ("echo 2 > plain", "git rm -q --cached plain; echo precious > plain", ("plain",)),
    "file made a directory": ("echo 2 > plain", "rm plain; mkdir plain; echo precious > plain/p", ("plain", "plain/")),
    "intent to add": ("echo x > n", "echo precious > n; git add -N n", ("n",)),
    "skip-worktree": ("echo 2 > cfg", "echo precious > cfg; git update-index --skip-worktree cfg", ("cfg",)),
    "assume-unchanged": ("git rm -q cfg", "echo precious > cfg; git update-index --assume-unchanged cfg", ("cfg",)),
    "both flags": (
        "echo 2 > cfg; echo 2 > plain",
        "echo precious > cfg; git update-index --skip-worktree cfg; git update-index --assume-unchanged cfg",
        ("cfg",),
    ),
    "hidden removal": ("echo 2 > cfg", "echo precious > n; rm cfg; git update-index --skip-worktree cfg", ("cfg",)),
    "submodule, then file": (
        "git rm -q --cached lib; rm -rf lib; echo x > lib",
        "rmdir lib; cp -a ../lib lib; echo precious > lib/w",
        ("lib",),
    ),
    "odd names": (
        "echo x > ./-a; echo x > '*b'; echo x > 'c d'",
        "echo precious > ./-a; echo precious > '*b'; echo precious > 'c d'",
        ("*b", "-a", "c d"),
    ),
    "free name taken": ("echo x > o", "echo old > o.saved; echo precious > o", ("o",)),
    "case of a name": (
        "echo x > readme.TXT", "git config core.ignoreCase true; echo precious > README.txt", ("README.txt",)
    ),
}  # fmt: skip
FREE = {
    "directory that becomes a link": ("git rm -rq sub; ln -s docs sub", ""),
    "directory that becomes a file": ("git rm -rq sub; echo x > sub", "mkdir -p sub/empty"),
    "file that becomes a directory": ("rm plain; mkdir plain; echo x > plain/y", ""),
    "other files beside it": ("mkdir notes; echo x > notes/y", "mkdir notes; echo precious > notes/n.o"),
    "files of that name elsewhere": ("echo x > sub/n", "echo precious > n; echo precious > docs/x.o"),
    "case of a tracked name": ("git mv plain Plain; echo 2 > Plain", "git config core.ignoreCase true"),
    "same change, staged": ("echo 2 > sub/f; echo x > new", "echo 2 > sub/f; echo x > new; git add sub/f new"),
    "touched file": ("echo 2 > plain", "touch -d @1 plain"),
}
FLAGS = (
    "echo precious > cfg; git update-index --skip-worktree cfg; git update-index --assume-unchanged docs/d; "
    "echo precious > n; git add -N n; "
)


def sh(directory: Path, script: str) -> None:
    done = subprocess.run(["sh", "-ec", script], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Move:
    """integration, checked out, and a candidate with the work of a task."""

    def __init__(self, repo: Path, work: str) -> None:
        self.repo = repo
        sh(repo, f"{TREE}{SUBMODULE if ' lib' in work else ''}git add -A; git commit -qm tree; git branch integration")
        sh(repo, f"git switch -qc task/t; {work}; git add -Af; git commit -qm work; git switch -q integration")
        self.expected = git(repo, "rev-parse", "HEAD")
        commit = git(repo, "rev-parse", "task/t")
        self.candidate = candidates.build_candidate(Git(repo), commit, self.expected, "Merge t", "t")

    def advance(self) -> branch_moves.AdvanceResult:
        return branch_moves.advance_branch(Git(self.repo), "integration", self.candidate, self.expected)

    def kill(self, point: str) -> None:
        assert forks.run(self.advance, point) == -signal.SIGKILL

    def read(self) -> tuple[bytes, dict[str, object]]:
        """The index, and every path with its content."""
        paths = {str(path): path for path in self.repo.rglob("*") if ".git" not in path.relative_to(self.repo).parts}
        contents = {
            name: path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
            for name, path in paths.items()
        }
        return (self.repo / ".git" / "index").read_bytes(), dict(contents)


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", [*[*BLOCKED][::2], *map(variant, [*BLOCKED][1::2])])
def test_blocking_files_stay_and_printed_commands_set_them_aside(
    repo: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    work, mine, names = BLOCKED[case]
    move = Move(repo, work)
    sh(repo, mine)
    before = move.read()
    result = move.advance()
    assert (result.outcome, result.files) == (MoveOutcome.WAITING, names)
    assert move.read() == before
    assert git(repo, "rev-parse", "HEAD") == move.expected
    monkeypatch.chdir(repo if len(case) % 2 else repo.parent)  # the commands name the checkout if it is elsewhere
    shown, step = branch_moves.describe_blocking(result, "true")
    command = shown[shown.index("(") + 1 : -1]
    listed = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert all(name.rstrip("/").split("/")[-1] in listed for name in names), listed
    sh(Path.cwd(), step)
    assert move.advance().outcome is MoveOutcome.MOVED
    assert git(repo, "rev-parse", "HEAD") == move.candidate
    kept = [path for path in repo.parent.rglob("*") if path.is_file() and MINE in path.read_text(errors="replace")]
    assert kept or MINE in git(repo, "log", "--all", "-p", "-m")


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", FREE)
def test_files_that_do_not_block_stay_and_the_branch_moves(repo: Path, case: str) -> None:
    work, mine = FREE[case]
    move = Move(repo, work)
    sh(repo, f"{mine}\n{FLAGS}")
    flags, status = git(repo, "ls-files", "-v", "cfg", "docs/d"), git(repo, "status", "--porcelain")
    assert flags == "S cfg\nh docs/d"
    assert move.advance().outcome is MoveOutcome.MOVED
    assert git(repo, "ls-files", "-v", "cfg", "docs/d") == flags
    staged = {line for line in status.split("\n") if line[0] in "AM"}  # the branch has it now
    assert {*git(repo, "status", "--porcelain").split("\n")} == {*status.split("\n")} - staged
    assert (repo / "cfg").read_text() == f"{MINE}\n"
    assert branch_moves.move_branch_back(Git(repo), "integration", move.candidate, move.expected)
    assert git(repo, "ls-files", "-v", "cfg", "docs/d") == flags


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["move.locked", "git.read-tree", "move.branch"])
def test_flags_and_a_sparse_checkout_survive_a_killed_move(repo: Path, point: str) -> None:
    move = Move(repo, "echo 2 > plain; echo 2 > cfg; echo 2 > sub/f; echo 2 > docs/new")
    sh(repo, "git sparse-checkout set --no-cone '/*' '!/sub/'; git update-index --assume-unchanged cfg docs/d")
    sh(repo, "echo precious > docs/d")
    flags = git(repo, "ls-files", "-v")
    assert "S sub/f" in flags
    move.kill(point)
    branch_moves.recover_merges(Git(repo), ["integration"])
    assert git(repo, "ls-files", "-v").replace("H docs/new\n", "") == flags
    assert not (repo / "sub").exists()
    assert (repo / "docs" / "d").read_text() == f"{MINE}\n"
    assert (repo / "cfg").read_text() == git(repo, "show", "HEAD:cfg") + "\n"
    assert git(repo, "status", "--porcelain") == ""


AFTER_A_KILL = {
    "ignored file in the place of a directory": (
        "mkdir build; echo x > build/y",
        "rm -rf build; echo precious > build",
    ),
    "directory in the place of a file": (
        "git rm -rq sub; echo x > sub",
        "rm -rf sub; mkdir sub; echo precious > sub/x.o",
    ),
    "link in the place of a directory": ("echo 2 > docs/d", "mkdir ../o; echo d > ../o/d; rm -r docs; ln -s ../o docs"),
    "hidden change": ("echo 2 > cfg", "rm .git/index.lock; git update-index --skip-worktree cfg; echo precious > cfg"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", [variant("move.locked"), "git.read-tree", variant("move.branch")])
@pytest.mark.parametrize("case", AFTER_A_KILL)
def test_a_file_that_blocks_after_a_killed_move_stays(repo: Path, case: str, point: str) -> None:
    work, mine = AFTER_A_KILL[case]
    move = Move(repo, work)
    move.kill(point)
    sh(repo, mine)
    mine_or_link = {
        name: value for name, value in move.read()[1].items() if value == b"precious\n" or value == Path("../o")
    }
    branch_moves.recover_merges(Git(repo), ["integration"])
    assert git(repo, "rev-parse", "HEAD") == move.expected
    assert mine_or_link.items() <= move.read()[1].items()
    assert mine_or_link
    assert not (repo.parent / "o").exists() or (repo.parent / "o" / "d").read_text() == "d\n"
