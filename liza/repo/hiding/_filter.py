"""Clean filter: removes complete blocks from an instructions file before git stores it. Standard library only.

git runs it as ``python -I -S _filter.py`` in every status of a bound file, so it imports only modules that Python has
loaded already.
"""

from __future__ import annotations

import sys

BEGIN = b"<!-- liza:begin run="
END = b"<!-- liza:end run="
CLOSE = b" -->"
COMMENT_PREFIX = b"// "  # may precede a begin mark: in a settings file the mark is in a comment
_MAX_RUN_NAME = 64  # bytes of a run's name
_MAX_UNENDED = 100  # unterminated blocks; with more, the input is malformed or hostile and stays as it is


def strip_blocks(text: bytes) -> bytes:
    """Return ``text`` without its complete blocks, each with the newline that follows it.

    A block runs from ``<!-- liza:begin run=X -->`` at the start of a line to the first ``<!-- liza:end run=X -->`` with
    the same X. A mark without its partner is text and stays. The position after a block counts as the start of a line,
    so the function is idempotent.
    """
    kept: list[bytes] = []
    copied_to = search_from = 0
    unended: set[bytes] = set()
    while True:
        start = text.find(BEGIN, search_from)
        if start < 0:
            return b"".join(kept) + text[copied_to:]
        line_start = (
            start - len(COMMENT_PREFIX)
            if text[max(copied_to, start - len(COMMENT_PREFIX)) : start] == COMMENT_PREFIX
            else start
        )
        at_line_start = line_start == copied_to or text[line_start - 1 : line_start] == b"\n"
        end = _find_block_end(text, start, unended) if at_line_start else None
        if end is None:
            search_from = start + 1
            continue
        kept.append(text[copied_to:line_start])
        copied_to = search_from = end


def _find_block_end(text: bytes, start: int, unended: set[bytes]) -> int | None:
    """Return the position after the block that begins at ``start``, or None if no complete block does.

    ``unended`` collects runs without an end mark in the rest, so that a text of begin marks is not searched once for
    each.
    """
    name_at = start + len(BEGIN)
    name_end = text.find(CLOSE, name_at, name_at + _MAX_RUN_NAME)
    if name_end < 0:
        return None
    run = text[name_at:name_end]
    if not _is_run_name(run) or run in unended or len(unended) > _MAX_UNENDED:
        return None
    mark = END + run + CLOSE
    mark_at = text.find(mark, name_end)
    if mark_at < 0:
        unended.add(run)
        return None
    end = mark_at + len(mark)
    if text.startswith(b"\r\n", end):
        return end + 2
    return end + 1 if text.startswith(b"\n", end) else end


def _is_run_name(name: bytes) -> bool:
    """Return whether a name has the form ``coder-1.7``. Examples in documents have other names and stay."""
    agent, dot, number = name.rpartition(b".")
    role, dash, which = agent.rpartition(b"-")
    return bool(dot and dash) and number.isdigit() and which.isdigit() and role.replace(b"-", b"").isalpha()


if __name__ == "__main__":
    sys.stdout.buffer.write(strip_blocks(sys.stdin.buffer.read()))
