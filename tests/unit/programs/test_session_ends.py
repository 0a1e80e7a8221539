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


def test_every_stop_reason_and_outcome_has_its_own_row() -> None:
    assert set(STOP_RULES) == set(StopReason)
    assert set(OUTCOME_RULES) == set(SessionOutcome)
    assert len({rule.sentence for rule in STOP_RULES.values()}) == len(StopReason)


def test_reasons_apart_from_the_session_are_deliberate() -> None:
    deliberate = {reason for reason in StopReason if STOP_RULES[reason].deliberate}
    assert deliberate == {StopReason.STOP, StopReason.OVER, StopReason.LINGERING, StopReason.FENCED}


@pytest.mark.parametrize("outcome", SessionOutcome)
def test_a_faultless_end_keeps_its_name_and_crashes_back_off(
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
def test_a_model_without_an_answer_never_counts_against_tasks(kind: SilenceKind) -> None:
    assert OUTCOME_RULES[STOP_RULES[stop_reason_of(kind)].outcome].fault is Fault.NONE
