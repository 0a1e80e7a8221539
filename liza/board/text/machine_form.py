"""Parse the YAML that Liza writes, without ruamel, whose import takes 13 ms of CPU time.

``list_events`` returns the events that the parser of ruamel returns for the same text, or raises NotMachineForm: its
grammar is that of `yaml_lines` with comments, and it refuses everything else. The classes of the events have the names
and the attributes of those of ruamel. Marks are exact where an outline uses them: for scalars, for the starts of all
collections, and for the ends of flow collections.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

_KEY: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_-]{0,99}|"[A-Za-z0-9_-]{1,99}"):(?: |$)')
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PLAIN: Final = re.compile(r"-?[A-Za-z0-9./(][A-Za-z0-9_.,/()+-]*(?: [A-Za-z0-9_.,/()+-]+)*")
_FLOW_PLAIN: Final = re.compile(r"-?[A-Za-z0-9.][A-Za-z0-9_./+-]*")
_ESCAPE: Final = re.compile(r'\\(?:([nrt"\\])|u([0-9a-f]{4})|U([0-9a-f]{8})|.)')
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_CLOSING: Final = {"[": "]", "{": "}"}


class NotMachineForm(Exception):
    """The text is not certain to be in the form in which Liza writes."""


class Mark(msgspec.Struct, frozen=True):
    """A position: line and column from 0."""

    line: int
    column: int


class _Event(msgspec.Struct):
    start_mark: Mark
    end_mark: Mark
    anchor: None = None
    flow_style: bool = False
    explicit: bool = False


class StreamStartEvent(_Event):
    """The start of the text."""


class StreamEndEvent(_Event):
    """The end of the text."""


class DocumentStartEvent(_Event):
    """The start of the only document."""


class DocumentEndEvent(_Event):
    """The end of the only document."""


class MappingStartEvent(_Event):
    """The start of a mapping."""


class MappingEndEvent(_Event):
    """The end of a mapping."""


class SequenceStartEvent(_Event):
    """The start of a sequence."""


class SequenceEndEvent(_Event):
    """The end of a sequence."""


class AliasEvent(_Event):
    """An alias. Liza writes none."""


class ScalarEvent(_Event):
    """A key or a value. ``implicit``: whether a plain, and whether a quoted scalar has no tag."""

    value: str = ""
    style: str | None = None
    implicit: tuple[bool, bool] = (True, False)


def list_events(text: str) -> list[Any]:
    """Return the events of a text. Raises NotMachineForm."""
    if not text.endswith("\n") or not text.replace("\n", "").isprintable():
        raise NotMachineForm
    return _FormReader(text[:-1].split("\n")).read()


class _FormReader:
    """Reads lines from the top; ``_open`` has the columns of the open block collections, and whether each is a list."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._number = 0
        self._events: list[Any] = []
        self._open: list[tuple[int, bool]] = []
        self._awaited: Mark | None = Mark(0, 0)
        """Where an empty value would be, if the last key has no value yet; at first the text itself is awaited."""

    def read(self) -> list[Any]:
        start = Mark(0, 0)
        self._events += (StreamStartEvent(start, start), DocumentStartEvent(start, start))
        while self._number < len(self._lines):
            line = self._lines[self._number]
            bare = line.lstrip(" ")
            if bare and not bare.startswith("#"):
                self._read_line(line, len(line) - len(bare))
            self._number += 1
        if not self._open:
            raise NotMachineForm
        self._close_above(-1)
        end = Mark(self._number, 0)
        self._events += (DocumentEndEvent(end, end), StreamEndEvent(end, end))
        return self._events

    def _read_line(self, line: str, column: int) -> None:
        if self._open and column <= self._open[-1][0]:
            self._close_above(column)
            if not self._open or self._open[-1][0] != column:
                raise NotMachineForm
        elif self._awaited is None:
            raise NotMachineForm
        is_item = line.startswith("- ", column)
        self._open_collection(column, is_item)
        if is_item:
            column += 2
            if _KEY.match(line, column):
                self._awaited = Mark(self._number, column)
                self._open_collection(column, is_list=False)
            else:
                self._read_value(line, column)
                return
        self._read_pair(line, column)

    def _open_collection(self, column: int, is_list: bool) -> None:
        """Open a collection as the awaited value; otherwise the line continues the collection of this column."""
        if self._awaited is None:
            if self._open[-1] != (column, is_list):
                raise NotMachineForm
            return
        mark = Mark(self._number, column)
        self._events.append(SequenceStartEvent(mark, mark) if is_list else MappingStartEvent(mark, mark))
        self._open.append((column, is_list))
        self._awaited = None

    def _close_above(self, column: int) -> None:
        """Close the collections that are indented more than ``column``; the last key's value is empty if awaited."""
        if self._awaited is not None:
            self._events.append(ScalarEvent(self._awaited, self._awaited))
            self._awaited = None
        mark = Mark(self._number, 0)
        while self._open and self._open[-1][0] > column:
            is_list = self._open.pop()[1]
            self._events.append(SequenceEndEvent(mark, mark) if is_list else MappingEndEvent(mark, mark))

    def _read_pair(self, line: str, column: int) -> None:
        match = _KEY.match(line, column)
        if match is None:
            raise NotMachineForm
        key, end = match[1], match.end(1)
        is_quoted = key[0] == '"'
        self._add_scalar(key[1:-1] if is_quoted else key, column, end, '"' if is_quoted else None)
        value = end + 1
        while line.startswith(" ", value):
            value += 1
        if value == len(line) or line[value] == "#":
            self._awaited = Mark(self._number, end + 1)
        else:
            self._read_value(line, value)

    def _read_value(self, line: str, column: int) -> None:
        """Read a value that begins at this column."""
        first = line[column : column + 1]
        if first == "|":
            self._read_block(line, column)
            return
        end = self._read_flow(line, column) if first in _CLOSING else self._read_scalar(line, column, _PLAIN)
        rest = line[end:]
        if rest and not (rest[0] == " " and rest.lstrip(" ")[:1] in ("", "#")):
            raise NotMachineForm

    def _read_scalar(self, line: str, column: int, plain: Any) -> int:
        """Add the event of a scalar on one line; return the column behind it."""
        if line.startswith('"', column):
            match = _QUOTED.match(line, column)
            if match is None:
                raise NotMachineForm
            text = match[1]
            self._add_scalar(unescape(text), column, match.end(), '"')
        else:
            match = plain.match(line, column)
            if match is None:
                raise NotMachineForm
            self._add_scalar(match[0], column, match.end(), None)
        return int(match.end())

    def _add_scalar(self, text: str, column: int, end: int, style: str | None) -> None:
        marks = Mark(self._number, column), Mark(self._number, end)
        self._events.append(ScalarEvent(*marks, value=text, style=style, implicit=(style is None, style is not None)))

    def _read_flow(self, line: str, column: int) -> int:
        """Add the events of a list in brackets or a mapping in braces, of scalars; return the column behind it."""
        is_list, closing = line[column] == "[", _CLOSING[line[column]]
        start, at = Mark(self._number, column), column + 1
        marks = start, Mark(self._number, at)
        start_event = SequenceStartEvent if is_list else MappingStartEvent
        self._events.append(start_event(*marks, flow_style=True))
        while not line.startswith(closing, at):
            if not is_list:
                match = _KEY.match(line, at)
                if match is None or line[at] == '"' or match.end() == match.end(1) + 1:
                    raise NotMachineForm
                self._add_scalar(match[1], at, match.end(1), None)
                at = match.end()
            at = self._read_scalar(line, at, _FLOW_PLAIN)
            if line.startswith(", ", at):
                at += 2
                if line.startswith(closing, at):
                    raise NotMachineForm
            elif not line.startswith(closing, at):
                raise NotMachineForm
        marks = Mark(self._number, at), Mark(self._number, at + 1)
        end_event = SequenceEndEvent if is_list else MappingEndEvent
        self._events.append(end_event(*marks, flow_style=True))
        return at + 1

    def _read_block(self, line: str, column: int) -> None:
        """Add the event of a text of several lines. It has an end that is certain: the next line is no empty one."""
        mark = line[column:]
        if mark not in ("|", "|-") or not self._open:
            raise NotMachineForm
        start, parent = Mark(self._number, column), self._open[-1][0]
        first = self._number + 1
        indent = len(self._lines[first]) - len(self._lines[first].lstrip(" ")) if first < len(self._lines) else 0
        last = first
        while last < len(self._lines) and (self._lines[last][:indent].isspace() or not self._lines[last]):
            last += 1
        lines = [text[indent:] for text in self._lines[first:last]]
        ends_clearly = last == len(self._lines) or not self._lines[last].lstrip(" ").startswith("#")
        if indent <= parent or not lines or not lines[0] or not lines[-1].strip() or not ends_clearly:
            raise NotMachineForm
        text = "\n".join(lines) + ("\n" if mark == "|" else "")
        self._events.append(ScalarEvent(start, Mark(last, 0), value=text, style="|", implicit=(False, True)))
        self._number = last - 1


def unescape(text: str) -> str:
    """Return the value of the characters between double quotes. Raises NotMachineForm."""
    return str(_ESCAPE.sub(_unescape, text)) if "\\" in text else text


def _unescape(match: Any) -> str:
    if match[1]:
        return _ESCAPED[match[1]]
    number = int(match[2] or match[3] or "110000", 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise NotMachineForm
    return chr(number)
