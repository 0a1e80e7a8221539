"""The sums of what a runtime reports of its turns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from liza.model.spending import TokenUsage, ToolTotal
from liza.usage.rules.telemetry_rules import (
    ReportedCall,
    TelemetryEvent,
    TelemetrySums,
    TurnUsage,
    add_event,
    is_at_least,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def event(seconds: int = 0, *calls: ReportedCall, context: float | None = None, **usage: object) -> TelemetryEvent:
    return TelemetryEvent(
        timestamp=NOW + timedelta(seconds=seconds),
        usage=TurnUsage(**usage),  # type: ignore[arg-type]
        tools_called=calls,
        context_usage=context,
    )


def total(*events: TelemetryEvent) -> TelemetrySums:
    sums = TelemetrySums()
    for turn in events:
        sums = add_event(sums, turn)
    return sums


def test_tokens_of_the_cache_are_part_of_the_input() -> None:
    usage = TurnUsage(input_tokens=1, output_tokens=2, cache_read_tokens=10, cache_creation_tokens=100, cost_usd=0.5)
    assert usage.used == TokenUsage(input=111, cached=10, output=2, cost=0.5)
    assert TurnUsage().used == TokenUsage()


def test_turns_are_summed_by_model_and_by_tool() -> None:
    sums = total(
        event(0, ReportedCall(name="shell", duration_ms=5), ReportedCall(name="read"), input_tokens=1, model="m"),
        event(1, ReportedCall(name="shell", success=False, duration_ms=7), output_tokens=2, model="m", cost_usd=0.5),
        event(2, input_tokens=4, model="other model"),
        event(3, input_tokens=8),
    )
    assert sums.turns == 4
    assert sums.used == TokenUsage(input=13, output=2, cost=0.5)
    assert sums.models == {"m": TokenUsage(input=1, output=2, cost=0.5), "other model": TokenUsage(input=4)}
    assert sums.tools == {"shell": ToolTotal(calls=2, failures=1, milliseconds=12), "read": ToolTotal(calls=1)}
    assert sums.last == NOW + timedelta(seconds=3)


def test_the_newest_report_of_context_use_counts() -> None:
    assert total(event(5, context=0.5), event(4, context=0.9)).context_usage == 0.5
    assert total(event(5, context=0.5), event(5, context=0.4)).context_usage == 0.4
    assert total(event(5, context=0.5), event(6)).context_usage == 0.5
    late = total(event(5, context=0.5), event(4, context=0.9))
    assert late.last == NOW + timedelta(seconds=5)
    assert total(event(5)).context_usage is None


def test_names_beyond_the_limit_are_summed_as_other() -> None:
    calls = tuple(ReportedCall(name=f"t{number}") for number in range(202))
    sums = total(event(0, *calls, model="m"), event(1, ReportedCall(name="t0"), ReportedCall(name="new")))
    assert len(sums.tools) == 201
    assert sums.tools["other"].calls == 3
    assert sums.tools["t0"].calls == 2
    models = total(*(event(number, model=f"m{number}", input_tokens=1) for number in range(202)))
    assert models.models["other"] == TokenUsage(input=2)


USED = TokenUsage(input=5, cached=4, output=3, cost=0.5)


@pytest.mark.parametrize(
    ("used", "positive", "grown"),
    [
        (USED, True, True),
        (TokenUsage(input=6, cached=5, output=4, cost=0.6), True, True),
        (TokenUsage(input=4, cached=4, output=3, cost=0.5), True, False),
        (TokenUsage(input=5, cached=3, output=3, cost=0.5), True, False),
        (TokenUsage(input=5, cached=4, output=2, cost=0.5), True, False),
        (TokenUsage(input=5, cached=4, output=3, cost=0.4), True, False),
        (TokenUsage(input=5, cached=4, output=3), True, False),
        (TokenUsage(input=-1), False, False),
        (TokenUsage(cached=-1), False, False),
        (TokenUsage(output=-1), False, False),
        (TokenUsage(cost=-0.1), False, False),
        (TokenUsage(), True, False),
    ],
)
def test_what_a_session_used_is_not_negative_and_only_grows(used: TokenUsage, positive: bool, grown: bool) -> None:
    assert is_at_least(used, USED) is grown
    assert is_at_least(used, TokenUsage()) is positive


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_tokens": -1},
        {"output_tokens": (1 << 53) + 1},
        {"cost_usd": -0.1},
        {"cost_usd": 1e10},
        {"model": "m" * 201},
        {"tokens": 1},
    ],
)
def test_figures_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, TurnUsage)
    most = {"input_tokens": 1 << 53, "cost_usd": 1e9, "model": "m" * 200}
    assert msgspec.convert(most, TurnUsage).input_tokens == 1 << 53
