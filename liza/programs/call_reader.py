"""Read the tool calls in the output of a program, as digests to compare them and as summaries for people."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from liza.model.value_classes import Value
from liza.programs.presets.preset import ToolCallFormat
from liza.programs.reported_figures import (
    value_at,
)
from liza.text.quoting import MESSAGE_PREFIX

MAX_OPEN_CALLS = 256
"""Maximum number of calls without an end that are kept, to limit memory: a program may never report the ends."""
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?\S*|\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"
    r"|\d+(?:\.\d+)? ?(?:ms|µs|s|sec|secs|seconds?|min|minutes?)\b|0x[0-9a-f]{6,}"
)
"""Clock times, durations and addresses: they may differ in two equal results."""


class FinishedCall(Value):
    """A tool call that has ended: digests of the call and of its result, and a summary for a person."""

    call: str
    result: str
    summary: str


class ToolCallReader:
    """Reads tool calls from the objects of an output, in order."""

    def __init__(self, forms: Sequence[ToolCallFormat]) -> None:
        self._forms = forms
        self._open: dict[str, tuple[str, str]] = {}
        self._last: dict[str, str] = {}

    def read(self, event: Any) -> Iterator[FinishedCall]:
        """Yield the tool calls that ``event`` reports as ended."""
        for form in self._forms:
            within = value_at(event, form.each) if form.each else event
            for entry in within if isinstance(within, list) else (within,):
                if isinstance(entry, dict) and _matches(form, event, entry):
                    yield from self._read_entry(form, entry)

    def _read_entry(self, form: ToolCallFormat, entry: Mapping[str, Any]) -> Iterator[FinishedCall]:
        name = str(value_at(entry, form.id))
        if form.call:
            called = [value_at(entry, path) for path in form.call]
            self._open[name] = digest(called), summarize_call(called)
            if len(self._open) > MAX_OPEN_CALLS:
                del self._open[next(iter(self._open))]
        if form.result and name in self._open:
            call, summary = self._open.pop(name)
            yield FinishedCall(
                call,
                self._result(call, [_without_noise(value_at(entry, path), form.noise) for path in form.result]),
                summary,
            )

    def _result(self, call: str, texts: list[str]) -> str:
        """Return the digest of a result.

        If a hook has added a message of Liza's, return the digest of the call's last result: a loop warning must not
        reset the loop count.
        """
        if not any(MESSAGE_PREFIX in text for text in texts):
            self._last.pop(call, None)
            self._last[call] = digest(texts)
            if len(self._last) > MAX_OPEN_CALLS:
                del self._last[next(iter(self._last))]
        return self._last.get(call) or digest(texts)


def _matches(form: ToolCallFormat, event: Any, entry: Mapping[str, Any]) -> bool:
    """Return whether the object, or the entry of its list, has the values that the form requires."""
    for path, wanted in form.when.items():
        value = value_at(entry, path) if form.each else None
        value = value_at(event, path) if value is None else value
        if not re.fullmatch(wanted, str(value)):
            return False
    return True


def _without_noise(value: Any, noise: str) -> str:
    """Return a result without the parts that differ every time."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return _TIMES.sub("", re.sub(noise, "", text) if noise else text)


_MAX_SUMMARY = 100


def digest(value: Any) -> str:
    """Return a short digest of a value, to compare values."""
    return hashlib.sha1(json.dumps(value, sort_keys=True, default=str).encode(), usedforsecurity=False).hexdigest()[:16]


def summarize_call(values: Any) -> str:
    """Return the call in one line.

    Programs may cut a text within a surrogate pair; the remaining half cannot be encoded and is replaced.
    """
    summary = " ".join(" ".join(_strings(values)).split())[:_MAX_SUMMARY]
    return summary.encode(errors="replace").decode()


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
