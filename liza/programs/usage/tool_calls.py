"""Tool calls in what a program prints: a line that says that one begins, is over, or both. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from liza.programs.brief.quoting import MESSAGE_PREFIX
from liza.programs.presets.preset import ToolCallFormat
from liza.programs.usage.usage_report import value_at

MAX_OPEN_CALLS = 256
"""Calls that began and are not over; a program that never says how one ended must not fill the memory."""
_MAX_SUMMARY = 100
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?\S*|\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"
    r"|\d+(?:\.\d+)? ?(?:ms|µs|s|sec|secs|seconds?|min|minutes?)\b|0x[0-9a-f]{6,}"
)
"""Clock times, durations and addresses: they differ in two results that say the same."""


@dataclass(frozen=True)
class FinishedCall:
    """A tool call that is over: digests of what was called and of its result, and the call in words for a person."""

    call: str
    result: str
    summary: str


class ToolCallReader:
    """Reads tool calls from the objects of an output, one after the other."""

    def __init__(self, forms: Sequence[ToolCallFormat]) -> None:
        self._forms = forms
        self._open: dict[str, tuple[str, str]] = {}
        self._last: dict[str, str] = {}

    def read(self, found: Any) -> Iterator[FinishedCall]:
        """The tool calls that ``found`` says are over."""
        for form in self._forms:
            within = value_at(found, form.each) if form.each else found
            for one in within if isinstance(within, list) else (within,):
                if isinstance(one, dict) and _matches(form, found, one):
                    yield from self._read_entry(form, one)

    def _read_entry(self, form: ToolCallFormat, one: Mapping[str, Any]) -> Iterator[FinishedCall]:
        name = str(value_at(one, form.id))
        if form.call:
            called = [value_at(one, path) for path in form.call]
            self._open[name] = digest(called), summarize_call(called)
            if len(self._open) > MAX_OPEN_CALLS:
                del self._open[next(iter(self._open))]
        if form.result and name in self._open:
            call, told = self._open.pop(name)
            yield FinishedCall(
                call,
                self._result(call, [_without_noise(value_at(one, path), form.noise) for path in form.result]),
                told,
            )

    def _result(self, call: str, texts: list[str]) -> str:
        """The digest of a result. Liza's own message, which a hook laid into it, makes no new result of it: the warning
        of a loop must not end the count."""
        if not any(MESSAGE_PREFIX in text for text in texts):
            self._last.pop(call, None)
            self._last[call] = digest(texts)
            if len(self._last) > MAX_OPEN_CALLS:
                del self._last[next(iter(self._last))]
        return self._last.get(call) or digest(texts)


def _matches(form: ToolCallFormat, whole: Any, one: Mapping[str, Any]) -> bool:
    """Whether the object, or the entry of its list, holds what the form asks for."""
    for path, wanted in form.when.items():
        value = value_at(one, path) if form.each else None
        value = value_at(whole, path) if value is None else value
        if not re.fullmatch(wanted, str(value)):
            return False
    return True


def _without_noise(value: Any, noise: str) -> str:
    """A result without what differs each time."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return _TIMES.sub("", re.sub(noise, "", text) if noise else text)


def digest(value: Any) -> str:
    """A short name for a value, by which two equal ones are known."""
    return hashlib.sha1(json.dumps(value, sort_keys=True, default=str).encode(), usedforsecurity=False).hexdigest()[:16]


def summarize_call(values: Any) -> str:
    """What was called, in one line. Programs cut texts in the middle of a character: half of one is no text, and could
    be written nowhere."""
    told = " ".join(" ".join(_strings(values)).split())[:_MAX_SUMMARY]
    return told.encode(errors="replace").decode()


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _strings(one)
