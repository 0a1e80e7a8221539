from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import asdict as fields_of
from msgspec.structs import replace

from liza.board.text import changes, document
from liza.model import derived, history_events
from liza.model.history_events import HistoryEvent
from liza.model.model import Event, State, Task
from liza.model.narration import find_news
from liza.model.session_ends import has_closing_event
from liza.model.transitions import TRANSITIONS, find_unexplained_step
from liza.printing.render_task import format_task
from liza.tasks.rules import conversations, picking
from tests.unit.boards import NOW, board, claimed, task

E = HistoryEvent


def _with_event(name: str) -> State:
    state, run = claimed(board(task()))
    line = Event(time=NOW, event=name, agent="coder-1", run=run, detail="why")
    return state.with_task(replace(state.tasks[0], history=(*state.tasks[0].history, line)))


def test_every_transition_is_an_event_and_every_event_has_rules() -> None:
    assert {transition.verb for transition in TRANSITIONS} <= set(HistoryEvent)
    assert set(history_events.EVENT_RULES) == set(HistoryEvent)


def test_no_event_both_closes_and_ends_without_closing() -> None:
    assert not set(history_events.UNFINISHED_ENDS) & set(history_events.CLOSING_EVENTS)
    assert set(history_events.UNFINISHED_ENDS) < set(history_events.FRAMING_EVENTS)


@pytest.mark.parametrize("event", HistoryEvent)
def test_supervisors_and_the_table_agree_on_closing_commands(event: HistoryEvent) -> None:
    state = _with_event(event)
    run = state.tasks[0].run
    assert run is not None
    assert has_closing_event(state, run) is (event in history_events.CLOSING_EVENTS)


def test_an_unknown_event_is_loaded_and_shown_and_means_nothing() -> None:
    state, _ = claimed(board(task()))
    strange = _with_event("danced")
    known = document.read_document(_text_of(state))
    written = changes.change_document(known, strange).text
    assert "danced" in written
    loaded = document.load_state(written)
    assert loaded == strange
    assert find_news(state, loaded) == ()
    assert find_unexplained_step(loaded.tasks[0]) is None
    assert derived.task_times(loaded.tasks[0], NOW) == derived.task_times(state.tasks[0], NOW)
    assert picking.authors(loaded.tasks[0]) == {"coder-1"}
    session = conversations.EarlierSession(run="coder-1.2", program="script", worktree="/w")
    chosen = [conversations.choose_conversation(changed.tasks[0], session, []) for changed in (loaded, state)]
    assert chosen[0] == chosen[1]
    assert history_events.session_end("danced") == ""
    assert "danced" in format_task(_row(loaded.tasks[0]), colour=False)


def _text_of(state: State) -> str:
    return json.dumps(msgspec.to_builtins(state))


def _row(task: Task) -> dict[str, object]:
    absent = dict.fromkeys(("handoff", "who", "directory", "doing", "tool", "since", "branch", "merge_failed"))
    return {**fields_of(task), **absent, **dict.fromkeys(("notes", "waits_for", "missing"), ())}
