"""Hooks, monitors, editors and external diffs of a repository run with a person's git, and not with that of Liza."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from liza.model.errors import LizaError
from liza.project.baseline import InitOptions
from liza.project.init import init
from tests.conftest import git
from tests.edges.hostile import Place, copied, fingerprint, prepared, project, sweep


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    import os

    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        (home / ".gitconfig").write_text("[user]\n\tname = Test\n\temail = t@example.invalid\n[gc]\n\tauto = 0\n")
        for name in [name for name in os.environ if name.startswith(("LIZA_", "GIT_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        return prepared(tmp_path_factory.mktemp("made"))


@pytest.fixture
def place(made: Place, tmp_path: Path) -> Place:
    return copied(made, tmp_path / "copy")


@dataclass(frozen=True)
class Trap:
    """How it is planted, and the plain git that springs it."""

    name: str
    plant: Callable[[Place], object]
    spring: tuple[str, ...]
    core: bool = False

    def works(self, place: Place) -> bool:
        """Whether a person's git, in a copy, sets it off."""
        plain = copied(place, place.top.parent / "plain")
        subprocess.run(["git", *self.spring], cwd=plain.slot, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
        return bool(place.ran() + plain.ran())


def setting(key: str, value: str = "{spell}") -> Callable[[Place], object]:
    return lambda place: place.config(key, value.format(spell=place.spell, top=place.top))


def settings(*pairs: tuple[str, str]) -> Callable[[Place], object]:
    def plant(place: Place) -> None:
        for key, value in pairs:
            setting(key, value)(place)

    return plant


def hook(name: str) -> Callable[[Place], object]:
    def plant(place: Place) -> None:
        script = place.root / ".git" / "hooks" / name
        script.parent.mkdir(exist_ok=True)
        script.symlink_to(place.spell)

    return plant


def own_hooks(place: Place) -> None:
    (place.top / "hooks").mkdir()
    for name in HOOKS:
        (place.top / "hooks" / name).symlink_to(place.spell)
    place.config("core.hooksPath", str(place.top / "hooks"))


HOOKS = (
    "pre-commit", "post-commit", "post-checkout", "pre-merge-commit", "post-merge", "post-index-change",
    "reference-transaction", "post-rewrite", "pre-rebase", "pre-auto-gc", "push-to-checkout", "fsmonitor-watchman",
)  # fmt: skip

TRAPS = (
    Trap("text conversion", setting("diff.x.textconv"), ("diff",)),
    Trap("external diff", setting("diff.external"), ("diff",)),
    Trap("external diff of a driver", setting("diff.x.command"), ("diff",)),
    Trap("hooks elsewhere", own_hooks, ("commit", "-qam", "x"), core=True),
    Trap("reference hook", hook("reference-transaction"), ("update-ref", "refs/heads/x", "HEAD")),
    Trap("index hook", hook("post-index-change"), ("add", "-A")),
    Trap("checkout hook", hook("post-checkout"), ("switch", "-q", "--detach")),
    Trap("merge hook", hook("post-merge"), ("merge", "-q", "--no-edit", "-s", "ours", "integration")),
    Trap("file system monitor", setting("core.fsmonitor"), ("status",)),
    Trap("editor", settings(("core.editor", "{spell}"), ("sequence.editor", "{spell}")), ("commit", "-a")),
    Trap("alias", setting("alias.st", "!{spell}"), ("st",)),
)  # fmt: skip


def rows() -> list[object]:
    return [pytest.param(trap, id=trap.name, marks=() if trap.core else (pytest.mark.campaign,)) for trap in TRAPS]


@pytest.mark.parametrize("trap", rows())
def test_repository_programs_run_in_plain_git_and_not_in_lizas(place: Place, trap: Trap) -> None:
    canary = fingerprint(place.elsewhere)
    trap.plant(place)
    place.ran()
    assert trap.works(place), "the trap itself does not work"
    refused = sweep(place)
    assert place.ran() == []
    assert fingerprint(place.elsewhere) == canary
    assert refused == {}


def test_a_clone_that_brings_a_crew_or_links_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    project(root)
    (root / ".liza").symlink_to(tmp_path / "elsewhere")
    git(root, "add", "-f", ".liza")
    git(root, "commit", "-q", "-m", "evil")
    with pytest.raises(LizaError, match="is a link"):
        init(root, InitOptions(goal="x", no_test=True))
    assert not (tmp_path / "elsewhere").exists()
