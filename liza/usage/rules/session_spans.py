"""Sessions as spans of OpenTelemetry: one trace for each task, one span for each session. Pure.

The ids are digests of the crew, the task and the run, so a session that is sent twice is one span.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from liza.model.paths import agent_of
from liza.model.session_ends import SessionOutcome
from liza.model.spending import LedgerEntry
from liza.model.value_classes import Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_ERROR = (SessionOutcome.FINISHED, SessionOutcome.HANDED_OFF, SessionOutcome.STOPPED)


class SessionSpan(Value):
    """A span. Times are nanoseconds since 1970. ``error`` is the outcome of a session that failed, or None."""

    name: str
    trace_id: int
    span_id: int
    start: int
    end: int
    attributes: Mapping[str, str | int | float]
    error: str | None = None


def session_spans(entries: Iterable[LedgerEntry], crew: str) -> tuple[SessionSpan, ...]:
    """Return the spans of ended sessions. ``crew`` identifies the crew in the ids."""
    return tuple(_session_span(entry, crew) for entry in entries)


def _session_span(entry: LedgerEntry, crew: str) -> SessionSpan:
    end = _nanoseconds(entry.time)
    return SessionSpan(
        name=f"invoke_agent {agent_of(entry.run)}",
        trace_id=_digest(16, crew, entry.sprint or "", entry.task or entry.run),
        span_id=_digest(8, crew, entry.run),
        start=end - round(entry.seconds * 1e9),
        end=end,
        attributes=_attributes(entry),
        error=None if entry.outcome in _NO_ERROR else entry.outcome,
    )


def _attributes(entry: LedgerEntry) -> dict[str, str | int | float]:
    """Return the attributes: names of the semantic conventions for generative AI where there is one."""
    values: dict[str, str | int | float | None] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent_of(entry.run),
        "gen_ai.agent.id": entry.run,
        "gen_ai.request.model": next(iter(entry.models)) if len(entry.models) == 1 else None,
        "liza.program": entry.program.partition(":")[0],
        "liza.account": entry.account,
        "liza.kind": entry.kind,
        "liza.task": entry.task,
        "liza.sprint": entry.sprint,
        "liza.outcome": entry.outcome,
        "error.type": None if entry.outcome in _NO_ERROR else entry.outcome.replace(" ", "_"),
        "liza.tool_calls": sum(total.calls for total in entry.tools.values()) or None,
        "liza.tool_failures": sum(total.failures for total in entry.tools.values()) or None,
    }
    if entry.used is not None:
        values["gen_ai.usage.input_tokens"] = entry.used.input
        values["gen_ai.usage.output_tokens"] = entry.used.output
        values["gen_ai.usage.cache_read.input_tokens"] = entry.used.cached
        values["liza.cost_usd"] = entry.used.cost
        values["liza.estimated_tokens"] = entry.used.estimated or None
    return {name: value for name, value in values.items() if value is not None}


def _nanoseconds(moment: datetime) -> int:
    # Integers: a float of seconds since 1970 has no nanoseconds.
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _digest(size: int, *parts: str) -> int:
    """Return a number of ``size`` bytes that is not 0, as OpenTelemetry requires."""
    digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(digest) or 1
