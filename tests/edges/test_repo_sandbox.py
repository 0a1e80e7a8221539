"""Files and set-up that git does not bring into a slot."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.repo import sandbox
from liza.repo.runner import Git
from liza.rules.errors import Refused, Usage
from tests.conftest import git


@pytest.fixture
def slot(repo: Path) -> Path:
    (repo / ".gitignore").write_text("/.env*\n/config/\n")
    (repo / "package.json").write_text("{}\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "files")
    git(repo, "worktree", "add", "-q", "--detach", str(repo / ".worktrees" / ".slots" / "s1"))
    return repo / ".worktrees" / ".slots" / "s1"


def test_untracked_files_are_copied_once_renewed_when_they_change_and_tracked_ones_left_alone(
    repo: Path, slot: Path
) -> None:
    (repo / ".env").write_text("A=1\n")
    (repo / ".env").chmod(0o600)
    (repo / "config" / "deep").mkdir(parents=True)
    (repo / "config" / "deep" / "local.json").write_text("{}\n")
    (repo / "package.json").write_text("changed in the person's checkout\n")
    patterns = (".env", "config", "package.json", "absent*")
    assert sandbox.copy(repo, Git(slot), patterns) == (".env", "config/deep/local.json")
    assert ((slot / ".env").read_text(), (slot / ".env").stat().st_mode & 0o777) == ("A=1\n", 0o600)
    assert (slot / "package.json").read_text() == "{}\n"
    assert sandbox.copy(repo, Git(slot), patterns) == ()
    (repo / ".env").write_text("A=2\n")
    assert sandbox.copy(repo, Git(slot), patterns) == (".env",)


def test_patterns_that_leave_the_repository_and_lizas_own_files_are_not_copied(repo: Path, slot: Path) -> None:
    for pattern in ("../x", "/etc/passwd", ""):
        with pytest.raises(Usage):
            sandbox.copy(repo, Git(slot), (pattern,))
    (repo / ".liza").mkdir()
    (repo / ".liza" / "state.yaml").write_text("x")
    assert sandbox.copy(repo, Git(slot), (".liza", ".git/config", "**/state.yaml")) == ()


def test_nothing_is_copied_through_a_link_that_leads_out_of_the_slot(repo: Path, slot: Path, tmp_path: Path) -> None:
    (repo / "config").mkdir()
    (repo / "config" / "local.json").write_text("{}\n")
    (repo / ".env").write_text("A=1\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "victim").write_text("precious\n")
    (slot / "config").symlink_to(tmp_path / "outside")
    (slot / ".env").symlink_to(tmp_path / "victim")
    with pytest.raises(Refused, match="leads out"):
        sandbox.copy(repo, Git(slot), ("config",))
    sandbox.copy(repo, Git(slot), (".env",))
    assert (tmp_path / "victim").read_text() == "precious\n"
    assert list((tmp_path / "outside").iterdir()) == []
    assert (slot / ".env").read_text() == "A=1\n"


def test_set_up_is_due_in_a_new_slot_and_when_its_command_or_files_change(slot: Path) -> None:
    assert not sandbox.setup_due(Git(slot), None, ())
    assert sandbox.setup_due(Git(slot), "npm ci", ("package.json", "absent"))
    sandbox.mark_setup_done(Git(slot), "npm ci", ("package.json", "absent"))
    assert not sandbox.setup_due(Git(slot), "npm ci", ("absent", "package.json"))
    assert sandbox.setup_due(Git(slot), "npm install", ("package.json", "absent"))
    (slot / "absent").write_text("")
    assert sandbox.setup_due(Git(slot), "npm ci", ("package.json", "absent"))
    (slot / "absent").unlink()
    (slot / "package.json").write_text("{ }\n")
    assert sandbox.setup_due(Git(slot), "npm ci", ("package.json", "absent"))
