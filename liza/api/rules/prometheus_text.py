"""Figures in the text format of Prometheus, and the figures of usage. Pure.

A counter never falls: it counts ended sessions, and of living ones only what their runtime reported turn by turn. What
is estimated of a living session may fall, so it counts when the session has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from liza.model.paths import agent_of
from liza.model.spending import LedgerEntry, TokenUsage
from liza.model.value_classes import Value

Labels = Mapping[str, str]
_LIVING = "living"


class Family(Value):
    """Samples of one name. ``help`` is a phrase for people."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: tuple[tuple[Labels, float], ...] = ()


def format_families(families: Iterable[Family]) -> str:
    """Return the text; a family without samples is left out."""
    return "".join(map(_format_family, families))


def _format_family(family: Family) -> str:
    if not family.samples:
        return ""
    rows = [f"{family.name}{_format_labels(labels)} {_format_value(value)}\n" for labels, value in family.samples]
    return f"# HELP {family.name} {_escape_help(family.help)}\n# TYPE {family.name} {family.kind}\n{''.join(rows)}"


def _format_value(value: float) -> str:
    """Return a number with all its digits: `%g` has six."""
    return repr(int(value)) if float(value).is_integer() else repr(float(value))


def _format_labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    return _escape_help(value).replace('"', '\\"')


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def usage_families(entries: Iterable[LedgerEntry]) -> tuple[Family, ...]:
    """Return the usage of all sessions, each of which is one entry: by agent and program, by model, by tool."""
    sessions = [entry for entry in entries if entry.outcome != _LIVING or entry.models or entry.tools]
    tokens, cost, model_tokens, model_cost = _Sums(), _Sums(), _Sums(), _Sums()
    count, seconds, calls, failures, durations = _Sums(), _Sums(), _Sums(), _Sums(), _Sums()
    for entry in sessions:
        own = {"agent": agent_of(entry.run), "program": entry.program}
        _add_usage(tokens, cost, own, entry.used)
        if entry.outcome != _LIVING:
            count.add({**own, "outcome": entry.outcome}, 1)
            seconds.add(own, entry.seconds)
        for model, used in entry.models.items():
            _add_usage(model_tokens, model_cost, {"model": model}, used)
        for tool, total in entry.tools.items():
            calls.add({"tool": tool}, total.calls)
            failures.add({"tool": tool}, total.failures)
            durations.add({"tool": tool}, total.milliseconds / 1000)
    return (
        tokens.family("liza_usage_tokens_total", "Tokens; cached ones are part of the input"),
        cost.family("liza_usage_cost_usd_total", "Cost in US dollars, as far as programs report it"),
        count.family("liza_usage_sessions_total", "Ended sessions"),
        seconds.family("liza_usage_session_seconds_total", "Wall time of ended sessions"),
        model_tokens.family("liza_model_tokens_total", "Tokens by model, as far as runtimes report it"),
        model_cost.family("liza_model_cost_usd_total", "Cost by model in US dollars, as far as runtimes report it"),
        calls.family("liza_tool_calls_total", "Tool calls, as far as runtimes report them"),
        failures.family("liza_tool_failures_total", "Failed tool calls"),
        durations.family("liza_tool_seconds_total", "Duration of tool calls"),
    )


class _Sums:
    """Sums by labels."""

    def __init__(self) -> None:
        self._sums: dict[tuple[tuple[str, str], ...], float] = {}

    def add(self, labels: Labels, value: float) -> None:
        key = tuple(labels.items())
        self._sums[key] = self._sums.get(key, 0) + value

    def family(self, name: str, help_text: str) -> Family:
        return Family(
            name, "counter", help_text, tuple((dict(key), value) for key, value in sorted(self._sums.items()))
        )


def _add_usage(tokens: _Sums, cost: _Sums, labels: Labels, used: TokenUsage | None) -> None:
    if used is None:
        return
    for kind, value in (("input", used.input), ("cached", used.cached), ("output", used.output)):
        tokens.add({**labels, "type": kind}, value)
    if used.cost is not None:
        cost.add(labels, used.cost)
