"""Other people's text inside a brief: short enough, plain, and unable to end or begin a block. Pure."""

from __future__ import annotations

import re

BEGIN = "<!-- liza:begin run={run} -->"
END = "<!-- liza:end run={run} -->"
_MARK = re.compile(r"<!--(?=\s*liza\s*:)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def defused(text: str) -> str:
    """``text`` without marks of a block and without characters that a terminal or a parser takes as orders."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _MARK.sub("<!- -", _CONTROL.sub("", text))


def cut(text: str, limit: int, where: str) -> str:
    """At most ``limit`` bytes of ``text``, at a whole character; ``where`` says where the rest is."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    return f"{data[:limit].decode(errors='ignore').rstrip()} […] cut here; all of it: {where}"


def lines(text: str, limit: int, where: str) -> str:
    """Defused, cut, and indented from the second line on, so that it stays visibly one thing."""
    return cut(defused(text).strip(), limit, where).replace("\n", "\n  ")


def line(text: str, limit: int, where: str) -> str:
    """As ``lines``, in one line."""
    return cut(" ".join(defused(text).split()), limit, where)


def strip_blocks(data: bytes) -> bytes:
    """``data`` without its complete blocks: from a begin mark at a line's start through the end mark of the same run and
    the one line end after it. A mark without its partner is text, and stays. Git's clean filter has the same rule."""
    return _BLOCK.sub(b"", data)


def strip_block(data: bytes, run: str) -> bytes:
    """As ``strip_blocks``, for the blocks of one run."""
    return _BLOCK.sub(lambda found: b"" if found["run"] == run.encode() else found[0], data)


_BLOCK = re.compile(
    rb"^<!-- liza:begin run=(?P<run>[A-Za-z-]*[A-Za-z][A-Za-z-]*-[0-9]+\.[0-9]+) -->.*?"
    rb"<!-- liza:end run=(?P=run) -->(?:\r?\n)?",
    re.MULTILINE | re.DOTALL,
)
