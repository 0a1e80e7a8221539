"""What an agent, or a clone, plants in a repository runs when git is asked, and does not run when Liza is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from liza.rules.errors import LizaError
from liza.verbs.doctor import doctor
from liza.verbs.init import InitOptions, init
from tests.conftest import git
from tests.edges.hostile import TEXT, Place, copied, fingerprint, prepared, project, sweep


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
    breaks: bool = False

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


def included(key: str) -> Callable[[Place], object]:
    def plant(place: Place) -> None:
        (place.top / "evil.conf").write_text(f'[filter "x"]\n\tclean = {place.spell}\n')
        place.config(key, str(place.top / "evil.conf"))

    return plant


def works_own(place: Place) -> None:
    place.config("extensions.worktreeConfig", "true")
    git(place.slot, "config", "--worktree", "filter.x.clean", str(place.spell))


def attributes(place: Place) -> None:
    (place.root / ".git" / "info" / "attributes").write_text("* filter=y merge=y diff=y\n")
    for key in ("filter.y.clean", "filter.y.smudge", "diff.y.textconv"):
        place.config(key, str(place.spell))


def nested(place: Place) -> Path:
    """A repository that the agent made inside its worktree, with a filter of its own."""
    inner = place.slot / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "f.txt").write_text("x\n")
    (inner / ".gitattributes").write_text("* filter=x diff=x\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "inner")
    for key in ("filter.x.clean", "diff.x.textconv", "diff.external"):
        git(inner, "config", key, str(place.spell))
    return inner


def submodule(place: Place) -> None:
    """The nested repository is committed as a submodule that is to be looked into."""
    inner = nested(place)
    (place.slot / ".gitmodules").write_text('[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n\tignore = none\n')
    git(place.slot, "add", ".gitmodules", "inner")
    git(place.slot, "commit", "-q", "-m", "inner")
    (inner / "f.txt").write_text("y\n")
    for key in ("submodule.inner.update", "diff.submodule", "status.submoduleSummary", "submodule.recurse"):
        value = {"submodule.inner.update": f"!{place.spell}", "diff.submodule": "diff"}.get(key, "true")
        place.config(key, value)


def a_clone_that_lacks_objects(place: Place) -> None:
    settings(
        ("extensions.partialClone", "evil"),
        ("remote.evil.url", "ext::touch {top}/witnesses/ran"),
        ("remote.evil.promisor", "true"),
        ("protocol.ext.allow", "always"),
    )(place)
    blob = git(place.slot, "rev-parse", "HEAD:README.md")
    (place.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (place.slot / "README.md").unlink()


HOOKS = (
    "pre-commit", "post-commit", "post-checkout", "pre-merge-commit", "post-merge", "post-index-change",
    "reference-transaction", "post-rewrite", "pre-rebase", "pre-auto-gc", "push-to-checkout", "fsmonitor-watchman",
)  # fmt: skip

MERGED = ("merge-tree", "--write-tree", "task/task-2", "integration")
TRAPS = (
    Trap("clean filter", setting("filter.x.clean"), ("status",), core=True),
    Trap("smudge filter", setting("filter.x.smudge"), ("checkout", "-f", "HEAD", "--", "a.txt")),
    Trap("process filter", setting("filter.x.process"), ("status",)),
    Trap("merge driver", setting("merge.x.driver", "{spell} %A"), MERGED),
    Trap("text conversion", setting("diff.x.textconv"), ("diff",)),
    Trap("external diff", setting("diff.external"), ("diff",)),
    Trap("external diff of a driver", setting("diff.x.command"), ("diff",)),
    Trap("attributes of the clone", attributes, ("status",)),
    Trap("hooks elsewhere", own_hooks, ("commit", "-qam", "x"), core=True),
    Trap("reference hook", hook("reference-transaction"), ("update-ref", "refs/heads/x", "HEAD")),
    Trap("index hook", hook("post-index-change"), ("add", "-A")),
    Trap("checkout hook", hook("post-checkout"), ("switch", "-q", "--detach")),
    Trap("merge hook", hook("post-merge"), ("merge", "-q", "--no-edit", "-s", "ours", "integration")),
    Trap("include", included("include.path"), ("status",)),
    Trap("conditional include", included("includeIf.onbranch:**.path"), ("status",)),
    Trap("configuration of one work tree", works_own, ("status",)),
    Trap("file system monitor", setting("core.fsmonitor"), ("status",)),
    Trap("editor", settings(("core.editor", "{spell}"), ("sequence.editor", "{spell}")), ("commit", "-a")),
    Trap("signing program", settings(("gpg.program", "{spell}"), ("commit.gpgSign", "true")), ("commit", "-qam", "x")),
    Trap("alias", setting("alias.st", "!{spell}"), ("st",)),
    Trap("submodule", submodule, ("diff",)),
    Trap("submodule, status", submodule, ("status",)),
    Trap("submodule, add", submodule, ("add", "--update", "--", ":/")),
    Trap("lazy fetch", a_clone_that_lacks_objects, ("checkout", "--", "README.md"), breaks=True),
)  # fmt: skip


def rows() -> list[object]:
    return [pytest.param(trap, id=trap.name, marks=() if trap.core else (pytest.mark.campaign,)) for trap in TRAPS]


@pytest.mark.parametrize("trap", rows())
def test_what_is_planted_after_init_runs_in_plain_git_and_in_nothing_that_liza_does(place: Place, trap: Trap) -> None:
    canary = fingerprint(place.elsewhere)
    trap.plant(place)
    place.ran()
    assert trap.works(place), "the trap itself does not work"
    refused = sweep(place)
    assert place.ran() == []
    assert fingerprint(place.elsewhere) == canary
    assert bool(refused) == trap.breaks, refused


@pytest.mark.parametrize("key", ["filter.x.clean", "core.fsmonitor", "core.sshCommand"])
def test_before_init_nothing_runs_that_the_repository_itself_names(
    made: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    place = Place(tmp_path / "fresh")
    place.witnesses.mkdir(parents=True)
    shutil.copy(made.spell, place.spell)
    place.spell.write_text(place.spell.read_text().replace(str(made.top), str(place.top)))
    project(place.root)
    place.config(key, str(place.spell))
    (place.root / "a.txt").write_text(TEXT.replace("5\n", "x\n", 1))
    git(place.root, "status")
    assert (place.ran() == ["ran"]) == (key != "core.sshCommand"), "the trap itself does not work"
    assert doctor(place.root).findings
    assert place.ran() == []


def test_a_clone_that_brings_a_crew_or_links_of_its_own_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    root = tmp_path / "project"
    project(root)
    (root / ".liza").symlink_to(tmp_path / "elsewhere")
    git(root, "add", "-f", ".liza")
    git(root, "commit", "-q", "-m", "evil")
    with pytest.raises(LizaError, match="is a link"):
        init(root, InitOptions(goal="x", no_test=True))
    assert not (tmp_path / "elsewhere").exists()
