"""What a runtime reports of its turns, and the sums over the turns of one run. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec

from liza.model.spending import TokenUsage, ToolTotal, limited_name
from liza.model.value_classes import AwareDatetime, FrozenStruct, Label

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class TelemetryStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the parts of a telemetry event."""


class TurnUsage(TelemetryStruct, frozen=True, kw_only=True):
    """Tokens and cost of one turn, counted once. ``cost_usd`` None: the runtime knows no price."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_tokens: Count = 0
    cache_creation_tokens: Count = 0
    model: Label | None = None
    cost_usd: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None

    @property
    def used(self) -> TokenUsage:
        """The tokens and the cost, as Liza counts them: tokens from the cache are part of the input."""
        cached = self.cache_read_tokens
        taken = self.input_tokens + cached + self.cache_creation_tokens
        return TokenUsage(input=taken, cached=cached, output=self.output_tokens, cost=self.cost_usd)


class ReportedCall(TelemetryStruct, frozen=True, kw_only=True):
    """A tool call of a turn."""

    name: Label
    success: bool = True
    duration_ms: Count = 0


class TelemetryEvent(TelemetryStruct, frozen=True, kw_only=True, tag_field="type", tag="turn_complete"):
    """A turn is complete. Of two events with one ``id`` the second is not counted; without an ``id``, two events with
    the same content are one. ``context_usage`` is the used part of the context window, 0 to 1."""

    timestamp: AwareDatetime
    usage: TurnUsage = TurnUsage()
    tools_called: Annotated[tuple[ReportedCall, ...], msgspec.Meta(max_length=10_000)] = ()
    id: Label | None = None
    context_usage: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class TelemetrySums(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Sums over the turns of one run. ``context_usage`` and ``last`` are those of its newest event."""

    turns: int = 0
    used: TokenUsage = TokenUsage()
    models: dict[str, TokenUsage] = msgspec.field(default_factory=dict)
    tools: dict[str, ToolTotal] = msgspec.field(default_factory=dict)
    context_usage: float | None = None
    last: AwareDatetime | None = None


def add_event(sums: TelemetrySums, event: TelemetryEvent) -> TelemetrySums:
    """Return the sums with one more turn."""
    used, models, tools = event.usage.used, sums.models, sums.tools
    if event.usage.model is not None:
        name = limited_name(models, event.usage.model)
        models = {**models, name: models[name] + used if name in models else used}
    if event.tools_called:
        tools = dict(tools)
        for call in event.tools_called:
            name = limited_name(tools, call.name)
            total = ToolTotal(calls=1, failures=int(not call.success), milliseconds=call.duration_ms)
            tools[name] = tools[name] + total if name in tools else total
    is_newest = sums.last is None or event.timestamp >= sums.last
    is_fuller = is_newest and event.context_usage is not None
    return TelemetrySums(
        turns=sums.turns + 1,
        used=sums.used + used,
        models=models,
        tools=tools,
        context_usage=event.context_usage if is_fuller else sums.context_usage,
        last=event.timestamp if is_newest else sums.last,
    )


def is_at_least(used: TokenUsage, before: TokenUsage) -> bool:
    """Return whether no figure is below the one before: what a session used only grows."""
    return (
        used.input >= before.input
        and used.cached >= before.cached
        and used.output >= before.output
        and (used.cost or 0) >= (before.cost or 0)
    )
