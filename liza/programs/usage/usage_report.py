"""What a session used, read out of what its program printed in a form meant for machines. Figures, never guesses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from liza.programs.presets.preset import UsageFormat
from liza.rules.errors import NotRegularFile
from liza.rules.sessions.spending import TokenUsage
from liza.system import atomic

_ID = re.compile(r"[A-Za-z0-9][\w.:-]{0,127}", re.ASCII)
_LARGEST = 1 << 62
_MAX_BYTES = 64 << 20
"""Bytes of output that are read; a shim cuts it there."""
_DEEP_NESTING_COST = 1 << 20
"""What is reckoned for a document that is nested too deeply, in characters."""


def read_usage(form: UsageFormat, output: Path) -> TokenUsage | None:
    """What the program says that it used; None where it said nothing of it, or that cannot be read."""
    if not (form.input or form.output or form.cost or form.pattern):
        return None
    text = _read_output(output.parent / form.file if form.file else output)
    if text is None:
        return None
    figures = list(
        usages_of_text(form, text) if form.form == "text" else _from_objects(form, _parse_objects(form, text))
    )
    return combine_usage(form, figures) if figures else None


def read_session_id(form: UsageFormat, output: Path) -> str | None:
    """The id of the conversation, for going on with it; None where it was not said."""
    text = _read_output(output) if form.session else None
    for found in _parse_objects(form, text) if text is not None else ():
        session = find_session_id(form, found)
        if session is not None:
            return session
    return None


def find_session_id(form: UsageFormat, found: object) -> str | None:
    """Return the id of the conversation that an object of the output names; None where it names none."""
    for path in form.session:
        value = value_at(found, path)
        if isinstance(value, str) and is_id(value):
            return value
    return None


def is_id(value: str) -> bool:
    """Whether it can be the id of a conversation. Whoever speaks in the program's name may have written it, and it
    becomes a word of a command line and a part of a path."""
    return _ID.fullmatch(value) is not None


def _read_output(output: Path) -> str | None:
    try:
        with atomic.open_regular(output) as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except (OSError, NotRegularFile):
        # What an agent puts into the place of its output says no figures, and keeps no session from being settled.
        return None


def _parse_objects(form: UsageFormat, text: str) -> Iterator[Any]:
    if form.form == "json":
        yield from _parse_documents(text)
        return
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            # A line of a tool's own may look like one and be none.
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                continue


def _parse_documents(text: str) -> Iterator[Any]:
    """The documents that begin on a line of their own; what the tools of the agent printed stands between them."""
    decoder = json.JSONDecoder()
    end, in_vain = 0, 0
    for begin in re.finditer(r"^[\[{]", text, re.MULTILINE):
        # What stands inside of a document is none; and what begins and never ends is not read to its end for ever.
        if begin.start() < end or in_vain > _MAX_BYTES:
            continue
        try:
            found, end = decoder.raw_decode(text, begin.start())
        except json.JSONDecodeError as error:
            in_vain += error.pos - begin.start()
            continue
        except (ValueError, RecursionError):
            in_vain += _DEEP_NESTING_COST
            continue
        yield from found if isinstance(found, list) else (found,)


def _from_objects(form: UsageFormat, objects: Iterable[Any]) -> Iterator[TokenUsage]:
    return (used for found in objects if (used := usage_of_object(form, found)) is not None)


def usage_of_object(form: UsageFormat, found: Any) -> TokenUsage | None:
    """The figures in one object; None where it is none of those that count, or tells none."""
    if not isinstance(found, dict) or any(str(value_at(found, path)) != want for path, want in form.when.items()):
        return None
    read = [_sum(found, paths) for paths in (form.input, form.cached, form.output)]
    cost = _valid_number(value_at(found, form.cost)) if form.cost else None
    if cost is None and all(one is None for one in read):
        return None
    taken, cached, given = (int(one or 0) for one in read)
    if not cost and not form.free and taken + given:
        # The program does not know the price of its model, and adds up nothing.
        cost = None
    return TokenUsage(input=taken, cached=cached, output=given, cost=cost)


def usages_of_text(form: UsageFormat, text: str) -> Iterator[TokenUsage]:
    """The figures in plain text."""
    for found in re.finditer(form.pattern, text):
        said = found.groupdict()
        cost = said.get("cost")
        yield TokenUsage(
            input=_parse_count(said.get("input")),
            output=_parse_count(said.get("output")),
            cost=_parse_dollars(cost),
        )


def combine_usage(form: UsageFormat, figures: list[TokenUsage]) -> TokenUsage:
    """What the figures of one session come to."""
    if form.combine == "last":
        return figures[-1]
    if form.combine == "most":
        return max(figures, key=lambda one: (one.cost or 0.0, one.tokens))
    return sum(figures[1:], figures[0])


def _sum(found: dict[str, Any], paths: tuple[str, ...]) -> float | None:
    numbers = [number for path in paths for number in _valid_numbers(value_at(found, path))]
    return sum(numbers) if numbers else None


def _valid_numbers(value: Any) -> Iterator[float]:
    for one in value if isinstance(value, list) else (value,):
        number = _valid_number(one)
        if number is not None:
            yield number


def _valid_number(value: Any) -> float | None:
    """A figure that can be one: programs have written others."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < _LARGEST else None


def value_at(found: Any, path: str) -> Any:
    """What stands at a path; ``*`` stands for every key, whose values are then a list. None where there is nothing."""
    names = path.split(".")
    for place, name in enumerate(names):
        if name == "*" and isinstance(found, dict | list):
            below = found.values() if isinstance(found, dict) else found
            return _flat(value_at(one, ".".join(names[place + 1 :])) if names[place + 1 :] else one for one in below)
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return found


def _flat(values: Iterable[Any]) -> list[Any]:
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def _parse_dollars(text: str | None) -> float | None:
    try:
        return _valid_number(float(text)) if text else None
    except ValueError:
        return None


def _parse_count(text: str | None) -> int:
    """``1.2k`` is 1200."""
    if not text:
        return 0
    text = text.replace(",", "").lower()
    times = {"k": 1_000, "m": 1_000_000}.get(text[-1], 1)
    try:
        return round(min(float(text.rstrip("km")) * times, _LARGEST))
    except (ValueError, OverflowError):
        return 0
