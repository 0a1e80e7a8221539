"""Lines of a picture: texts with tones, cut to a width in terminal cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

from liza.model.value_classes import Value
from liza.printing.columns import TONE_OF_CODE, cell_width, strip_controls, strip_controls_but_colours


class Tone(StrEnum):
    """Colour or weight of a text, by the names of ``printing.columns.paint``. A word or sign is beside each colour."""

    PLAIN = "plain"
    DIM = "dim"
    BOLD = "bold"
    RED = "red"
    GREEN = "green"
    YELLOW = "yellow"
    BLUE = "blue"
    CYAN = "cyan"


class Span(Value):
    """A text in one tone, without line breaks and control characters."""

    text: str
    tone: Tone = Tone.PLAIN


class TargetKind(StrEnum):
    """Kind of what a line is about."""

    TASK = "task"
    AGENT = "agent"
    ALARM = "alarm"
    """An alarm about neither a task nor an agent: its name is the kind, a colon, and what it is about."""
    DIFF_LINE = "diff line"
    TEXT = "text"
    FOLD = "fold"


class Target(Value):
    """What a line is about: it is chosen with the cursor, and stays chosen when the lines move. ``name``: its id."""

    kind: TargetKind
    name: str


class Line(Value):
    """A row of the picture. ``target``: None if the cursor skips it."""

    spans: tuple[Span, ...] = ()
    target: Target | None = None

    @property
    def text(self) -> str:
        """The text without tones."""
        return "".join(span.text for span in self.spans)


EMPTY: Final = Line()


class Cell(Value):
    """A cell of a row. ``width``: in terminal cells; 0: the rest of the row, for one cell of each row."""

    text: str
    width: int = 0
    tone: Tone = Tone.PLAIN
    is_right: bool = False


def clean(text: str | None) -> str:
    """Return a text of an agent or a person in one line, without characters that control a terminal."""
    if text and text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(strip_controls(text or "").split())


def cut(text: str, width: int) -> str:
    """Return at most ``width`` cells of a text; the last one is ``…`` if something is left out."""
    if text.isascii():
        return text if len(text) <= width else text[: width - 1] + "…" if width > 0 else ""
    if cell_width(text) <= width:
        return text
    kept, cells = "", 0
    for character in text[: width * 8]:  # a cell holds a letter and its combining marks
        cells += cell_width(character)
        if cells > width - 1:
            break
        kept += character
    return kept + "…" if width > 0 else ""


def pad(text: str, width: int, *, is_right: bool = False) -> str:
    """Return a text cut or filled to exactly ``width`` cells."""
    shown = cut(text, width)
    blanks = " " * (width - cell_width(shown))
    return blanks + shown if is_right else shown + blanks


def make_row(cells: Sequence[Cell], width: int, target: Target | None = None) -> Line:
    """Return cells side by side, with a blank between them, in ``width`` cells."""
    fixed = sum(cell.width for cell in cells) + len(cells) - 1
    rest = max(0, width - fixed)
    spans = []
    for number, cell in enumerate(cells):
        shown = pad(clean(cell.text), cell.width or rest, is_right=cell.is_right)
        spans.append(Span(shown + " " * (number < len(cells) - 1), cell.tone))
    line = Line(tuple(spans), target)
    return line if fixed + rest == width else cut_line(line, width)


def make_rule(title: str, width: int, target: Target | None = None) -> Line:
    """Return a heading, followed by a rule to the right edge."""
    shown = cut(f" {title} ", width)
    return Line((Span(shown, Tone.BOLD), Span("─" * (width - cell_width(shown)), Tone.DIM)), target)


def text_line(text: str, tone: Tone = Tone.PLAIN, target: Target | None = None, *, indent: str = "") -> Line:
    """Return a text as a line."""
    return Line((Span(indent + clean(text), tone),), target)


def dim_line(line: Line) -> Line:
    """Return the line without its tones: what it says is old."""
    return Line((Span(line.text, Tone.DIM),), line.target)


def cut_line(line: Line, width: int) -> Line:
    """Return the line in at most ``width`` cells."""
    if cell_width(line.text) <= width:
        return line
    spans: list[Span] = []
    left = width
    for span in line.spans:
        spans.append(Span(cut(span.text, left), span.tone))
        left -= cell_width(spans[-1].text)
        if left <= 0:
            break
    return Line(tuple(spans), line.target)


_PAINTED: Final = re.compile(r"\x1b\[([0-9;]*)m")


def painted_lines(text: str) -> Iterator[Line]:
    """Yield the lines of a text that was coloured by ``printing.columns.paint``."""
    tone = Tone.PLAIN
    for row in strip_controls_but_colours(text).expandtabs(4).split("\n"):
        spans: list[Span] = []
        # Texts and codes alternate.
        for number, part in enumerate(_PAINTED.split(row)):
            if number % 2:
                tone = Tone(TONE_OF_CODE.get(part, "plain"))
            elif part:
                spans.append(Span(part, tone))
        yield Line(tuple(spans))


def wrap_line(line: Line, width: int) -> Iterator[Line]:
    """Yield the line in parts of at most ``width`` cells, broken anywhere: nothing of it is left out."""
    spans: list[Span] = []
    left = width
    for span in line.spans:
        rest = span.text
        while rest:
            part = _fitting(rest, left)
            spans.append(Span(part, span.tone)) if part else None
            rest = rest[len(part) :]
            left -= cell_width(part)
            if rest:
                yield Line(tuple(spans), line.target)
                spans, left = [], width
    yield Line(tuple(spans), line.target)


def _fitting(text: str, width: int) -> str:
    """Return the beginning of a text that fits into ``width`` cells; at least a character if the row is empty."""
    if text.isascii():
        return text[:width]
    cells = 0
    for number, character in enumerate(text):
        cells += cell_width(character)
        if cells > width:
            return text[:number]
    return text


def fit_height(lines: Iterable[Line], height: int) -> tuple[Line, ...]:
    """Return exactly ``height`` lines."""
    kept = tuple(lines)[:height]
    return kept + (EMPTY,) * (height - len(kept))
