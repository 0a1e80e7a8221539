"""Other people's text inside a brief: short enough, plain, and unable to end or begin a block. Pure."""

from __future__ import annotations

import re

from liza.rules.secrets import redacted

BEGIN = "<!-- liza:begin run={run} -->"
END = "<!-- liza:end run={run} -->"
CUT = " […] (cut: see MORE)"
_MARK = re.compile(r"<!--(?=\s*liza\s*:)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def defused(text: str) -> str:
    """``text`` without marks of a block, without characters that a terminal or a parser takes as orders, and without
    secrets: what stands in a brief is sent to whoever runs the model."""
    text = redacted(text).replace("\r\n", "\n").replace("\r", "\n")
    return _MARK.sub("<!- -", _CONTROL.sub("", text))


def cut(text: str, limit: int) -> str:
    """At most ``limit`` bytes of ``text``, at a whole character, and a word that there was more."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    return f"{data[:limit].decode(errors='ignore').rstrip()}{CUT}"


def lines(text: str, limit: int) -> str:
    """Defused, cut, and indented from the second line on, so that it stays visibly one thing."""
    return cut(defused(text).strip(), limit).replace("\n", "\n  ")


def line(text: str, limit: int) -> str:
    """As ``lines``, in one line."""
    return cut(" ".join(defused(text).split()), limit)


def strip_blocks(data: bytes) -> bytes:
    """``data`` without its complete blocks: from a begin mark at a line's start through the end mark of the same run,
    with the one line end after it. A mark without its partner is text. Git's clean filter has the same rule."""
    return _BLOCK.sub(b"", data)


def strip_block(data: bytes, run: str) -> bytes:
    """As ``strip_blocks``, for the blocks of one run."""
    return _BLOCK.sub(lambda found: b"" if found["run"] == run.encode() else found[0], data)


_BLOCK = re.compile(
    rb"^<!-- liza:begin run=(?P<run>[A-Za-z-]*[A-Za-z][A-Za-z-]*-[0-9]+\.[0-9]+) -->.*?"
    rb"<!-- liza:end run=(?P=run) -->(?:\r?\n)?",
    re.MULTILINE | re.DOTALL,
)
