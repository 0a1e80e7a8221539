"""What the use of a context window calls for, and what such an end means for the task."""

from __future__ import annotations

from typing import Any

import pytest

from liza.briefs.rules.context_rules import (
    SECTIONS_OF_MODE,
    ContextMode,
    ContextStep,
    SectionType,
    TextSection,
    next_context_step,
    select_sections,
)
from liza.model.history_events import HistoryEvent
from liza.model.session_ends import SessionOutcome, StopReason
from liza.model.value_classes import replace
from liza.supervisor.rules import actions, decide
from liza.tasks.rules import claims, coding
from tests.unit.boards import NOW, board, claimed, task, with_config
from tests.unit.situations import living, situation


@pytest.mark.parametrize(
    ("usage", "handoff_at", "asked", "step"),
    [
        (None, 0.8, False, ContextStep.NONE),
        (0.8, 0.8, False, ContextStep.NONE),
        (0.81, 0.8, False, ContextStep.ASK_HANDOFF),
        (0.95, 0.8, True, ContextStep.NONE),
        (0.951, 0.8, True, ContextStep.END),
        (0.99, 0.8, False, ContextStep.END),
        (0.97, 0.98, False, ContextStep.NONE),
        (1.0, 1.0, False, ContextStep.NONE),
        (0.1, 0.0, False, ContextStep.ASK_HANDOFF),
    ],
)
def test_a_session_is_asked_and_ended_when_nearly_full(
    usage: float | None, handoff_at: float, asked: bool, step: ContextStep
) -> None:
    assert next_context_step(usage, handoff_at, asked=asked) is step


def test_a_supervisor_asks_then_waits_and_then_ends_the_session() -> None:
    state, run = claimed(board(task()))
    assert decide.decide(situation(state, session=living(run, context_usage=0.83))) == actions.AskHandoff(run, 0.83)
    asked = living(run, context_usage=0.9, context_asked=True)
    assert isinstance(decide.decide(situation(state, session=asked)), actions.Wait)
    full = living(run, context_usage=0.96, context_asked=True)
    stop = actions.StopSession(run, StopReason.CONTEXT_FULL, "96% of its context window is used")
    assert decide.decide(situation(state, session=full)) == stop
    closed = living(run, context_usage=0.96, since_closing_command=1.0)
    assert isinstance(decide.decide(situation(state, session=closed)), actions.Wait)


def test_two_full_windows_in_a_row_are_a_try() -> None:
    state, run = claimed(board(task()))
    for expected in (1, 2, 3):
        state = coding.record_session_end(
            state, "task-1", run, outcome=SessionOutcome.CONTEXT_FULL, detail="96 %", moved=True, now=NOW
        )
        ended = state.task("task-1")
        assert ended is not None
        assert ended.failed_by == ()
        assert ended.history[-1].event == HistoryEvent.CONTEXT_FULL
        state, run = claims.resume(state, "task-1", run, NOW)
        resumed = state.task("task-1")
        assert resumed is not None
        assert resumed.iteration == expected


@pytest.mark.parametrize(
    ("facts", "is_ended"),
    [
        ({"since_start": 61.0, "is_waiting": True}, True),
        ({"since_start": 59.0, "is_waiting": True}, False),
        ({"since_start": 6000.0}, False),  # it works
        ({"since_start": 61.0, "is_waiting": True, "since_closing_command": 1.0}, False),
        ({"since_start": 61.0, "is_waiting": True, "ready": False, "ready_timeout": 99.0}, False),
    ],
)
def test_a_session_older_than_the_limit_ends_when_idle(facts: dict[str, Any], is_ended: bool) -> None:
    state, run = claimed(with_config(board(task()), session_max=60))
    action = decide.decide(situation(state, session=living(run, **facts)))
    stop = actions.StopSession(run, StopReason.TOO_OLD, "it is idle and 61 s old")
    assert (action == stop) is is_ended
    assert is_ended or isinstance(action, actions.Wait)
    unlimited, run = claimed(board(task()))
    assert isinstance(decide.decide(situation(unlimited, session=living(run, **facts))), actions.Wait)


def test_an_idle_session_is_checked_when_it_reaches_its_limit() -> None:
    state, run = claimed(with_config(board(task()), session_max=60, idle_after=600))
    wait = decide.decide(situation(state, session=living(run, since_start=55.0, is_waiting=True)))
    assert isinstance(wait, actions.Wait)
    assert wait.seconds == pytest.approx(5.01)


def test_two_ends_by_age_in_a_row_are_a_try() -> None:
    state, run = claimed(board(task()))
    for expected in (1, 2):
        state = coding.record_session_end(
            state, "task-1", run, outcome=SessionOutcome.TOO_OLD, detail="old", moved=False, now=NOW
        )
        state, run = claims.resume(state, "task-1", run, NOW)
        resumed = state.task("task-1")
        assert resumed is not None
        assert (resumed.iteration, resumed.failed_by, resumed.idle_sessions) == (expected, (), 0)


def test_each_context_mode_has_nonempty_sections_in_brief_order() -> None:
    sections = tuple(TextSection(kind, (kind,)) for kind in SectionType)
    assert select_sections(sections, ContextMode.FULL) == sections
    assert set(SECTIONS_OF_MODE) == set(ContextMode)
    empty = replace(sections[1], lines=())
    assert select_sections((sections[0], empty), ContextMode.FULL) == (sections[0],)
    assert [section.type for section in select_sections(sections, ContextMode.RESUME)] == [
        SectionType.ROLE,
        SectionType.MAIL,
        SectionType.CHECKPOINT,
        SectionType.DIRECTIVE,
    ]


def test_a_compacted_session_gets_no_mail_twice() -> None:
    assert TextSection(SectionType.ROLE, ("a", "", "b")).text == "a\n\nb"
    sections = tuple(TextSection(kind, (kind,)) for kind in SectionType)
    assert [section.type for section in select_sections(sections, ContextMode.COMPACT)] == [
        SectionType.ROLE,
        SectionType.WORK,
        SectionType.CHECKPOINT,
        SectionType.DIRECTIVE,
    ]


def test_runtimes_know_sections_and_modes_by_these_names() -> None:
    assert list(SectionType) == ["role", "work", "mail", "checkpoint", "directive"]
    assert list(ContextMode) == ["full", "compact", "resume"]
