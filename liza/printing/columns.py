"""Columns, line breaks, colours, and values as text for a terminal. Pure except for the time zone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from liza.text.undecoded import escape_undecoded

COLOURS: Final[Mapping[str, int]] = {"dim": 243, "red": 161, "green": 28, "yellow": 130, "blue": 27, "cyan": 30}
"""Numbers of the 256 colours of a terminal: each has a contrast of at least 4 on white and on black. The first 16 are
not used: each terminal paints them as it likes, and yellow and cyan are hardly read on white."""
_COLOUR_CODES: Final = {"bold": "1", **{name: f"38;5;{number}" for name, number in COLOURS.items()}}
TONE_OF_CODE: Final[Mapping[str, str]] = {code: name for name, code in _COLOUR_CODES.items()}
"""Name of each colour and weight, by the code that ``paint`` writes for it."""
_WIDE_SINCE_UNICODE_16: Final = re.compile(
    "[\u2630-\u2637\u268a-\u268f\u4dc0-\u4dff\U0001d300-\U0001d356\U0001d360-\U0001d376]"
)
"""Characters that terminals draw in two cells, which the tables of an older Python do not know yet."""
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_PAINT_CODES: Final = "|".join(("0", *_COLOUR_CODES.values()))
_CONTROL_CHARACTERS: Final = r"\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_ESCAPE_BODY: Final = r"(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\))"
_SEQUENCES: Final = re.compile(rf"\x1b{_ESCAPE_BODY}")
_FOREIGN_SEQUENCES: Final = re.compile(rf"\x1b(?!\[(?:{_PAINT_CODES})m){_ESCAPE_BODY}")
_ANY_CONTROL: Final = re.compile(rf"[{_CONTROL_CHARACTERS}\x1b]")
_CONTROLS: Final = re.compile(rf"[{_CONTROL_CHARACTERS}]|\x1b(?!\[(?:{_PAINT_CODES})m)")
"""Control characters of a terminal and marks that change the text direction, except the colours of ``paint``."""


def paint(text: str, colour: str, wanted: bool) -> str:
    """Return the text in a colour, or unchanged if ``wanted`` is false."""
    code = _COLOUR_CODES.get(colour)
    return f"\x1b[{code}m{text}\x1b[0m" if wanted and code and text else text


def cell_width(text: str) -> int:
    """Return the number of terminal cells of a text: escape sequences none, wide characters two."""
    plain = _ESCAPES.sub("", text)
    if plain.isascii():
        return len(plain)
    return sum(map(_letter_width, plain))


@lru_cache(maxsize=4096)
def _letter_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    is_wide = unicodedata.east_asian_width(character) in "WF" or _WIDE_SINCE_UNICODE_16.match(character)
    return 2 if is_wide else 1


def count_rows(line: str, columns: int) -> int:
    """Return the number of rows that a line takes on a terminal of that width."""
    return max(1, -(-cell_width(line) // columns))


def fit_rows(lines: Sequence[str], columns: int, rows: int) -> list[str]:
    """Return as many of the first lines as fit into the rows; the last one says how many are left out."""
    if sum(count_rows(line, columns) for line in lines) <= rows:
        return list(lines)
    fitting: list[str] = []
    left = rows - 1
    for line in lines:
        left -= count_rows(line, columns)
        if left < 0:
            break
        fitting.append(line)
    return [*fitting, f"… {len(lines) - len(fitting)} more lines: liza status"[: max(1, columns - 1)]]


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns with two spaces between them; a column without any text is left out."""
    if not rows:
        return ""
    columns = [column for column in range(len(rows[0])) if any(row[column] for row in rows)]
    widths = [max(cell_width(row[column]) for row in rows) for column in columns]
    lines = []
    for row in rows:
        cells = [
            row[column] + " " * (width - cell_width(row[column])) for column, width in zip(columns, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def wrap_text(text: str, most: int, hang: int | None = None) -> str:
    """Break the text into lines of at most ``most`` cells, only between words.

    Continuation lines are indented by ``hang``, or to the start of the last column in the left half.

    Commands are not broken, so that they can be copied: lines that begin with four blanks or ``next:``, and the text
    after the last ``: liza`` or ``: git`` of a line, which gets a line of its own.
    """
    return "\n".join(part for line in text.split("\n") for part in _wrap_line(line, most, hang))


_COMMAND_LINE: Final = re.compile(r" {4}\S|\s*next: ")
_TRAILING_COMMAND: Final = re.compile(r".*: ((?:liza|git) .+)$")
_COLUMN_GAP: Final = re.compile(r"(?<=\S) {2,}(?=\S)")


def _wrap_line(line: str, most: int, hang: int | None) -> list[str]:
    plain = _ESCAPES.sub("", line)
    if cell_width(line) <= most or _COMMAND_LINE.match(plain):
        return [line]
    columns = [gap.end() for gap in _COLUMN_GAP.finditer(plain) if gap.end() <= most // 2]
    default_indent = columns[-1] if columns else len(plain) - len(plain.lstrip()) + 2
    indent = " " * min(default_indent if hang is None else hang, most // 2)
    command = _TRAILING_COMMAND.match(line)
    lines, row, cells = [], "", 0
    for word in re.findall(r" *[^ ]+", line[: command.start(1)] if command else line):
        width = cell_width(word)
        if row and cells + width > most and _ESCAPES.sub("", row).strip():
            lines.append(row)
            row, cells = indent + word.lstrip(), len(indent) + width - (len(word) - len(word.lstrip()))
        else:
            row, cells = row + word, cells + width
    return [*lines, row.rstrip() if command else row, *([indent + command[1]] if command else [])]


def escape_json(text: str) -> str:
    """Escape control characters in JSON text; the values do not change."""
    return _ANY_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def strip_controls(text: str) -> str:
    """Remove terminal control sequences: text of agents is shown, and must not control the terminal."""
    return _ANY_CONTROL.sub("�", _SEQUENCES.sub("", escape_undecoded(text.replace("\r\n", "\n"))))


def replace_controls(text: str) -> str:
    """Replace each control character of a line, and remove nothing: a reviewer has to see all of it."""
    return _ANY_CONTROL.sub("�", escape_undecoded(text))


def strip_controls_but_colours(text: str) -> str:
    """As ``strip_controls``, but keep the colours of ``paint``."""
    return _CONTROLS.sub("�", _FOREIGN_SEQUENCES.sub("", escape_undecoded(text.replace("\r\n", "\n"))))


_LONG_PATH = re.compile(r"/\S*/([^/\s]+)")
MAX_PROGRAM_LENGTH = 32  # characters: a longer program is shown with shortened paths


def format_fields(fields: Mapping[str, Any]) -> str:
    """Return one line per name and value."""
    return align_columns([[name, format_value(value)] for name, value in fields.items()])


def format_value(value: Any) -> str:
    """Return a value in one line; ``-`` for none."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return format_local_time(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_value(item)}" for name, item in value.items()) or "-"
    if isinstance(value, list | tuple | frozenset):
        return ", ".join(format_value(item) for item in value) or "-"
    return str(value)


def format_local_time(when: datetime | str) -> str:
    """Return a time in the local time zone. Return other texts, and times outside of the years 1 to 9999, unchanged."""
    try:
        time = datetime.fromisoformat(when) if isinstance(when, str) else when
        return f"{time.astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):
        return str(when)


def format_day(when: datetime, now: datetime) -> str:
    """Return the local day of a time: ``today``, ``yesterday``, ``Fri 20 Nov``, ``Thu 20 Nov 2025``."""
    local, today = when.astimezone(), now.astimezone()
    days = (today.date() - local.date()).days
    if days in (0, 1):
        return ("today", "yesterday")[days]
    return f"{local:%a} {local.day} {local:%b}" + ("" if local.year == today.year else f" {local.year}")


def format_clock(when: datetime) -> str:
    """Return a time of day in the local time zone, with the date if that is another day."""
    local = when.astimezone()
    return f"{local:%H:%M}" if local.date() == datetime.now(local.tzinfo).date() else f"{local:%Y-%m-%d %H:%M}"


def shorten_line(text: str | None, most: int) -> str:
    """Return the text in one line of at most ``most`` characters."""
    line = " ".join((text or "").split())
    return line if len(line) <= most else line[: most - 1] + "…"


def shorten_program(spec: str | None) -> str:
    """Return the program of an agent; long paths in it are shortened to their last part."""
    text = spec or ""
    return text if len(text) <= MAX_PROGRAM_LENGTH else _LONG_PATH.sub(r"…/\1", text)
