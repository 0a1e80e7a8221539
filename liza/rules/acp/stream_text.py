"""The sidecar's lines as text for a person who looks at a session over ACP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any


def format_stream_line(line: str) -> str | None:
    """Return a line of the sidecar as text; None if it says nothing to a person. Any other line stays as it is."""
    try:
        fields = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return line or None
    form = _FORMS.get(str(fields.get("type")))
    return None if form is None else form(fields)


def _format_session(fields: Mapping[str, Any]) -> str:
    loaded = ", loaded" if fields.get("loaded") else ""
    return f"── {fields.get('program')}, conversation {fields.get('session_id')}{loaded} ──"


def _format_prompt(fields: Mapping[str, Any]) -> str:
    text = str(fields.get("text")).strip()
    first, _, more = text.partition("\n")
    is_brief = fields.get("source") == "brief"
    return (
        f"\n> {first}{' …' if more else ''}" if is_brief else "\n" + "\n".join(f"> {row}" for row in text.split("\n"))
    )


def _format_call(fields: Mapping[str, Any]) -> str:
    values = fields.get("input")
    values = values if isinstance(values, Mapping) else {}
    words = values.get("command") or values.get("path") or fields.get("title") or fields.get("tool")
    return f"[{fields.get('tool')}] {words}"


def _format_result(fields: Mapping[str, Any]) -> str:
    rows = str(fields.get("output") or "").strip().splitlines()
    shown = [f"    {row}" for row in rows[:MAX_ROWS]] + (["    …"] if len(rows) > MAX_ROWS else [])
    return "\n".join([f"    {fields.get('status')}, {fields.get('ms')} ms", *shown])


MAX_ROWS = 10
"""Rows of a tool's output that are shown."""
_FORMS: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "session": _format_session,
    "prompt": _format_prompt,
    "text": lambda fields: str(fields.get("text")),
    "thought": lambda fields: f"({str(fields.get('text')).strip()})",
    "tool_call": _format_call,
    "tool_result": _format_result,
    "permission": lambda fields: None if fields.get("allowed") else f"    refused: {fields.get('reason')}",
    "turn": lambda fields: f"── the turn is {fields.get('end')} ──",
    "failure": lambda fields: f"! {fields.get('kind')}: {fields.get('message')}",
    "notice": lambda fields: f"· {fields.get('text')}",
    "exit": lambda fields: f"── the program exited with {fields.get('code')} ──",
}
