"""Comments of a rejection on lines of the reviewed commit: parse, check and format them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from liza.model.errors import UsageError
from liza.model.model import LineComment
from liza.text.counts import count_noun

MAX_COMMENTS: Final = 50
"""Maximum number of comments of one rejection."""
MAX_COMMENT_TEXT: Final = 1000  # characters
MAX_LINE: Final = 999_999_999
MAX_QUOTED_LINE: Final = 200  # characters of the quoted line; the rest is cut
MAX_FILE: Final = 4 << 20  # bytes of a file whose line can be quoted
_EXAMPLE: Final = 'liza verdict reject "…" --comment src/tax.py:12 "rounds down"'


def parse_location(text: str) -> tuple[str, int]:
    """Return path and line of ``FILE:LINE``; lines count from 1. Raises UsageError."""
    path, _, number = text.strip().rpartition(":")
    path = path.removeprefix("./")
    if not path or not number.isascii() or not number.isdigit() or len(number) > 9 or not 1 <= int(number) <= MAX_LINE:
        raise UsageError(f"{text!r} is not a line of a file: expected FILE:LINE, such as src/tax.py:12", _EXAMPLE)
    return path, int(number)


def check_comments(comments: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError if there are too many comments, or if one has no text, a long one or no location."""
    if len(comments) > MAX_COMMENTS:
        raise UsageError(f"there are {len(comments)} comments; a rejection has at most {MAX_COMMENTS}", _EXAMPLE)
    for location, text in comments:
        parse_location(location)
        if not text.strip():
            raise UsageError(f"the comment on {location} has no text", _EXAMPLE)
        if len(text) > MAX_COMMENT_TEXT:
            message = f"the comment on {location} has {len(text)} characters; it can have {MAX_COMMENT_TEXT}"
            raise UsageError(message, _EXAMPLE)


def quote_comment(location: str, text: str, commit: str, data: bytes | None) -> LineComment:
    """Return the comment with the line that it is about. ``data``: the file at ``commit``; None if it is not there.

    Raises UsageError if the commit does not have the file or the line, or if the file is not a text.
    """
    path, line = parse_location(location)
    hint = f"git show --stat {commit[:12]}"
    if data is None:
        raise UsageError(f"{path} is not a file of the reviewed commit {commit[:12]}", hint)
    if b"\0" in data:
        raise UsageError(f"{path} is not a text at {commit[:12]}: it has no line {line}", hint)
    lines = data.decode(errors="replace").split("\n")
    count = len(lines) - (lines[-1] == "")
    if line > count:
        raise UsageError(
            f"{path} has {count_noun(count, 'line')} at the reviewed commit {commit[:12]}, and no line {line}", hint
        )
    quote = lines[line - 1].rstrip()
    cut = quote if len(quote) <= MAX_QUOTED_LINE else f"{quote[:MAX_QUOTED_LINE]}…"
    return LineComment(path=path, line=line, text=text.strip(), quote=cut, commit=commit)


def format_comment(comment: LineComment) -> str:
    """Return a comment as text: the location, the text, and the quoted line below them."""
    quote = f"\n> {comment.quote.strip()}" if comment.quote.strip() else ""
    return f"{comment.path}:{comment.line}: {comment.text}{quote}"
