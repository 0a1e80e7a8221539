"""Which directories may hold the worktrees of a crew, and whose a directory is after a move."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from liza.rules.errors import Refused
from liza.rules.project.slots_location import (
    DirectoryFacts,
    Mark,
    Placed,
    asked_for,
    is_ours,
    objection,
    proposals,
    refuse_line_break,
)

ROOT = Path("/home/me/shop")
BESIDE = Path("/home/me/shop.worktrees")
FREE = DirectoryFacts(
    place=BESIDE,
    above=Path("/home/me"),
    directory=True,
    owned=True,
    writable=True,
    empty=True,
    mark=None,
    checkout=None,
)
THERE = replace(FREE, above=BESIDE)


def test_a_directory_beside_the_repository_is_proposed_first_and_the_users_state_directory_last() -> None:
    found = list(proposals(ROOT, Path("/home/me/.local/state")))
    assert found[:2] == [BESIDE, Path("/home/me/shop.worktrees-2")]
    assert found[-1].parent == Path("/home/me/.local/state/liza/worktrees")
    other = list(proposals(Path("/srv/shop"), Path("/home/me/.local/state")))
    assert found[-1] != other[-1], "two repositories of one name share a directory"


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (FREE, None),
        (THERE, None),
        (replace(THERE, mark=Mark(ROOT, "x")), None),
        (replace(FREE, place=ROOT / ".worktrees" / ".slots", checkout=ROOT), None),
        (replace(FREE, place=ROOT / "slots", checkout=ROOT), "it lies in the repository"),
        (replace(FREE, place=ROOT), "it lies in the repository"),
        (replace(FREE, place=Path("/home")), "the repository lies in it"),
        (replace(FREE, checkout=Path("/home/me")), "it lies in the git checkout /home/me"),
        (replace(THERE, directory=False), "it is not a directory"),
        (replace(THERE, mark=Mark(Path("/srv/shop"), "x")), "it belongs to the crew of /srv/shop"),
        (replace(THERE, empty=False), "it is not empty"),
        (replace(THERE, owned=False), "it belongs to another user"),
        (replace(FREE, owned=False), None),
        (replace(FREE, writable=False), "/home/me is not writable"),
        (replace(FREE, place=Path("/home/me/a\nb")), "its path contains a line break"),
    ],
)
def test_what_speaks_against_a_directory_is_said(facts: DirectoryFacts, told: str | None) -> None:
    assert objection(ROOT, facts) == told


def test_the_directory_that_links_lie_in_means_the_place_inside_the_repository() -> None:
    assert asked_for(ROOT, ROOT / ".worktrees") == ROOT / ".worktrees" / ".slots"
    assert asked_for(ROOT, Path("/disk/slots")) == Path("/disk/slots")


PLACED = Placed(ROOT, BESIDE, "one", made=True)


@pytest.mark.parametrize(
    ("mark", "other", "ours"),
    [
        (Mark(ROOT, "one"), None, True),
        (Mark(ROOT, "one"), PLACED, False),
        (Mark(ROOT, "one"), replace(PLACED, id="two"), True),
        (Mark(ROOT, "one"), replace(PLACED, place=Path("/elsewhere")), True),
        (Mark(ROOT, "one"), replace(PLACED, root=Path("/elsewhere")), True),
        (Mark(ROOT, "two"), None, False),
        (None, None, False),
    ],
    ids=["moved", "copied", "another crew there", "a copied directory", "moved again", "another crew's", "no mark"],
)
def test_a_slots_directory_stays_with_the_repository_whose_record_names_it(
    mark: Mark | None, other: Placed | None, ours: bool
) -> None:
    assert is_ours(PLACED, mark, other, BESIDE) is ours


def test_a_line_break_in_the_path_is_refused_with_the_command_that_takes_it_out() -> None:
    with pytest.raises(Refused, match="line break") as refused:
        refuse_line_break(Path("/home/me/a\nb's"))
    assert refused.value.hint == """mv $'/home/me/a\\nb\\'s' '/home/me/a-b'"'"'s'"""
    refuse_line_break(ROOT)


def test_a_repository_that_has_no_name_has_its_worktrees_below_the_users_state() -> None:
    (found,) = proposals(Path("/"), Path("/home/me/.local/state"))
    assert found.parent == Path("/home/me/.local/state/liza/worktrees")
    assert objection(Path("/"), DirectoryFacts(found, found.parent, True, True, True, True, None, None)) is not None
