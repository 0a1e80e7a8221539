"""The sidecar's stdout, which is the run's output: one JSON object per line, in the same form for every program.

Types: session, prompt, text, thought, tool_call, tool_result, permission, usage, context, turn, failure, notice, exit.
`programs/presets/acp_session.py` says how usage, tool calls and failures are read from them.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

MAX_TEXT = 4000
"""Characters after which a streamed text is written, also without a line end."""
MAX_OUTPUT = 20_000
"""Maximum length of a tool's result in a line, in characters."""
STDOUT = 1


class OutputLines:
    """Writes lines. Streamed text is joined, because programs send it in pieces of a few characters."""

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._descriptor = descriptor
        self._pending = ""
        self._pending_type = "text"

    @property
    def has_text(self) -> bool:
        """Whether text waits to be written."""
        return bool(self._pending)

    def write(self, kind: str, /, **fields: Any) -> None:
        """Write a line of this type, after the text before it. Raises OSError."""
        self.flush()
        self._put({"type": kind, **fields})

    def add_text(self, text: str, kind: str = "text") -> None:
        """Add streamed text; it is written at the end of a line, or when it is long. Raises OSError."""
        if kind != self._pending_type:
            self.flush()
        self._pending_type = kind
        self._pending += text
        head, newline, rest = self._pending.rpartition("\n")
        if newline and head.strip():
            self._put({"type": kind, "text": head})
            self._pending = rest
        if len(self._pending) > MAX_TEXT:
            self.flush()

    def flush(self) -> None:
        """Write the text that was added. Raises OSError."""
        text, self._pending = self._pending, ""
        if text.strip():
            self._put({"type": self._pending_type, "text": text})

    def _put(self, fields: dict[str, Any]) -> None:
        data = memoryview(msgspec.json.encode(fields) + b"\n")
        while data:
            data = data[os.write(self._descriptor, data) :]


def shorten_output(value: Any) -> str:
    """Return the result of a tool as text, its end cut off if it is long."""
    texts = [part["content"]["text"] for part in value if _is_text(part)] if isinstance(value, list) else []
    if value is not None and not isinstance(value, str):
        value = "\n".join(texts) if texts else msgspec.json.encode(value).decode()
    text = value or ""
    return text if len(text) <= MAX_OUTPUT else f"{text[:MAX_OUTPUT]}…"


def _is_text(part: object) -> bool:
    content = part.get("content") if isinstance(part, dict) else None
    return isinstance(content, dict) and isinstance(content.get("text"), str)
