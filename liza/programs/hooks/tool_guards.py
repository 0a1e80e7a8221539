"""Refuse tools in a session that is over: checked before each tool call. Pure."""

from __future__ import annotations

from liza.rules.value_classes import Value


class ToolUse(Value):
    """A tool that is about to run. ``closing_code`` is the run's closing code, ``stop_reason`` why its session was
    stopped."""

    run: str
    tool: str
    closing_code: str | None = None
    stop_reason: str | None = None


class ToolRefusal(Value):
    """The tool must not run; the model is told ``why``."""

    why: str


def check_tool_use(use: ToolUse) -> ToolRefusal | None:
    """Return why the tool must not run; None if it may."""
    if use.stop_reason is not None:
        return ToolRefusal(f"[liza] {use.run} was stopped ({use.stop_reason}). Use no more tools, and end here.")
    if use.closing_code is not None:
        return ToolRefusal(f"[liza] {use.run} has called its closing command. Use no more tools, and end here.")
    return None
