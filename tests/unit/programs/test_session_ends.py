"""The tables of stop reasons and outcomes, and stop notes of version 0.1.0."""

from __future__ import annotations

import msgspec
import pytest

from liza.model import session_ends
from liza.model.session_ends import (
    OUTCOME_RULES,
    STOP_RULES,
    Fault,
    RestKind,
    SessionOutcome,
    SilenceKind,
    StopReason,
    stop_reason_of,
)
from liza.programs.session.run_directory import StopNote


def test_every_reason_and_every_outcome_has_its_row_and_every_sentence_is_of_one_reason() -> None:
    assert set(STOP_RULES) == set(StopReason)
    assert set(OUTCOME_RULES) == set(SessionOutcome)
    assert len({rule.sentence for rule in STOP_RULES.values()}) == len(StopReason)


def test_reasons_apart_from_the_session_are_deliberate() -> None:
    deliberate = {reason for reason in StopReason if STOP_RULES[reason].deliberate}
    assert deliberate == {StopReason.STOP, StopReason.OVER, StopReason.LINGERING, StopReason.FENCED}


@pytest.mark.parametrize("outcome", SessionOutcome)
def test_an_end_without_fault_keeps_the_name_of_its_outcome_in_the_history_and_what_crashes_backs_off(
    outcome: SessionOutcome,
) -> None:
    rule = OUTCOME_RULES[outcome]
    if rule.fault is Fault.NONE and outcome is not SessionOutcome.STOPPED:
        assert rule.event == outcome
        assert rule.reported
    if rule.fault is Fault.CRASH:
        assert rule.rest is RestKind.BACKOFF
    assert not (rule.ends_failures and rule.rest is RestKind.BACKOFF)


OLD_NOTES = [
    ({"reason": "stop"}, StopReason.STOP),
    ({"reason": "over"}, StopReason.OVER),
    ({"reason": "fenced"}, StopReason.FENCED),
    ({"reason": "orphaned"}, StopReason.ORPHANED),
    ({"reason": "it is idle at its terminal and has run no closing command"}, StopReason.IDLE),
    ({"reason": "no progress: 50 tool calls in 20 min without a change in the worktree"}, StopReason.NO_PROGRESS),
    ({"reason": "not ready after 60 s"}, StopReason.NOT_READY),
    ({"reason": "hung: no activity for 1801 s"}, StopReason.HUNG),
    ({"reason": "its process is running and has printed nothing after 61 s"}, StopReason.HUNG),
    ({"reason": "no person answered: the program shows a menu", "unusable": True}, StopReason.PERSON_NEEDED),
    (
        {"reason": "the model refuses the program's login: 401", "unusable": True, "model": "login"},
        StopReason.LOGIN_REFUSED,
    ),
    ({"reason": "a usage limit is reached: 429", "model": "quota"}, StopReason.USAGE_LIMIT),
    ({"reason": "its model answers with errors: 500", "model": "server"}, StopReason.NO_ANSWER),
    ({"reason": "no answer from its model for 301 s", "model": "silent"}, StopReason.NO_ANSWER),
]


@pytest.mark.parametrize(("note", "reason"), OLD_NOTES)
def test_a_stop_note_of_0_1_0_loads_with_its_sentence_and_its_reason(
    note: dict[str, object], reason: StopReason
) -> None:
    written = msgspec.json.encode({"time": "2026-01-01T00:00:00Z", **note})
    read = msgspec.json.decode(written, type=StopNote)
    assert (read.stop_reason, read.reason) == (reason, note["reason"])


def test_a_stop_note_of_0_1_0_keeps_its_reason_if_a_sentence_is_reworded(monkeypatch: pytest.MonkeyPatch) -> None:
    reworded = {reason: rule._replace(sentence=f"reworded {rule.sentence}") for reason, rule in STOP_RULES.items()}
    monkeypatch.setattr(session_ends, "STOP_RULES", reworded)
    for note, reason in OLD_NOTES:
        assert msgspec.convert({"time": "2026-01-01T00:00:00Z", **note}, StopNote).stop_reason is reason


@pytest.mark.parametrize("kind", SilenceKind)
def test_a_model_that_gives_no_answer_never_counts_against_the_task(kind: SilenceKind) -> None:
    assert OUTCOME_RULES[STOP_RULES[stop_reason_of(kind)].outcome].fault is Fault.NONE
