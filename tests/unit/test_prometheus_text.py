"""Figures in the text format of Prometheus: escapes, digits, and which sessions count."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from liza.api.rules.prometheus_text import Family, format_families, usage_families
from liza.model.spending import LedgerEntry, TokenUsage, ToolTotal

NOW = datetime(2026, 1, 1, tzinfo=UTC)
USED = TokenUsage(input=100, cached=40, output=7, cost=0.25)
UNPRICED = TokenUsage(input=5, output=1)


def entry(run: str, outcome: str = "finished", **fields: object) -> LedgerEntry:
    return LedgerEntry(run=run, time=NOW, kind="work", program="codex", outcome=outcome, seconds=1.5, **fields)  # type: ignore[arg-type]


def samples(*entries: LedgerEntry) -> dict[str, list[tuple[dict[str, str], float]]]:
    families = usage_families(entries)
    assert {family.kind for family in families} == {"counter"}
    assert all(family.help for family in families)
    return {family.name: [(dict(labels), value) for labels, value in family.samples] for family in families}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (3.0, "3"), (12345678, "12345678"), (0.1, "0.1"), (1234567.25, "1234567.25"), (-2.5, "-2.5")],
)
def test_a_value_has_all_its_digits(value: float, text: str) -> None:
    family = Family("x", "gauge", "h", (({}, value),))
    assert format_families([family]) == f"# HELP x h\n# TYPE x gauge\nx {text}\n"


def test_labels_and_help_are_escaped_and_a_family_without_samples_is_left_out() -> None:
    odd = 'a\\b"c\nd'
    families = [Family("none", "counter", "h"), Family("x", "counter", odd, (({"p": odd, "q": "1"}, 2),))]
    assert format_families(families) == ('# HELP x a\\\\b"c\\nd\n# TYPE x counter\nx{p="a\\\\b\\"c\\nd",q="1"} 2\n')


def test_the_usage_of_ended_sessions_is_summed_by_agent_and_program_in_a_fixed_order() -> None:
    own, other = {"agent": "coder-1", "program": "codex"}, {"agent": "coder-2", "program": "codex"}
    shown = samples(
        entry("coder-2.1", "crashed", used=UNPRICED),
        entry("coder-1.1", used=USED),
        entry("coder-1.2", used=USED),
        entry("coder-1.3", used=None),
    )
    assert shown == {
        "liza_usage_tokens_total": [
            ({**own, "type": "cached"}, 80),
            ({**own, "type": "input"}, 200),
            ({**own, "type": "output"}, 14),
            ({**other, "type": "cached"}, 0),
            ({**other, "type": "input"}, 5),
            ({**other, "type": "output"}, 1),
        ],
        "liza_usage_cost_usd_total": [(own, 0.5)],
        "liza_usage_sessions_total": [({**own, "outcome": "finished"}, 3), ({**other, "outcome": "crashed"}, 1)],
        "liza_usage_session_seconds_total": [(own, 4.5), (other, 1.5)],
        "liza_model_tokens_total": [],
        "liza_model_cost_usd_total": [],
        "liza_tool_calls_total": [],
        "liza_tool_failures_total": [],
        "liza_tool_seconds_total": [],
    }


def test_models_and_tools_are_summed_over_all_agents() -> None:
    tools = {"shell": ToolTotal(calls=3, failures=1, milliseconds=1500)}
    shown = samples(entry("coder-1.1", models={"m": USED}, tools=tools), entry("coder-2.1", models={"m": USED}))
    assert shown["liza_model_tokens_total"] == [
        ({"model": "m", "type": "cached"}, 80),
        ({"model": "m", "type": "input"}, 200),
        ({"model": "m", "type": "output"}, 14),
    ]
    assert shown["liza_model_cost_usd_total"] == [({"model": "m"}, 0.5)]
    assert shown["liza_tool_calls_total"] == [({"tool": "shell"}, 3)]
    assert shown["liza_tool_failures_total"] == [({"tool": "shell"}, 1)]
    assert shown["liza_tool_seconds_total"] == [({"tool": "shell"}, 1.5)]


def test_a_living_session_counts_only_with_what_its_runtime_reported() -> None:
    """What is estimated of a living session may fall, and a counter never does."""
    assert not any(samples(entry("coder-1.1", "living", used=USED)).values())
    shown = samples(entry("coder-1.1", "living", used=USED, models={"m": USED}))
    assert shown["liza_usage_cost_usd_total"] == [({"agent": "coder-1", "program": "codex"}, 0.25)]
    assert shown["liza_usage_sessions_total"] == []
    assert shown["liza_usage_session_seconds_total"] == []
    by_tools = samples(entry("coder-1.1", "living", used=USED, tools={"shell": ToolTotal(calls=1)}))
    assert by_tools["liza_tool_calls_total"] == [({"tool": "shell"}, 1)]
