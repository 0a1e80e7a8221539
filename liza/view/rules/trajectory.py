"""A session in ATIF, the Agent Trajectory Interchange Format of Harbor, version 1.7: what `liza logs --json` prints.

A step of the model has its texts and calls up to the next result, and the results of these calls. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from liza.model.spending import TokenUsage
from liza.programs.rules.session_events import (
    CallResults,
    Failed,
    LoggedEvent,
    ModelText,
    ModelThought,
    Noticed,
    Printed,
    Prompted,
    SessionBegan,
    SubagentEnded,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    Unknown,
    UsageLimited,
    find_results,
    fold_usage,
)

SCHEMA_VERSION = "ATIF-v1.7"


class _Part(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A part of a trajectory. A field that has its default is left out."""


class TrajectoryCall(_Part):
    """A call of a tool."""

    tool_call_id: str
    function_name: str
    arguments: Mapping[str, Any]


class SubagentRef(_Part):
    """The trajectory of a sub-agent among ``subagent_trajectories``."""

    trajectory_id: str


class ObservationResult(_Part):
    """The result of a call. ``extra``: its ``outcome``, and the ``exit_code`` of a command."""

    source_call_id: str
    content: str
    subagent_trajectory_ref: list[SubagentRef] | None = None
    extra: Mapping[str, str | int] | None = None


class Observation(_Part):
    """The results of the calls of a step."""

    results: list[ObservationResult]


class Metrics(_Part):
    """Tokens and price, in US dollars, of a step. ``cached_tokens`` are part of ``prompt_tokens``."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost_usd: float | None = None


class FinalMetrics(_Part):
    """Sums of a trajectory."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = None


