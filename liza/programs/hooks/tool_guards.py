"""What a run's program may not do any more: asked before each of its tools. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ToolUse:
    """A tool that is about to run. ``word`` is the run's closing word, ``stopped`` why somebody ended its session."""

    run: str
    tool: str
    closing_code: str | None = None
    stop_reason: str | None = None


@dataclass(frozen=True)
class ToolRefusal:
    """The tool does not run, and the model is told ``why``."""

    why: str


def check_tool_use(use: ToolUse) -> ToolRefusal | None:
    """None lets the tool run."""
    if use.stop_reason is not None:
        return ToolRefusal(f"[liza] {use.run} was stopped ({use.stop_reason}). Use no more tools, and end here.")
    if use.closing_code is not None:
        return ToolRefusal(f"[liza] {use.run} has said its last word; it is over. Use no more tools, and end here.")
    return None
