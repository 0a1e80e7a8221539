"""Format the circuit breaker as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from liza.cli.render.columns import paint
from liza.rules.errors import HINT_LABEL
from liza.rules.formatting.times import format_time

Row = Mapping[str, Any]
_COLOURS = {"warn": "yellow", "checkpoint": "red", "halt": "red"}
MAX_RESOLVED = 10


def format_breaker(shown: Row, colour: bool) -> str:
    """Return the status, the open trips with their evidence, and the newest resolved ones."""
    parts = [f"circuit breaker: {paint(shown['status'], 'bold', colour)}"]
    parts += ["\n".join(_open_lines(trip, colour)) for trip in shown["open"]]
    resolved = shown["resolved"]
    if resolved:
        lines = [line for trip in resolved[:MAX_RESOLVED] for line in _resolved_lines(trip)]
        lines += [f"  and {len(resolved) - MAX_RESOLVED} more: liza breaker --json"] * (len(resolved) > MAX_RESOLVED)
        parts.append("\n".join(["resolved:", *lines]))
    if shown["open"]:
        parts.append(f"{HINT_LABEL}{shown['next']}")
    return "\n\n".join(parts)


def _open_lines(trip: Row, colour: bool) -> Iterator[str]:
    severity = paint(trip["severity"], _COLOURS.get(trip["severity"], "bold"), colour)
    yield f"{severity}  {trip['trigger']}  {format_time(trip['time'])}"
    yield f"  {trip['detail']}"
    yield from (f"  evidence: {line}" for line in trip["evidence"])


def _resolved_lines(trip: Row) -> Iterator[str]:
    yield f"  {format_time(trip['time'])}  {trip['severity']}  {trip['trigger']}: {trip['detail']}"
    yield f"    {format_time(trip['resolved'])}  {trip['resolved_by']}: {trip['root_cause']}"