class TrajectoryStep(_Part):
    """A message of a person or of Liza (user), of the model (agent), or of its program (system).

    ``extra``: what the ``timestamp`` is the time of, and the first byte of the event in its file.
    """

    step_id: int
    source: Literal["user", "agent", "system"]
    message: str
    timestamp: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[TrajectoryCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    extra: Mapping[str, str | int] | None = None


class TrajectoryAgent(_Part):
    """The program of a session. ``extra`` names the ``agent`` of the crew and its ``run``."""

    name: str
    version: str
    model_name: str | None = None
    extra: Mapping[str, str] | None = None


class Trajectory(_Part):
    """A session, or what one of its sub-agents did."""

    schema_version: str
    session_id: str
    trajectory_id: str
    agent: TrajectoryAgent
    steps: list[TrajectoryStep]
    final_metrics: FinalMetrics | None = None
    subagent_trajectories: list[Trajectory] | None = None


def build_trajectory(events: Sequence[LoggedEvent], program: str) -> Trajectory | None:
    """Return the trajectory of one run; None if it has no events. The version of the program is not known."""
    if not events:
        return None
    begun = next((entry.event for entry in events if isinstance(entry.event, SessionBegan)), None)
    ends = {entry.event.call: entry.event.subagent for entry in events if isinstance(entry.event, SubagentEnded)}
    parents = list(dict.fromkeys(ends.get(entry.parent, entry.parent) for entry in events if entry.parent))
    agent = TrajectoryAgent(
        name=program,
        version="unknown",
        model_name=begun.model or None if begun is not None else None,
        extra={"agent": events[0].agent, "run": events[0].run},
    )
    session_id = begun.conversation if begun is not None and begun.conversation else events[0].run
    refs = {call: subagent for call, subagent in ends.items() if subagent in parents}
    refs.update({parent: parent for parent in parents if parent not in refs.values()})
    own = [entry for entry in events if not entry.parent]
    trajectory = _build(own, agent, session_id, events[0].run, refs)
    for parent in parents:
        part = [entry for entry in events if entry.parent and ends.get(entry.parent, entry.parent) == parent]
        subagent = _build(part, agent, session_id, parent, {})
        if subagent.steps:
            trajectory.subagent_trajectories = [*(trajectory.subagent_trajectories or ()), subagent]
    return trajectory


def _build(
    events: Sequence[LoggedEvent], agent: TrajectoryAgent, session_id: str, trajectory_id: str, refs: Mapping[str, str]
) -> Trajectory:
    builder = _StepBuilder(find_results(events), refs)
    for entry in events:
        builder.add(entry)
    return Trajectory(
        schema_version=SCHEMA_VERSION,
        session_id=session_id,
        trajectory_id=trajectory_id,
        agent=agent,
        steps=builder.steps,
        final_metrics=_sum_usage(events, len(builder.steps)),
    )


class _StepBuilder:
    """Collects steps; a result ends the step of the model to which it belongs."""

    def __init__(self, results: CallResults, refs: Mapping[str, str]) -> None:
        self.steps: list[TrajectoryStep] = []
        self._results, self._refs = results, refs
        self._open: TrajectoryStep | None = None
        self._is_answered = False

    def add(self, entry: LoggedEvent) -> None:
        """Add an event."""
        match entry.event:
            case Prompted(text=text):
                self._open = None
                self._append(entry, "user", text)
            case ModelText(text=text):
                step = self._model_step(entry)
                step.message = f"{step.message}\n{text}".strip()
            case ModelThought(text=text):
                step = self._model_step(entry)
                step.reasoning_content = f"{step.reasoning_content or ''}\n{text}".strip()
            case ToolCalled() as call:
                self._add_call(self._model_step(entry), call, entry.parent)
            case ToolReturned():
                self._is_answered = True
            case TurnEnded(usage=usage) if usage is not None and self._open is not None:
                self._open.metrics = _measure(usage)
            case (
                Failed(text=text)
                | UsageLimited(text=text)
                | Noticed(text=text)
                | Printed(text=text)
                | Unknown(text=text)
            ):
                self._append(entry, "system", text)

    def _append(self, entry: LoggedEvent, source: Literal["user", "agent", "system"], message: str) -> TrajectoryStep:
        step = TrajectoryStep(
            step_id=len(self.steps) + 1,
            source=source,
            message=message,
            timestamp=_format_time(entry.time),
            extra={"time_source": entry.time_source.value, "offset": entry.offset},
        )
        self.steps.append(step)
        return step

    def _model_step(self, entry: LoggedEvent) -> TrajectoryStep:
        if self._open is None or self._is_answered:
            self._open, self._is_answered = self._append(entry, "agent", ""), False
        return self._open

    def _add_call(self, step: TrajectoryStep, call: ToolCalled, parent: str) -> None:
        step.tool_calls = [*(step.tool_calls or ()), TrajectoryCall(call.call, call.name, dict(call.arguments))]
        result = self._results.find(call.call, parent)
        if result is None:
            return
        extra: dict[str, str | int] = {"outcome": result.outcome.value}
        if result.exit_code is not None:
            extra["exit_code"] = result.exit_code
        ref = [SubagentRef(trajectory_id=self._refs[call.call])] if call.call in self._refs else None
        observed = ObservationResult(
            source_call_id=call.call, content=result.text, subagent_trajectory_ref=ref, extra=extra
        )
        step.observation = Observation(results=[*(step.observation.results if step.observation else ()), observed])


def _measure(usage: TokenUsage) -> Metrics:
    return Metrics(
        prompt_tokens=usage.input, completion_tokens=usage.output, cached_tokens=usage.cached, cost_usd=usage.cost
    )


def _sum_usage(events: Iterable[LoggedEvent], steps: int) -> FinalMetrics:
    folded = fold_usage(msgspec.structs.replace(entry, parent="") for entry in events)
    used = [entry.event.usage for entry in folded if isinstance(entry.event, TurnEnded) and entry.event.usage]
    if not used:
        return FinalMetrics(total_steps=steps)
    total = sum(used[1:], used[0])
    return FinalMetrics(
        total_prompt_tokens=total.input,
        total_completion_tokens=total.output,
        total_cached_tokens=total.cached,
        total_cost_usd=total.cost,
        total_steps=steps,
    )


def _format_time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat().replace("+00:00", "Z")
