"""Read the plain value of an entry as Liza writes it, without the events of a parser.

An event is an object for each key and each value. Nearly every entry of a board is as Liza wrote it; it is read here by
one search for all its lines, in a third of the time. Every other text is refused and then parsed, for example one with
comments or nulls.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Final

from liza.board.text.machine_form import NotMachineForm, unescape
from liza.board.text.values import FREE_FORM_KEYS, NORMALIZED_KEYS, NULLS, normalize_scalar, parse_plain_scalar

# The scalars of `machine_form`.
_NAME: Final = "[A-Za-z_][A-Za-z0-9_-]{0,99}"
_QUOTED: Final = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_PLAIN: Final = r"-?[A-Za-z0-9./(][A-Za-z0-9_.,/()+-]*(?: [A-Za-z0-9_.,/()+-]+)*"
_FLOW_SCALAR: Final = rf"(?:{_QUOTED}|-?[A-Za-z0-9.][A-Za-z0-9_./+-]*)"
_FLOW_PAIR: Final = f"{_NAME}: {_FLOW_SCALAR}"
_FLOW: Final = (
    rf"\{{(?:{_FLOW_PAIR}(?:, {_FLOW_PAIR})*)?\}}"
    rf"|\[(?:{_FLOW_SCALAR}(?:, {_FLOW_SCALAR})*)?\]"
)  # fmt: skip
_VALUE: Final = f"{_QUOTED}|{_PLAIN}|{_FLOW}"
_LINES: Final = re.compile(rf"(?m)^( *)(?:(- )?({_NAME}):(?: ({_VALUE}|\|-?))?|(- )({_VALUE}))$|^.*$")
"""Finds each line: indentation, dash, key and value; or dash and value without a key; or nothing of another line."""
_PAIRS: Final = re.compile(f"({_NAME}): ({_FLOW_SCALAR})")
_SCALARS: Final = re.compile(_FLOW_SCALAR)
_MAX_INDENT: Final = 32


def read_plain(text: str, key: str) -> Any:
    """Return the plain value of one part of a file below ``key``, as `parse.parse_part` does. Raises NotMachineForm."""
    if not text.endswith("\n") or not text.replace("\n", "").isprintable() or key in FREE_FORM_KEYS:
        raise NotMachineForm
    return _PlainReader(text[:-1]).read(key)


class _PlainReader:
    """Reads the collections of a text from the top. ``_at``: the number of the next line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: list[tuple[str, str, str, str, str, str]] = _LINES.findall(text)
        self._at = 0

    @cached_property
    def _texts(self) -> list[str]:
        return self._text.split("\n")

    def read(self, key: str) -> Any:
        value = self._read_collection(key)
        if self._at != len(self._lines):
            raise NotMachineForm
        return value

    def _read_collection(self, key: str) -> Any:
        indent, dash, _, _, bare_dash, _ = self._lines[self._at]
        if len(indent) > _MAX_INDENT:
            raise NotMachineForm
        return self._read_list(indent, key) if dash or bare_dash else self._read_mapping(indent)

    def _read_list(self, indent: str, key: str) -> list[Any]:
        items: list[Any] = []
        lines = self._lines
        while self._at < len(lines):
            spaces, dash, name, value, bare_dash, bare_value = lines[self._at]
            if spaces != indent:
                break
            if bare_dash:
                items.append(_read_value(bare_value, key))
                self._at += 1
            elif dash:
                lines[self._at] = (f"{indent}  ", "", name, value, "", "")
                items.append(self._read_mapping(f"{indent}  "))
            else:
                raise NotMachineForm
        self._refuse_deeper(indent)
        return items

    def _read_mapping(self, indent: str) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        lines = self._lines
        while self._at < len(lines):
            spaces, dash, name, value, _, _ = lines[self._at]
            if spaces != indent:
                break
            self._at += 1
            if dash or not name or name in mapping:
                raise NotMachineForm
            if not value:
                mapping[name] = self._read_below(indent, name)
            elif value[0] == "|":
                mapping[name] = self._read_block(indent, name, value)
            else:
                mapping[name] = _read_value(value, name)
        self._refuse_deeper(indent)
        return mapping

    def _read_below(self, indent: str, key: str) -> Any:
        """Return the collection below a key in a mapping at ``indent``."""
        if self._at == len(self._lines) or len(self._lines[self._at][0]) <= len(indent) or key in FREE_FORM_KEYS:
            raise NotMachineForm
        return self._read_collection(key)

    def _refuse_deeper(self, indent: str) -> None:
        """Raise NotMachineForm if the line behind a collection is indented more than the collection."""
        if self._at < len(self._lines) and len(self._lines[self._at][0]) > len(indent):
            raise NotMachineForm

    def _read_block(self, indent: str, key: str, mark: str) -> str:
        """Return a text of several lines. Its end must be certain: its last line and the next line are not empty."""
        texts, first = self._texts, self._at
        margin = len(texts[first]) - len(texts[first].lstrip(" ")) if first < len(texts) else 0
        end = first
        while end < len(texts) and (texts[end][:margin].isspace() or not texts[end]):
            end += 1
        lines = [text[margin:] for text in texts[first:end]]
        ends_clearly = end == len(texts) or not texts[end].lstrip(" ").startswith("#")
        if margin <= len(indent) or not lines or not lines[0] or not lines[-1].strip() or not ends_clearly:
            raise NotMachineForm
        self._at = end
        text = "\n".join(lines) + ("\n" if mark == "|" else "")
        return normalize_scalar(key, text)


def _read_value(value: str, key: str) -> Any:
    """Return the value of a scalar, or of a collection on one line."""
    first = value[0]
    if first == "{":
        pairs = _PAIRS.findall(value)
        read = _read_free_scalar if key in FREE_FORM_KEYS else _read_scalar
        mapping = {name: read(written, name) for name, written in pairs}
        if len(mapping) != len(pairs):
            raise NotMachineForm
        return mapping
    if first == "[":
        return [_read_scalar(written, key) for written in _SCALARS.findall(value)]
    return _read_scalar(value, key)


def _read_scalar(written: str, key: str) -> str:
    if written[0] == '"':
        written = unescape(written[1:-1])
    elif written in NULLS:
        raise NotMachineForm
    return normalize_scalar(key, written) if key in NORMALIZED_KEYS else written


def _read_free_scalar(written: str, _: str) -> Any:
    return unescape(written[1:-1]) if written[0] == '"' else parse_plain_scalar(written)
