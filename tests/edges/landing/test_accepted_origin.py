"""Nothing is sent to an address that no person has accepted."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from liza.config import confirmed_settings
from liza.crew.crew import find_crew
from liza.landing.branch_backup import push_tasks
from liza.landing.land import land_pr
from liza.landing.remotes import accept_origin, find_accepted_origin, record_first_origin
from liza.model.errors import LizaError, Refused, UsageError
from liza.project.baseline import InitOptions
from liza.project.init import init
from tests.conftest import git, variant
from tests.edges.merge_crew import Merges, copied


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Merges:
    """A crew whose origin is good.git, which a person has accepted; other.git is another one."""
    crew = copied(made, tmp_path)
    for name in ("good.git", "other.git"):
        git(tmp_path, "init", "-q", "--bare", "-b", "main", name)
    git(crew.root, "remote", "add", "origin", str(tmp_path / "good.git"))
    accept_origin(crew.crew, f"{tmp_path}/good.git")
    return crew


def pushed(crew: Merges, name: str = "good.git") -> str:
    """The tip of ``work`` there; empty without one."""
    return git(crew.root.parent / name, "for-each-ref", "--format=%(objectname)", "refs/heads/work").strip()


def push(crew: Merges) -> None:
    find_accepted_origin(crew.crew).push_commit(crew.tip(), "work", None)


REDIRECTIONS = {
    "url": [("remote.origin.url", "{other}")],
    "pushurl": [("remote.origin.pushurl", "{other}")],
    "insteadOf": [("url.{other}.insteadOf", "{good}")],
    "pushInsteadOf": [("url.{other}.pushInsteadOf", "{good}")],
    "second pushurl": [("remote.origin.pushurl", "{good}"), ("remote.origin.pushurl", "{other}")],
    "a part of the path": [("url.{other}.insteadOf", "{good}/"), ("remote.origin.url", "{good}/")],
    "the project at the forge": [("url.{good}.insteadOf", "https://github.com/e/vil"), ("remote.origin.url", "https://github.com/e/vil")],
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "changed",
    [
        *("url", "pushInsteadOf", "second pushurl", "the project at the forge"),
        *(variant(name, name=name) for name in ("pushurl", "insteadOf", "a part of the path")),
    ],
)
def test_a_push_to_a_new_address_waits_for_acceptance(crew: Merges, changed: str) -> None:
    good, other = (str(crew.root.parent / name) for name in ("good.git", "other.git"))
    git(crew.root, "config", "--unset", "remote.origin.url")
    for key, value in REDIRECTIONS[changed]:
        git(crew.root, "config", "--add", key.format(good=good, other=other), value.format(good=good, other=other))
    if "remote.origin.url" not in dict(REDIRECTIONS[changed]):
        git(crew.root, "config", "remote.origin.url", good)
    with pytest.raises(Refused) as refused:
        push(crew)
    assert (pushed(crew), pushed(crew, "other.git")) == ("", "")
    with pytest.raises(Refused) as landing:
        land_pr(crew.crew, "main")
    words = shlex.split(refused.value.hint)
    if words[:3] == ["liza", "push", "--origin"]:
        assert landing.value.hint == refused.value.hint.replace("liza push", "liza land --pr")
        push_tasks(crew.crew, (), words[3])
        push(crew)
        assert pushed(crew) + pushed(crew, "other.git") == crew.tip()
    else:
        assert words == ["git", "remote", "-v"], "several addresses cannot be accepted"


def test_a_push_moves_no_remote_branch_and_runs_no_hook(crew: Merges) -> None:
    hook = crew.root / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {crew.root}/ran\n")
    hook.chmod(0o755)
    git(crew.root, "config", "url.elsewhere.insteadOf", str(crew.root.parent / "good.git" / "x"))
    push(crew)
    assert (pushed(crew), git(crew.root, "for-each-ref", "refs/remotes/origin/work")) == (crew.tip(), "")
    assert not (crew.root / "ran").exists()


def test_only_the_present_address_is_accepted_by_a_person(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    good, other = (str(crew.root.parent / name) for name in ("good.git", "other.git"))
    git(crew.root, "remote", "set-url", "origin", other)
    with pytest.raises(UsageError, match=r"not at .*good\.git': nothing is accepted"):
        push_tasks(crew.crew, (), good)
    monkeypatch.setenv("LIZA_RUN", "coder-1.1")
    monkeypatch.setenv("LIZA_ROOT", str(crew.root))
    with pytest.raises(LizaError):
        push_tasks(crew.crew, (), other)
    monkeypatch.delenv("LIZA_RUN")
    with pytest.raises(Refused, match=r"a person has accepted .*good\.git"):
        push(crew)


def test_init_accepts_the_origin_and_lost_pins_accept_none(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "good.git")
    git(repo, "remote", "add", "origin", f"{tmp_path}/good.git")
    init(repo, InitOptions(goal="Everything is there", no_test=True), record_origin=record_first_origin)
    crew = find_crew(repo)
    assert find_accepted_origin(crew).address == f"{tmp_path}/good.git"
    confirmed_settings.create_pins(crew.paths)
    with pytest.raises(Refused, match="no person has accepted the address of origin"):
        find_accepted_origin(find_crew(repo))
