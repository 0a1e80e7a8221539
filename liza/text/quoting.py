"""Text of other authors inside a brief: limited, without control characters, and unable to begin or end a block.
Pure."""

from __future__ import annotations

import re
from codecs import BOM_UTF8

from liza.text.brief_marks import begin_mark, end_mark
from liza.text.redaction import redact

MESSAGE_PREFIX = "MESSAGE from "
"""The start of each message to an agent."""
NOTE_PREFIX = "NOTE from the person: "
"""The start of each note of the board in a brief."""
BLOCK_BEGIN = "<!-- liza:begin run={run} -->"
BLOCK_END = "<!-- liza:end run={run} -->"
TRUNCATED = " […] (cut: see MORE)"
_MARK_START = re.compile(r"<!--(?=\s*liza\s*:)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


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


def render_block(block: str, run: str, key: str, text: bytes) -> bytes:
    """Return a file with the block above its ``text``, in a form that changes no check of the file.

    Formatters and linters of Markdown accept a fenced text in a paragraph of its own. Line ends are those of ``text``,
    and its byte order mark stays first.
    """
    lines = [line.expandtabs(4).rstrip() for line in block.split("\n")[1:-2]]
    # Formatters shorten a longer fence.
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in re.findall("`+", block)), default=0))
    parts = (
        begin_mark(run, key),
        "<!-- markdownlint-capture --><!-- markdownlint-disable --><!-- cspell:disable -->",
        "\n".join((f"{fence}text", *lines, fence)),
        "<!-- cspell:enable --><!-- markdownlint-restore -->",
        end_mark(run, key),
    )
    order_mark = BOM_UTF8 if text.startswith(BOM_UTF8) else b""
    text = text.removeprefix(order_mark)
    whole = "\n\n".join(parts) + ("\n\n" if text else "\n")
    line_end = "\r\n" if text.partition(b"\n")[0].endswith(b"\r") else "\n"
    return order_mark + whole.replace("\n", line_end).encode() + text
