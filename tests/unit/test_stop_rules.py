"""What follows from each reason for which Liza ends a session."""

from __future__ import annotations

import pytest

from liza.rules.history_events import HistoryEvent
from liza.rules.sessions.session_ends import (
    OUTCOME_RULES,
    STOP_RULES,
    Fault,
    RestKind,
    SessionOutcome,
    SilenceKind,
    StopReason,
    stop_reason_of,
    stop_reason_of_text,
)

R = StopReason
OUT = SessionOutcome


def test_reasons_that_say_nothing_about_the_session_are_deliberate() -> None:
    assert {reason for reason in R if STOP_RULES[reason].deliberate} == {R.STOP, R.OVER, R.LINGERING, R.FENCED}


def test_what_the_output_says_about_the_model_counts_only_after_a_crash_or_a_question() -> None:
    assert {reason for reason in R if not STOP_RULES[reason].final} == {
        R.ORPHANED, R.NOT_READY, R.HUNG, R.PERSON_NEEDED,
    }  # fmt: skip


def test_a_session_of_which_nothing_is_needed_gets_less_time_to_exit() -> None:
    assert {reason for reason in R if STOP_RULES[reason].short_grace} == {R.OVER, R.FENCED}


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (R.STOP, OUT.STOPPED), (R.OVER, OUT.FINISHED), (R.LINGERING, OUT.FINISHED), (R.FENCED, OUT.FINISHED),
        (R.ORPHANED, OUT.CRASHED), (R.IDLE, OUT.FINISHED), (R.END_REPORTED, OUT.FINISHED), (R.NO_PROGRESS, OUT.LOOPED),
        (R.NOT_READY, OUT.CRASHED), (R.HUNG, OUT.CRASHED), (R.PERSON_NEEDED, OUT.UNUSABLE),
        (R.LOGIN_REFUSED, OUT.UNUSABLE), (R.USAGE_LIMIT, OUT.QUOTA), (R.NO_ANSWER, OUT.UNANSWERED),
        (R.CONTEXT_FULL, OUT.CONTEXT_FULL), (R.TOO_OLD, OUT.TOO_OLD),
    ],
)  # fmt: skip
def test_each_reason_counts_as_one_outcome_with_a_sentence_for_people(
    reason: StopReason, outcome: SessionOutcome
) -> None:
    assert STOP_RULES[reason].outcome is outcome
    assert STOP_RULES[reason].sentence


@pytest.mark.parametrize(
    ("outcome", "event", "fault", "rest", "reported"),
    [
        (OUT.FINISHED, "ended", Fault.TRY, RestKind.NONE, False),
        (OUT.HANDED_OFF, "ended", Fault.TRY, RestKind.AFTER_HANDOFF, False),
        (OUT.CRASHED, "crash", Fault.CRASH, RestKind.BACKOFF, True),
        (OUT.LOOPED, "ended", Fault.TRY, RestKind.BACKOFF, False),
        (OUT.STOPPED, "stop", Fault.NONE, RestKind.NONE, False),
        (OUT.HELD_UP, "held up", Fault.NONE, RestKind.BACKOFF, True),
        (OUT.QUOTA, "quota", Fault.NONE, RestKind.USAGE_LIMIT, True),
        (OUT.UNANSWERED, "unanswered", Fault.NONE, RestKind.NO_ANSWER, True),
        (OUT.UNUSABLE, "unusable", Fault.NONE, RestKind.UNTIL_PERSON_ACTS, True),
        (OUT.CONTEXT_FULL, "context full", Fault.NONE, RestKind.AFTER_HANDOFF, True),
        (OUT.TOO_OLD, "too old", Fault.NONE, RestKind.AFTER_HANDOFF, True),
    ],
)
def test_what_follows_from_each_outcome(
    outcome: SessionOutcome, event: str, fault: Fault, rest: RestKind, reported: bool
) -> None:
    rule = OUTCOME_RULES[outcome]
    assert (rule.event, rule.fault, rule.rest, rule.reported) == (HistoryEvent(event), fault, rest, reported)
    assert rule.ends_failures is (outcome in (OUT.FINISHED, OUT.HANDED_OFF))


def test_silence_has_its_reason_and_so_have_notes_of_earlier_versions() -> None:
    assert {kind: stop_reason_of(kind) for kind in SilenceKind} == {
        SilenceKind.LOGIN: R.LOGIN_REFUSED, SilenceKind.QUOTA: R.USAGE_LIMIT, SilenceKind.SERVER: R.NO_ANSWER,
        SilenceKind.BROKEN: R.NO_ANSWER, SilenceKind.SILENT: R.NO_ANSWER,
    }  # fmt: skip
    assert stop_reason_of_text("no progress: x") is R.NO_PROGRESS
    assert stop_reason_of_text("anything else") is R.HUNG
    assert stop_reason_of_text("stop", person_needed=True) is R.PERSON_NEEDED
    assert stop_reason_of_text("stop", person_needed=True, silence=SilenceKind.QUOTA) is R.USAGE_LIMIT
    assert stop_reason_of_text("orphaned by x") is R.ORPHANED
