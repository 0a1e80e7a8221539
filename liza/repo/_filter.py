"""The clean filter: takes complete blocks out of an instructions file on its way into git. Standard library only.

Run by git as ``python -I -S _filter.py`` in every status of a file that it is bound to, so nothing is imported that
Python did not load by itself.
"""

from __future__ import annotations

import sys

BEGIN = b"<!-- liza:begin run="
END = b"<!-- liza:end run="
CLOSE = b" -->"


def strip_blocks(text: bytes) -> bytes:
    """``text`` without its complete blocks, each with the one line end that follows it.

    A block runs from ``<!-- liza:begin run=X -->`` at the start of a line to the first ``<!-- liza:end run=X -->``
    with the same X. A mark without its partner is text, and stays.
    """
    kept: list[bytes] = []
    done = look = 0
    while True:
        start = text.find(BEGIN, look)
        if start < 0:
            return b"".join(kept) + text[done:]
        end = _end_of_block(text, start)
        if end is None:
            look = start + 1
            continue
        kept.append(text[done:start])
        done = look = end


def _end_of_block(text: bytes, start: int) -> int | None:
    """Where the text goes on after the block that begins at ``start``; None where no complete block does."""
    name_at = start + len(BEGIN)
    name_end = text.find(CLOSE, name_at)
    if name_end < 0 or (start > 0 and text[start - 1 : start] != b"\n"):
        return None
    run = text[name_at:name_end]
    if not _is_run(run):
        return None
    mark = END + run + CLOSE
    found = text.find(mark, name_end)
    if found < 0:
        return None
    end = found + len(mark)
    if text.startswith(b"\r\n", end):
        return end + 2
    return end + 1 if text.startswith(b"\n", end) else end


def _is_run(name: bytes) -> bool:
    """``coder-1.7``: so that a document about the marks keeps its examples."""
    agent, dot, number = name.rpartition(b".")
    role, dash, which = agent.rpartition(b"-")
    return bool(dot and dash) and number.isdigit() and which.isdigit() and role.replace(b"-", b"").isalpha()


if __name__ == "__main__":
    sys.stdout.buffer.write(strip_blocks(sys.stdin.buffer.read()))
