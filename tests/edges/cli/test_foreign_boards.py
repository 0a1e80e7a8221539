"""A .liza that is not of this repository's crew: of another program, or copied. Every command refuses it, unchanged."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from liza.cli import app, entry_points
from liza.model.paths import HISTORY_REF
from liza.project.baseline import InitOptions
from liza.project.init import init
from tests.conftest import git, variant

COMMANDS = (
    "status --json",
    "doctor",
    "doctor --fix",
    "init again --no-test",
    "up --program script:/bin/true",
    "down",
    "down --purge",
    "restore --last-good",
    "validate",
    "task list",
    "claim --agent coder-1",
    "note hello",
    "edit",
    "lock -- true",
    "history",
    "merge",
    "land",
    "gc",
    "slots",
    "serve",
    "metrics",
    "config get push",
    "programs list",
    "guard test true --role coder",
    "report discovery x",
)


def content(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def refuse_all(directory: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, says: str) -> str:
    """Say every command; return the hint, which is the same for each but `init` in a linked worktree."""
    monkeypatch.chdir(directory)
    before, refs = content(directory / ".liza"), git(directory, "for-each-ref")
    hint = ""
    for command in COMMANDS:
        words = command.split()
        code = entry_points.run_command(words)
        shown = capfd.readouterr().err
        assert (code, says in shown) == (1, True), (command, code, shown)
        hint = shown.partition("next: ")[2].strip() or hint
    code = entry_points.run_reporting_errors(app.run_liza_agent, ["coder-1"], "liza-agent")
    assert (code, says in capfd.readouterr().err) == (1, True)
    assert content(directory / ".liza") == before
    assert git(directory, "for-each-ref") == refs
    return hint


@pytest.mark.parametrize(
    "files",
    [
        {"state.yaml": "version: 1\ngoal: {id: g, description: old, status: IN_PROGRESS}\ntasks: []\nagents: {}\n"},
        variant(
            {"state.yaml": '{"revision": 7, "version": 1, "goal": {"id": "g"}}', "log.yaml": "- x\n", "archive/a": ""}
        ),
        variant({"state.yaml": "\0", "locks/x.lock": "1 2 x\n", "tx/journal": "x"}),
        variant({"state.yaml/of/another": "x"}),
    ],
    ids=["another layout", "with a revision", "binary", "a directory"],
)
def test_every_command_refuses_a_foreign_liza_directory_without_writing(
    repo: Path,
    files: dict[str, str],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in files.items():
        (repo / ".liza" / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / ".liza" / name).write_text(text)
    assert refuse_all(repo, capfd, monkeypatch, "was not created by this Liza") == "mv .liza .liza-old"
    (repo / "docs").mkdir()
    monkeypatch.chdir(repo / "docs")
    entry_points.run_command(["status"])
    hint = capfd.readouterr().err.partition("next: ")[2]
    subprocess.run(["sh", "-c", hint], check=True)
    init(repo, InitOptions(goal="g", no_test=True))


def test_a_liza_without_a_board_is_refused_by_doctor_too(
    repo: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / ".liza").mkdir()
    (repo / ".liza" / "config.toml").write_text("x\n")
    monkeypatch.chdir(repo)
    for command, code in (("doctor", 5), ("status", 5), ("init g --no-test", 1), ("restore --last-good", 5)):
        assert entry_points.run_command(command.split()) == code
        assert "mv .liza .liza-old" in "".join(capfd.readouterr())
    assert content(repo / ".liza") == {"config.toml": b"x\n"}


def test_a_foreign_liza_directory_above_a_repository_is_ignored(
    repo: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo.parent / ".liza").mkdir()
    (repo.parent / ".liza" / "state.yaml").write_text("tasks: []\n")
    monkeypatch.chdir(repo)
    assert entry_points.run_command(["status"]) == 5
    assert f"there is no .liza in {repo}" in capfd.readouterr().err


def test_in_a_linked_worktree_the_first_step_is_in_the_checkout(
    repo: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(linked_worktree(repo))
    assert entry_points.run_command(["submit", "."]) == 5
    assert f"next: cd {repo} && liza init" in capfd.readouterr().err


def linked_worktree(repo: Path) -> Path:
    git(repo, "worktree", "add", "-q", "-b", "other", "../w")
    return repo.with_name("w")


def clone(repo: Path) -> Path:
    git(repo.parent, "clone", "-q", str(repo), "clone")
    return repo.with_name("clone")


def inner_repository(repo: Path) -> Path:
    git(repo, "init", "-q", "inner")
    git(repo / "inner", "commit", "-q", "--allow-empty", "-m", "first")
    return repo / "inner"


def subdirectory(repo: Path) -> Path:
    (repo / "parts").mkdir()
    return repo / "parts"


def without_record(repo: Path) -> Path:
    """A linked worktree, for a copy by a tool that leaves files out."""
    (repo / ".liza" / "worktrees.json").rename(repo.parent / "worktrees.json")
    return linked_worktree(repo)


@pytest.mark.parametrize(
    "place", [linked_worktree, clone, *map(variant, [inner_repository, subdirectory, without_record])]
)
def test_every_command_refuses_a_copied_liza_and_changes_nothing(
    repo: Path,
    place: Callable[[Path], Path],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    init(repo, InitOptions(goal="g", no_test=True))
    copy = place(repo)
    shutil.copytree(repo / ".liza", copy / ".liza")
    before, tip = content(repo / ".liza"), git(repo, "rev-parse", HISTORY_REF)
    hint = refuse_all(copy, capfd, monkeypatch, str(repo))
    assert (content(repo / ".liza"), git(repo, "rev-parse", HISTORY_REF)) == (before, tip)
    if hint.startswith("cd "):
        assert hint == f"cd {repo}"
        return
    subprocess.run(["sh", "-c", hint], check=True)
    # The other places are below the original.
    code = entry_points.run_command(["init", "again", "--no-test"] if place is clone else ["status"])
    assert code == 0, capfd.readouterr()
