"""The sample board that people learn from is a board that Liza accepts, and shows everything there is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from liza.board.file_store import revision_journal
from liza.board.text import changes, document
from liza.model import derived, invariants, model, transitions
from liza.model.model import State, Status
from liza.tasks.rules import backlog, planning

EXAMPLE = Path(__file__).parents[3] / ".liza.example"
BOARD = EXAMPLE / "state.yaml"
RELEASED = Path(__file__).parents[2] / "data" / "boards"


@pytest.fixture(scope="module")
def state() -> State:
    return document.load_state(BOARD.read_text(encoding="utf-8"), str(BOARD))


def test_the_example_breaks_no_invariant(state: State) -> None:
    assert [str(violation) for violation in invariants.check_board(state)] == []


@pytest.mark.parametrize("path", sorted(RELEASED.glob("*.yaml")), ids=lambda path: path.stem)
def test_released_boards_are_read_and_written_back_unchanged(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    read = document.read_document(text)
    assert [str(violation) for violation in invariants.check_board(read.state)] == []
    assert changes.change_document(read, read.state).text == text


def test_the_example_shows_every_status_and_every_section(state: State) -> None:
    assert {task.status for task in state.tasks} == set(Status)
    empty = [name for name in document.SECTIONS if not getattr(state, name)]
    assert empty == []


def test_the_example_is_taken_apart_entry_by_entry() -> None:
    assert not document.read_document(BOARD.read_text(encoding="utf-8")).is_whole


def test_the_fields_for_readers_follow_the_tasks(state: State) -> None:
    fresh = derived.update_derived_fields(state)
    assert fresh.agents == state.agents
    assert fresh.sprint.metrics == state.sprint.metrics


def test_every_history_follows_arrows_to_the_tasks_status(state: State) -> None:
    for task in state.tasks:
        assert task.history[0].event == "add", task.id
        assert task.status in _reached(task), task.id
        assert transitions.find_unexplained_step(task) is None, task.id


def _reached(task: model.Task) -> set[Status]:
    """Where the events of a task's history can have led."""
    at = {Status.UNCLAIMED, Status.DRAFT}
    for event in task.history[1:]:
        at = {
            arrow.target for arrow in transitions.TRANSITIONS if arrow.verb == event.event and arrow.sources & at
        } or at
    return at


def test_a_drafts_history_names_what_it_lacks(state: State) -> None:
    drafts = [task for task in state.tasks if task.status is Status.DRAFT]
    assert drafts
    for task in drafts:
        assert task.history[0].detail == backlog.describe_missing(
            backlog.find_missing(state, task, frozenset({task.spec_ref}))
        )


def test_the_planner_is_awake_for_a_lasting_reason(state: State) -> None:
    assert state.planning.fingerprint in [trigger.fingerprint for trigger in planning.find_triggers(state)]


def test_the_journals_last_entry_is_about_this_very_board() -> None:
    last = revision_journal.last_record(EXAMPLE / "log.yaml")
    assert last is not None
    assert last.revision == document.load_state(BOARD.read_text(encoding="utf-8")).revision
    assert last.sha256 == hashlib.sha256(BOARD.read_bytes()).hexdigest()


def test_the_journal_shows_outside_edits_and_voided_revisions() -> None:
    records = list(revision_journal.iter_newest_first(EXAMPLE / "log.yaml"))
    assert "external_edit" in [record.event for record in records]
    numbers = [record.revision for record in records]
    assert set(range(numbers[-1], numbers[0])) - set(numbers), "no revision is missing"


def test_every_config_key_is_read_by_a_rule() -> None:
    assert document.find_unknown_config(BOARD.read_text(encoding="utf-8")) == ()
