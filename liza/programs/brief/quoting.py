"""Text of other authors inside a brief: limited, without control characters, and unable to begin or end a block.
Pure."""

from __future__ import annotations

import re

from liza.rules.formatting.redaction import redact
from liza.rules.lazy_pattern import lazy_pattern

MESSAGE_PREFIX = "MESSAGE from "
"""The start of each message to an agent."""
NOTE_PREFIX = "NOTE from the person: "
"""The start of each note of the board in a brief."""
BLOCK_BEGIN = "<!-- liza:begin run={run} -->"
BLOCK_END = "<!-- liza:end run={run} -->"
TRUNCATED = " […] (cut: see MORE)"
_MARK_START = lazy_pattern(r"<!--(?=\s*liza\s*:)", re.IGNORECASE)
_CONTROL = lazy_pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def sanitize(text: str) -> str:
    """Return ``text`` without block marks, control characters and secrets.

    A terminal or a parser could act on control characters; secrets would be sent to the model's provider.
    """
    text = redact(text).replace("\r\n", "\n").replace("\r", "\n")
    return _MARK_START.sub("<!- -", _CONTROL.sub("", text))


def truncate_text(text: str, limit: int) -> str:
    """Return at most ``limit`` bytes of ``text``, cut between characters, with a note that it was cut."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    return f"{data[:limit].decode(errors='ignore').rstrip()}{TRUNCATED}"


def quote_lines(text: str, limit: int) -> str:
    """Sanitize and truncate a text, and indent it from the second line on, so that it stays one visible unit."""
    return truncate_text(sanitize(text).strip(), limit).replace("\n", "\n  ")


def quote_tail(text: str, limit: int) -> str:
    """As ``quote_lines``, for a failure and the end of its output: keep the first line, and as many of the last
    lines as fit."""
    first, *rest = sanitize(text).strip().splitlines() or [""]
    bytes_left, tail = limit - len(first.encode()), list[str]()
    for line in reversed(rest):
        bytes_left -= len(line.encode()) + 1
        if bytes_left < 0:
            break
        tail.insert(0, line)
    body = ["[…]", *tail] if len(tail) < len(rest) else tail
    return "\n  ".join([truncate_text(first, limit), *body])


def quote_line(text: str, limit: int) -> str:
    """As ``quote_lines``, in one line."""
    return truncate_text(" ".join(sanitize(text).split()), limit)


def strip_blocks(data: bytes) -> bytes:
    """Return ``data`` without its complete blocks.

    A block reaches from a begin mark at a line's start to the end mark of the same run, and includes one line end after
    it. A mark without its partner is text. The position directly after a block counts as a line's start. Git's clean
    filter implements the same rule.
    """
    return _without(data, None)


def strip_block(data: bytes, run: str) -> bytes:
    """As ``strip_blocks``, for the blocks of one run."""
    return _without(data, run.encode())


def _without(data: bytes, run: bytes | None) -> bytes:
    kept: list[bytes] = []
    copied = position = block_end = 0
    unterminated: set[bytes] = set()
    while begin := (position == block_end and _MARKED.match(data, position)) or _BEGIN.search(data, position):
        position = begin.end()
        name = begin["run"]
        # Search for a missing end mark once per run only: otherwise a text of begin marks takes quadratic time.
        if name in unterminated or len(unterminated) > _MAX_UNENDED:
            continue
        end = data.find(b"<!-- liza:end run=%s -->" % name, position)
        if end < 0:
            unterminated.add(name)
            continue
        position = block_end = _LINE_END.match(data, data.index(b"-->", end) + 3).end()  # type: ignore[union-attr]
        if run in (None, name):
            kept.append(data[copied : begin.start()])
            copied = position
    return b"".join(kept) + data[copied:]


_RUN_PATTERN = rb"(?P<run>[A-Za-z-]{0,40}[A-Za-z][A-Za-z-]{0,40}-[0-9]{1,20}\.[0-9]{1,20})"
# In a settings file the mark is in a comment.
_MARKED = lazy_pattern(rb"(?:// )?<!-- liza:begin run=%s -->" % _RUN_PATTERN)
_BEGIN = lazy_pattern(rb"^" + _MARKED.pattern, re.MULTILINE)
_LINE_END = lazy_pattern(rb"(?:\r?\n)?")
_MAX_UNENDED = 100  # unterminated blocks; the rest of such a file is not searched: it is malformed or hostile
