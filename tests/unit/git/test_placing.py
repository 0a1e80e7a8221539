"""Which directories may hold the worktrees of a crew."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.git.slots_directory import DirectoryFacts, directory_objection, propose_directories, refuse_line_break
from liza.model.errors import Refused
from liza.model.value_classes import replace

ROOT = Path("/home/me/shop")
BESIDE = Path("/home/me/shop.worktrees")
FREE = DirectoryFacts(
    path=BESIDE,
    nearest_existing=Path("/home/me"),
    is_directory=True,
    owned=True,
    writable=True,
    free=True,
    checkout=None,
)
STATE = {"XDG_STATE_HOME": "/home/me/.local/state"}
THERE = replace(FREE, nearest_existing=BESIDE)


def test_a_directory_beside_the_repository_is_proposed_first() -> None:
    found = list(propose_directories(ROOT, STATE))
    assert found[:-1] == [BESIDE]
    assert found[-1].parent == Path("/home/me/.local/state/liza/worktrees")
    other = list(propose_directories(Path("/srv/shop"), STATE))
    assert found[-1] != other[-1], "two repositories of one name share a directory"


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (FREE, None),
        (THERE, None),
        (replace(FREE, path=ROOT / "slots", checkout=ROOT), "it is inside the repository"),
        (replace(FREE, path=ROOT), "it is inside the repository"),
        (replace(FREE, path=Path("/home")), "the repository is inside it"),
        (replace(FREE, checkout=Path("/home/me")), "it is inside the git checkout /home/me"),
        (replace(THERE, is_directory=False), "it is not a directory"),
        (replace(THERE, free=False), "it is not empty"),
        (replace(THERE, owned=False), "it belongs to another user"),
        (replace(FREE, owned=False), None),
        (replace(FREE, writable=False), "/home/me is not writable"),
        (replace(FREE, path=Path("/home/me/a\nb")), "its path contains a line break"),
    ],
)
def test_an_unsuitable_directory_has_a_reason(facts: DirectoryFacts, told: str | None) -> None:
    assert directory_objection(ROOT, facts) == told


def test_a_path_with_a_line_break_names_the_correcting_command() -> None:
    with pytest.raises(Refused, match="line break") as refused:
        refuse_line_break(Path("/home/me/a\nb's"))
    assert refused.value.hint == """mv $'/home/me/a\\nb\\'s' '/home/me/a-b'"'"'s'"""
    refuse_line_break(ROOT)


def test_a_nameless_repository_has_worktrees_in_the_users_state() -> None:
    (found,) = propose_directories(Path("/"), STATE)
    assert found.parent == Path("/home/me/.local/state/liza/worktrees")
    assert directory_objection(Path("/"), DirectoryFacts(found, found.parent, True, True, True, True, None)) is not None


def test_the_refusal_of_a_line_break_shows_the_path() -> None:
    with pytest.raises(Refused) as refused:
        refuse_line_break(Path("/a\\\n"))
    assert str(refused.value) == "the path of the repository contains a line break: '/a\\\\\\n'"
    assert refused.value.hint == "mv $'/a\\\\\\n' '/a\\-'"
