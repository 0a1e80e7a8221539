"""The marks of a brief in a file, and the file without its briefs. Pure; without imports, for git's clean filter.

A block is found by its key, a random word of its run. Text that shows marks has another key or none: it is the
project's own, wherever it is.
"""

from __future__ import annotations

KEY_ATTRIBUTE = "liza-key"
"""Attribute that names the key of a run beside the filter, in ``.git/info/attributes``."""
KEY_LENGTH = 16
_MAX_MARK = 200  # bytes of a mark
_BLANKS = b" \t"


def begin_mark(run: str, key: str) -> str:
    """Return the line that begins the block of ``run`` in a file."""
    return f"<!-- liza:begin run={run} key={key} -->"


def end_mark(run: str, key: str) -> str:
    """Return the line that ends the block of ``run`` in a file."""
    return f"<!-- liza:end run={run} key={key} -->"


def find_keys(attributes: bytes) -> tuple[str, ...]:
    """Return the keys of the runs that ``.git/info/attributes`` binds."""
    words = attributes.split()
    name = f"{KEY_ATTRIBUTE}=".encode()
    return tuple({word[len(name) :].decode("ascii", "replace"): None for word in words if word.startswith(name)})


def strip_blocks(text: bytes, keys: tuple[str, ...]) -> bytes:
    """Return ``text`` without the complete blocks of ``keys``. A mark without its partner is text and stays.

    A block includes the indentation of its marks, the line end after it, and one blank line after that: the one that
    separates it from the text below. Formatters may have changed any of them.
    """
    for key in keys:
        # An agent can write the files with the keys. A short key would be found in other texts.
        text = text if len(key) != KEY_LENGTH else _strip(text, key.encode())
    return text


def _strip(text: bytes, key: bytes) -> bytes:
    kept: list[bytes] = []
    position = 0
    while begin := _find_mark(text, b"liza:begin", key, position):
        end = _find_mark(text, b"liza:end", key, begin[1])
        if end is None:
            break
        kept.append(text[position : begin[0]])
        position = _skip_blank_line(text, _skip_blank_line(text, end[1]))
    return b"".join(kept) + text[position:] if kept else text


def _find_mark(text: bytes, word: bytes, key: bytes, position: int) -> tuple[int, int] | None:
    """Return where the first mark with ``word`` and ``key`` begins, with its indentation, and where it ends."""
    search_from = position
    while (at := text.find(b" key=" + key, search_from)) >= 0:
        search_from = at + 1
        start = text.rfind(b"<!--", max(position, at - _MAX_MARK), at)
        end = text.find(b"-->", at, at + _MAX_MARK)
        if start >= 0 and end >= 0 and word in text[start:at] and b"\n" not in text[start:end]:
            return _line_start(text, position, start), end + 3
    return None


def _line_start(text: bytes, position: int, mark: int) -> int:
    """Return the start of the line of a mark if only blanks are before the mark, or the ``//`` of a settings file."""
    start = mark
    while start > position and text[start - 1] in b" \t/":
        start -= 1
    return start if start == 0 or text[start - 1 : start] == b"\n" else mark


def _skip_blank_line(text: bytes, position: int) -> int:
    """Return the position after the line end at ``position``, if only blanks are before it."""
    end = position
    while text[end : end + 1] and text[end] in _BLANKS:
        end += 1
    if text.startswith(b"\r\n", end):
        return end + 2
    return end + 1 if text.startswith(b"\n", end) else position
