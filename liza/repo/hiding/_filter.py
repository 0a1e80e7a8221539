"""The clean filter: takes complete blocks out of an instructions file on its way into git. Standard library only.

Run by git as ``python -I -S _filter.py`` in every status of a file that it is bound to, so nothing is imported that
Python did not load by itself.
"""

from __future__ import annotations

import sys

BEGIN = b"<!-- liza:begin run="
END = b"<!-- liza:end run="
CLOSE = b" -->"
COMMENT_PREFIX = b"// "  # what may stand before a begin mark: in a settings file it is in a comment
_MAX_RUN_NAME = 64  # bytes of a run's name
_MAX_UNENDED = 100  # runs whose block is not ended: a file with more is somebody's game, and stays as it is


def strip_blocks(text: bytes) -> bytes:
    """``text`` without its complete blocks, each with the one line end that follows it.

    A block runs from ``<!-- liza:begin run=X -->`` at the start of a line to the first ``<!-- liza:end run=X -->``
    with the same X. A mark without its partner is text, and stays. Directly behind a block a line starts, too: so
    that taking out twice is taking out once.
    """
    kept: list[bytes] = []
    done = look = 0
    unended: set[bytes] = set()
    while True:
        start = text.find(BEGIN, look)
        if start < 0:
            return b"".join(kept) + text[done:]
        line = (
            start - len(COMMENT_PREFIX)
            if text[max(done, start - len(COMMENT_PREFIX)) : start] == COMMENT_PREFIX
            else start
        )
        begins = line == done or text[line - 1 : line] == b"\n"
        end = _find_block_end(text, start, unended) if begins else None
        if end is None:
            look = start + 1
            continue
        kept.append(text[done:line])
        done = look = end


def _find_block_end(text: bytes, start: int, unended: set[bytes]) -> int | None:
    """Where the text goes on after the block that begins at ``start``; None where no complete block does.

    ``unended`` are runs whose mark is not in the rest: a text of nothing but begin marks is not read once for each.
    """
    name_at = start + len(BEGIN)
    name_end = text.find(CLOSE, name_at, name_at + _MAX_RUN_NAME)
    if name_end < 0:
        return None
    run = text[name_at:name_end]
    if not _is_run_name(run) or run in unended or len(unended) > _MAX_UNENDED:
        return None
    mark = END + run + CLOSE
    found = text.find(mark, name_end)
    if found < 0:
        unended.add(run)
        return None
    end = found + len(mark)
    if text.startswith(b"\r\n", end):
        return end + 2
    return end + 1 if text.startswith(b"\n", end) else end


def _is_run_name(name: bytes) -> bool:
    """``coder-1.7``: so that a document about the marks keeps its examples."""
    agent, dot, number = name.rpartition(b".")
    role, dash, which = agent.rpartition(b"-")
    return bool(dot and dash) and number.isdigit() and which.isdigit() and role.replace(b"-", b"").isalpha()


if __name__ == "__main__":
    sys.stdout.buffer.write(strip_blocks(sys.stdin.buffer.read()))
