"""Whether the tool calls and tokens of a working agent are measured."""

from __future__ import annotations

from liza.crew import usage_summary
from liza.crew.crew import Crew
from liza.rules.errors import LizaError
from liza.rules.model import State
from liza.rules.sessions.decide import find_current_work

_NO_FIGURES = "its program reports neither tool calls nor tokens: loops are not detected, only time limits apply"


def unmeasured_reason(crew: Crew, state: State, agent: str) -> str | None:
    """Return why the session of a working agent is not measured; None if it is, or if there is no session."""
    if find_current_work(state, agent) is None or not state.agents[agent].program:
        return None
    gauge = usage_summary.read_gauge(crew, state, agent)
    if gauge is not None and gauge.unmeasured is not None:
        return gauge.unmeasured
    if gauge is not None and (gauge.calls or gauge.used is not None):
        return None
    return None if _reports_figures(crew, state.agents[agent].program or "") else _NO_FIGURES


def _reports_figures(crew: Crew, spec: str) -> bool:
    """Return whether a program reports tool calls or tokens; true for a program that is not known any more."""
    from liza.programs.presets import command_line, preset_table

    try:
        preset = preset_table.load_presets(crew.paths).resolve(spec)
    except LizaError:
        return True
    usage = preset.usage
    has_tokens = bool(usage.input or usage.output or usage.pattern or preset.journal.file)
    return has_tokens or bool(preset.calls) or command_line.has_hooks(preset)
