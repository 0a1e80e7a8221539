"""Other people's text inside a brief: short enough, plain, and unable to end or begin a block. Pure."""

from __future__ import annotations

import re

from liza.rules.redaction import redact

MESSAGE_PREFIX = "MESSAGE from "
"""How each message to an agent begins."""
BLOCK_BEGIN = "<!-- liza:begin run={run} -->"
BLOCK_END = "<!-- liza:end run={run} -->"
TRUNCATED = " […] (cut: see MORE)"
_MARK_START = re.compile(r"<!--(?=\s*liza\s*:)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def sanitize(text: str) -> str:
    """``text`` without marks of a block, without characters that a terminal or a parser takes as orders, and without
    secrets: what stands in a brief is sent to whoever runs the model."""
    text = redact(text).replace("\r\n", "\n").replace("\r", "\n")
    return _MARK_START.sub("<!- -", _CONTROL.sub("", text))


def truncate_text(text: str, limit: int) -> str:
    """At most ``limit`` bytes of ``text``, at a whole character, and a word that there was more."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    return f"{data[:limit].decode(errors='ignore').rstrip()}{TRUNCATED}"


def quote_lines(text: str, limit: int) -> str:
    """Defused, cut, and indented from the second line on, so that it stays visibly one thing."""
    return truncate_text(sanitize(text).strip(), limit).replace("\n", "\n  ")


def quote_tail(text: str, limit: int) -> str:
    """As ``lines``, of a line that says what failed and the end of its output: that line, and as many of the last ones
    as there is room for."""
    first, *rest = sanitize(text).strip().splitlines() or [""]
    room, kept = limit - len(first.encode()), list[str]()
    for row in reversed(rest):
        room -= len(row.encode()) + 1
        if room < 0:
            break
        kept.insert(0, row)
    told = ["[…]", *kept] if len(kept) < len(rest) else kept
    return "\n  ".join([truncate_text(first, limit), *told])


def quote_line(text: str, limit: int) -> str:
    """As ``lines``, in one line."""
    return truncate_text(" ".join(sanitize(text).split()), limit)


def strip_blocks(data: bytes) -> bytes:
    """``data`` without its complete blocks: from a begin mark at a line's start through the end mark of the same run,
    with the one line end after it. A mark without its partner is text. Directly behind a block a line starts, too.
    Git's clean filter has the same rule."""
    return _without(data, None)


def strip_block(data: bytes, run: str) -> bytes:
    """As ``strip_blocks``, for the blocks of one run."""
    return _without(data, run.encode())


def _without(data: bytes, run: bytes | None) -> bytes:
    kept: list[bytes] = []
    done = look = behind = 0
    unended: set[bytes] = set()
    while begin := (look == behind and _MARKED.match(data, look)) or _BEGIN.search(data, look):
        look = begin.end()
        name = begin["run"]
        # A text of nothing but begin marks is not read once for each.
        if name in unended or len(unended) > _MAX_UNENDED:
            continue
        end = data.find(b"<!-- liza:end run=%s -->" % name, look)
        if end < 0:
            unended.add(name)
            continue
        look = behind = _LINE_END.match(data, data.index(b"-->", end) + 3).end()  # type: ignore[union-attr]
        if run in (None, name):
            kept.append(data[done : begin.start()])
            done = look
    return b"".join(kept) + data[done:]


_RUN_PATTERN = rb"(?P<run>[A-Za-z-]{0,40}[A-Za-z][A-Za-z-]{0,40}-[0-9]{1,20}\.[0-9]{1,20})"
# In a settings file the mark stands in a comment.
_MARKED = re.compile(rb"(?:// )?<!-- liza:begin run=%s -->" % _RUN_PATTERN)
_BEGIN = re.compile(rb"^" + _MARKED.pattern, re.MULTILINE)
_LINE_END = re.compile(rb"(?:\r?\n)?")
_MAX_UNENDED = 100  # runs whose block is not ended: a file with more is somebody's game, and stays as it is
