"""Which directories may hold the worktrees of a crew, and whose a directory is after a move."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.git.rules.slots_location import (
    DirectoryFacts,
    SlotsMark,
    SlotsRecord,
    directory_objection,
    foreign_reason,
    is_own_directory,
    propose_directories,
    refuse_line_break,
    requested_directory,
)
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
    empty=True,
    mark=None,
    checkout=None,
)
THERE = replace(FREE, nearest_existing=BESIDE)


def test_a_directory_beside_the_repository_is_proposed_first_and_the_users_state_directory_last() -> None:
    found = list(propose_directories(ROOT, Path("/home/me/.local/state")))
    assert found[:2] == [BESIDE, Path("/home/me/shop.worktrees-2")]
    assert found[-1].parent == Path("/home/me/.local/state/liza/worktrees")
    other = list(propose_directories(Path("/srv/shop"), Path("/home/me/.local/state")))
    assert found[-1] != other[-1], "two repositories of one name share a directory"


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (FREE, None),
        (THERE, None),
        (replace(THERE, mark=SlotsMark(ROOT, "x")), None),
        (replace(FREE, path=ROOT / ".worktrees" / ".slots", checkout=ROOT), None),
        (replace(FREE, path=ROOT / "slots", checkout=ROOT), "it is inside the repository"),
        (replace(FREE, path=ROOT), "it is inside the repository"),
        (replace(FREE, path=Path("/home")), "the repository is inside it"),
        (replace(FREE, checkout=Path("/home/me")), "it is inside the git checkout /home/me"),
        (replace(THERE, is_directory=False), "it is not a directory"),
        (replace(THERE, mark=SlotsMark(Path("/srv/shop"), "x")), "it belongs to the crew of /srv/shop"),
        (replace(THERE, empty=False), "it is not empty"),
        (replace(THERE, owned=False), "it belongs to another user"),
        (replace(FREE, owned=False), None),
        (replace(FREE, writable=False), "/home/me is not writable"),
        (replace(FREE, path=Path("/home/me/a\nb")), "its path contains a line break"),
    ],
)
def test_an_unsuitable_directory_has_a_reason(facts: DirectoryFacts, told: str | None) -> None:
    assert directory_objection(ROOT, facts) == told


def test_a_directory_with_links_means_its_place_in_the_repository() -> None:
    assert requested_directory(ROOT, ROOT / ".worktrees") == ROOT / ".worktrees" / ".slots"
    assert requested_directory(ROOT, Path("/disk/slots")) == Path("/disk/slots")


PLACED = SlotsRecord(ROOT, BESIDE, "one", created_by_liza=True)


@pytest.mark.parametrize(
    ("mark", "other", "ours"),
    [
        (SlotsMark(ROOT, "one"), None, True),
        (SlotsMark(ROOT, "one"), PLACED, False),
        (SlotsMark(ROOT, "one"), replace(PLACED, id="two"), True),
        (SlotsMark(ROOT, "one"), replace(PLACED, directory=Path("/elsewhere")), True),
        (SlotsMark(ROOT, "one"), replace(PLACED, root=Path("/elsewhere")), True),
        (SlotsMark(ROOT, "two"), None, False),
        (None, None, False),
    ],
    ids=["moved", "copied", "another crew there", "a copied directory", "moved again", "another crew's", "no mark"],
)
def test_a_slots_directory_stays_with_the_repository_whose_record_names_it(
    mark: SlotsMark | None, other: SlotsRecord | None, ours: bool
) -> None:
    assert is_own_directory(PLACED, mark, other, BESIDE) is ours


def test_a_line_break_in_the_path_is_refused_with_the_command_that_takes_it_out() -> None:
    with pytest.raises(Refused, match="line break") as refused:
        refuse_line_break(Path("/home/me/a\nb's"))
    assert refused.value.hint == """mv $'/home/me/a\\nb\\'s' '/home/me/a-b'"'"'s'"""
    refuse_line_break(ROOT)


def test_a_repository_that_has_no_name_has_its_worktrees_below_the_users_state() -> None:
    (found,) = propose_directories(Path("/"), Path("/home/me/.local/state"))
    assert found.parent == Path("/home/me/.local/state/liza/worktrees")
    assert (
        directory_objection(Path("/"), DirectoryFacts(found, found.parent, True, True, True, True, None, None))
        is not None
    )


def test_nine_directories_beside_the_repository_are_proposed() -> None:
    found = list(propose_directories(ROOT, Path("/s")))
    assert [path.name for path in found[:-1]] == [
        "shop.worktrees",
        *(f"shop.worktrees-{number}" for number in range(2, 10)),
    ]
    assert found[-1].name.startswith("shop-")
    assert len(found[-1].name) == len("shop-") + 12


@pytest.mark.parametrize(
    ("record", "path", "directory", "mark", "own", "reason"),
    [
        (PLACED, BESIDE, False, None, True, "it is not a directory"),
        (None, BESIDE, True, None, False, None),
        (PLACED, Path("/other"), True, None, False, None),
        (PLACED, BESIDE, True, None, True, None),
        (PLACED, BESIDE, True, None, False, "it contains other files and no worktree of this crew"),
        (PLACED, BESIDE, True, SlotsMark(ROOT, "one"), False, None),
        (PLACED, BESIDE, True, SlotsMark(Path("/srv"), "two"), True, "it belongs to the crew of /srv"),
    ],
)
def test_a_directory_of_another_crew_is_reported(
    record: SlotsRecord | None, path: Path, directory: bool, mark: SlotsMark | None, own: bool, reason: str | None
) -> None:
    assert foreign_reason(record, path, directory, mark, own) == reason


def test_the_refusal_of_a_line_break_shows_the_path() -> None:
    with pytest.raises(Refused) as refused:
        refuse_line_break(Path("/a\\\n"))
    assert str(refused.value) == "the path of the repository contains a line break: '/a\\\\\\n'"
    assert refused.value.hint == "mv $'/a\\\\\\n' '/a\\-'"
