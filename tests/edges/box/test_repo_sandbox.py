"""Files and set-up that git does not bring into a slot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from liza.git import slot_setup
from liza.git.runner import Git
from liza.model.configuration import Config, Confinement, TestProof
from liza.model.errors import Refused, UsageError
from liza.model.paths import Paths
from liza.model.value_classes import replace
from tests.conftest import commit_all, git, make_repository


@pytest.fixture
def slot(repo: Path) -> Path:
    commit_all(repo, "files", {".gitignore": "/.env*\n/config/\n", "package.json": "{}\n"})
    git(repo, "worktree", "add", "-q", "--detach", str(repo / ".worktrees" / ".slots" / "s1"))
    return repo / ".worktrees" / ".slots" / "s1"


def test_untracked_files_are_copied_again_only_when_they_change(repo: Path, slot: Path) -> None:
    (repo / ".env").write_text("A=1\n")
    (repo / ".env").chmod(0o600)
    (repo / "config" / "deep").mkdir(parents=True)
    (repo / "config" / "deep" / "local.json").write_text("{}\n")
    (repo / "package.json").write_text("changed in the person's checkout\n")
    patterns = (".env", "config", "package.json", "absent*")
    assert slot_setup.copy_files(repo, Git(slot), patterns) == (".env", "config/deep/local.json")
    assert ((slot / ".env").read_text(), (slot / ".env").stat().st_mode & 0o777) == ("A=1\n", 0o600)
    assert (slot / "package.json").read_text() == "{}\n"
    assert slot_setup.copy_files(repo, Git(slot), patterns) == ()
    (repo / ".env").write_text("A=2\n")
    assert slot_setup.copy_files(repo, Git(slot), patterns) == (".env",)


def test_patterns_never_copy_lizas_files_or_files_outside_the_repository(repo: Path, slot: Path) -> None:
    for pattern in ("../x", "/etc/passwd", ""):
        with pytest.raises(UsageError):
            slot_setup.copy_files(repo, Git(slot), (pattern,))
    (repo / ".liza").mkdir()
    (repo / ".liza" / "state.yaml").write_text("x")
    assert slot_setup.copy_files(repo, Git(slot), (".liza", ".git/config", "**/state.yaml")) == ()


def test_nothing_is_copied_through_a_link_outside_the_slot(repo: Path, slot: Path, tmp_path: Path) -> None:
    (repo / "config").mkdir()
    (repo / "config" / "local.json").write_text("{}\n")
    (repo / ".env").write_text("A=1\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "victim").write_text("precious\n")
    (slot / "config").symlink_to(tmp_path / "outside")
    (slot / ".env").symlink_to(tmp_path / "victim")
    with pytest.raises(Refused, match="leads out"):
        slot_setup.copy_files(repo, Git(slot), ("config",))
    slot_setup.copy_files(repo, Git(slot), (".env",))
    assert (tmp_path / "victim").read_text() == "precious\n"
    assert list((tmp_path / "outside").iterdir()) == []
    assert (slot / ".env").read_text() == "A=1\n"


def test_set_up_runs_in_new_slots_and_when_inputs_change(repo: Path, slot: Path) -> None:
    config = Config(sandbox_setup="npm ci", sandbox_setup_files=("package.json", "absent"), sandbox_copy=(".npmrc",))
    assert not slot_setup.is_setup_due(repo, Git(slot), Config())
    assert slot_setup.is_setup_due(repo, Git(slot), config)
    slot_setup.mark_setup_done(repo, Git(slot), config)
    assert not slot_setup.is_setup_due(repo, Git(slot), replace(config, sandbox_setup_files=("absent", "package.json")))
    assert slot_setup.is_setup_due(repo, Git(slot), replace(config, sandbox_setup="npm install"))
    (slot / "absent").write_text("")
    assert slot_setup.is_setup_due(repo, Git(slot), config)
    (slot / "absent").unlink()
    (repo / ".npmrc").write_text("registry=x\n")
    assert slot_setup.is_setup_due(repo, Git(slot), config)
    (repo / ".npmrc").unlink()
    assert not slot_setup.is_setup_due(repo, Git(slot), config)
    (slot / "package.json").write_text("{ }\n")
    assert slot_setup.is_setup_due(repo, Git(slot), config)


def test_a_set_up_that_builds_sources_runs_at_each_commit(repo: Path, slot: Path) -> None:
    config = Config(sandbox_setup="make", proof=TestProof(setup="make", setup_builds=True))
    slot_setup.mark_setup_done(repo, Git(slot), config)
    assert not slot_setup.is_setup_due(repo, Git(slot), config)
    git(slot, "commit", "-q", "--allow-empty", "-m", "next")
    assert slot_setup.is_setup_due(repo, Git(slot), config)


@pytest.mark.needs("bwrap")
def test_a_set_up_runs_again_once_it_uses_a_box(repo: Path, slot: Path) -> None:
    config = Config(sandbox_setup="make", confinement=Confinement.OFF)
    slot_setup.mark_setup_done(repo, Git(slot), config)
    assert not slot_setup.is_setup_due(repo, Git(slot), config)
    assert slot_setup.is_setup_due(repo, Git(slot), replace(config, confinement=Confinement.AUTO))


def with_submodule(repo: Path, tmp_path: Path) -> Path:
    """A slot of ``repo`` that has the submodule ``lib`` checked out, as a set-up would."""
    lib = tmp_path / "lib"
    make_repository(lib, {"a.txt": "a\n", ".gitignore": "cache\n"})
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(lib), "lib")
    git(repo, "commit", "-q", "-m", "a submodule")
    slot = Paths(repo).slot("s")
    git(repo, "worktree", "add", "-q", "--detach", str(slot))
    git(slot, "-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init")
    return slot


def test_a_changed_submodule_matches_its_commit_and_runs_no_hook(repo: Path, tmp_path: Path) -> None:
    slot = with_submodule(repo, tmp_path)
    lib, victim, ran = slot / "lib", tmp_path / "victim", tmp_path / "ran"
    victim.mkdir()
    (victim / "precious").write_text("x\n")
    commit = git(lib, "rev-parse", "HEAD")
    (lib / "a.txt").write_text("committed\n")
    git(lib, "commit", "-q", "-a", "-m", "moved")
    (lib / "a.txt").write_text("changed\n")
    (lib / "new.txt").write_text("new\n")
    (lib / "cache").write_text("ignored\n")
    own = Path(git(lib, "rev-parse", "--absolute-git-dir"))
    git(lib, "config", "core.fsmonitor", f"touch {ran}")
    hook = own / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    git(lib, "config", "core.worktree", str(victim))
    there = Git(slot)
    slot_setup.empty_submodules(there)
    assert ((lib / "a.txt").read_text(), (lib / "new.txt").exists()) == ("a\n", False)
    assert (own / "HEAD").read_text().strip() == commit
    assert (lib / "cache").exists()
    slot_setup.remove_leftovers(repo, there, Config())
    assert not (lib / "cache").exists()
    assert (victim / "precious").exists()
    assert not ran.exists()


@pytest.mark.parametrize("kind", ["link", "another repository"])
def test_replaced_submodule_is_removed_never_followed_and_set_up_again(repo: Path, tmp_path: Path, kind: str) -> None:
    slot = with_submodule(repo, tmp_path)
    mine = tmp_path / "lib"
    (mine / "a.txt").write_text("mine\n")
    slot_setup.mark_setup_done(repo, Git(slot), Config(sandbox_setup="true"))
    if kind == "link":
        shutil.rmtree(slot / "lib")
        (slot / "lib").symlink_to(mine)
    else:
        (slot / "lib" / ".git").write_text(f"gitdir: {mine / '.git'}\n")
    slot_setup.empty_submodules(Git(slot))
    assert (mine / "a.txt").read_text() == "mine\n"
    assert list((slot / "lib").iterdir()) == []
    assert slot_setup.is_setup_due(repo, Git(slot), Config(sandbox_setup="true"))
