"""Sessions as spans: one id for each session, one trace for each task."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from liza.model.spending import LedgerEntry, TokenUsage, ToolTotal
from liza.usage.rules.session_spans import session_spans

NOW = datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC)


def entry(
    run: str = "coder-1.1", outcome: str = "finished", task: str | None = "task-1", **more: object
) -> LedgerEntry:
    return LedgerEntry(
        run=run, time=NOW, kind="work", program="script:./a --key x", outcome=outcome, seconds=1.5, task=task, **more
    )  # type: ignore[arg-type]


def test_a_session_is_a_span_with_its_usage() -> None:
    used = TokenUsage(input=10, cached=4, output=3, cost=0.5)
    tools = {"shell": ToolTotal(calls=3, failures=1)}
    (span,) = session_spans([entry(used=used, models={"m-1": used}, tools=tools, account="script/a")], "/crew")
    assert span.name == "invoke_agent coder-1"
    assert (span.end - span.start, span.end) == (1_500_000_000, 1_767_268_801_000_000_000)
    assert span.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "coder-1",
        "gen_ai.agent.id": "coder-1.1",
        "gen_ai.request.model": "m-1",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "liza.cost_usd": 0.5,
        "liza.program": "script",
        "liza.account": "script/a",
        "liza.kind": "work",
        "liza.task": "task-1",
        "liza.outcome": "finished",
        "liza.tool_calls": 3,
        "liza.tool_failures": 1,
    }
    assert span.error is None


def test_an_end_that_is_no_success_is_an_error() -> None:
    outcomes = ("finished", "handed off", "stopped", "crashed", "held up", "quota")
    spans = session_spans([entry(outcome=outcome) for outcome in outcomes], "/crew")
    assert [span.error for span in spans] == [None, None, None, "crashed", "held up", "quota"]
    assert [span.attributes.get("error.type") for span in spans] == [None, None, None, "crashed", "held_up", "quota"]


def test_sessions_of_a_task_share_a_trace_and_no_two_share_a_span() -> None:
    first, second, other, planning, elsewhere = (
        *session_spans([entry(), entry("coder-2.1"), entry("coder-1.2", task="task-2")], "/crew"),
        *session_spans([entry("planner-1.1", task=None)], "/crew"),
        *session_spans([entry()], "/other"),
    )
    assert first.trace_id == second.trace_id
    assert len({span.trace_id for span in (first, other, planning, elsewhere)}) == 4
    assert len({span.span_id for span in (first, second, other, planning, elsewhere)}) == 5


@given(st.text(), st.text(), st.integers(0, 10**7), st.integers(-12, 12))
def test_ids_are_the_same_each_time_and_valid(crew: str, task: str, seconds: int, zone: int) -> None:
    session = LedgerEntry(
        run="coder-1.1",
        time=NOW.astimezone(timezone(timedelta(hours=zone))),
        kind="work",
        program="p",
        outcome="finished",
        seconds=float(seconds),
        task=task,
    )
    (span,) = session_spans([session], crew)
    assert session_spans([session], crew) == (span,)
    assert 0 < span.trace_id < 1 << 128
    assert 0 < span.span_id < 1 << 64
    assert 0 <= span.start <= span.end == 1_767_268_801_000_000_000
