"""The tables of stop reasons and outcomes."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("kind", SilenceKind)
def test_a_model_that_gives_no_answer_never_counts_against_the_task(kind: SilenceKind) -> None:
    assert OUTCOME_RULES[STOP_RULES[stop_reason_of(kind)].outcome].fault is Fault.NONE
