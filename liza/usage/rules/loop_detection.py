"""Detection of sessions that make no progress. Pure: a fold over tool calls, and a check against the limits.

Two signs of a loop. First: one call gives the same result many times and no new call is made between them (`pytest`
after each edit does not count, because each edit is a new call). Second: many calls over a long time do not change the
worktree.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from liza.model.configuration import LoopLimits
from liza.model.session_ends import STOP_RULES, StopReason
from liza.model.value_classes import Value, replace
from liza.programs.rules.session_events import SessionEvent, ToolCalled, ToolReturned
from liza.text.quoting import MESSAGE_PREFIX

NO_PROGRESS_PREFIX = f"{STOP_RULES[StopReason.NO_PROGRESS].sentence}: "
MAX_REMEMBERED_CALLS = 32
"""Number of different calls that are remembered. A longer cycle is not recognised."""


class ToolCall(Value):
    """One finished tool call: digests of the call and of its result, and a ``description`` for people.

    ``at`` is in seconds of the monotonic clock; 0 until it is known.
    """

    call: str
    result: str
    description: str
    at: float = 0.0


class CallReader:
    """Pairs the tool calls in the events of an output with their results.

    ``noise`` is a regular expression for parts of a result that differ every time.
    """

    def __init__(self, noise: str = "") -> None:
        self._noise = re.compile(noise) if noise else None
        self._open: dict[str, tuple[str, str]] = {}
        self._last: dict[str, str] = {}

    def read(self, events: Iterable[SessionEvent]) -> Iterator[ToolCall]:
        """Yield the tool calls that ``events`` report as ended."""
        for event in events:
            match event:
                case ToolCalled():
                    called = [event.name, event.arguments, [edit.path for edit in event.edits]]
                    self._open[event.call] = digest(called), summarize_call(called)
                    _limit(self._open)
                case ToolReturned() if event.call in self._open:
                    call, description = self._open.pop(event.call)
                    yield ToolCall(call, self._digest_result(call, event), description)

    def _digest_result(self, call: str, event: ToolReturned) -> str:
        """Return the digest of a result without its noise.

        If a hook has added a message of Liza's, return the digest of the call's last result: a loop warning must not
        reset the loop count.
        """
        text = event.text if self._noise is None else self._noise.sub("", event.text)
        result = digest([_TIMES.sub("", text), event.outcome, event.exit_code])
        if MESSAGE_PREFIX in text:
            return self._last.get(call, result)
        self._last.pop(call, None)
        self._last[call] = result
        _limit(self._last)
        return result


MAX_OPEN_CALLS = 256
"""Maximum number of calls without an end that are kept, to limit memory: a program may never report the ends."""
_MAX_SUMMARY = 100  # characters
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?\S*|\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"
    r"|\d+(?:\.\d+)? ?(?:ms|µs|s|sec|secs|seconds?|min|minutes?)\b|0x[0-9a-f]{6,}"
)
"""Clock times, durations and addresses: they may differ in two equal results."""


def _limit(calls: dict[str, Any]) -> None:
    if len(calls) > MAX_OPEN_CALLS:
        del calls[next(iter(calls))]


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


class Progress(Value):
    """Summary of a session's calls so far.

    ``counts``: repetitions of each pair of ``seen_pairs`` since the last new pair. ``calls_since_change``: calls since
    ``changed_at``, when the worktree last changed.
    """

    calls: int = 0
    seen_pairs: tuple[tuple[str, str], ...] = ()
    counts: tuple[int, ...] = ()
    last_call: ToolCall | None = None
    calls_since_change: int = 0
    changed_at: float | None = None


class Stuck(Value):
    """A session that makes no progress. ``final``: it has reached twice the limit and must be ended."""

    reason: str
    final: bool


def add_call(progress: Progress, call: ToolCall, pause: float) -> Progress:
    """Return the progress with one call added. A repetition more than ``pause`` seconds after the last call is polling
    and is not counted.
    """
    pair = (call.call, call.result)
    waited = progress.last_call is not None and call.at - progress.last_call.at > pause
    since = call.at if progress.changed_at is None else progress.changed_at
    updated = replace(
        progress,
        calls=progress.calls + 1,
        last_call=call,
        calls_since_change=progress.calls_since_change + 1,
        changed_at=since,
    )
    if pair not in progress.seen_pairs:
        return replace(updated, seen_pairs=(*progress.seen_pairs, pair)[-MAX_REMEMBERED_CALLS:], counts=())
    if waited:
        return updated
    index = progress.seen_pairs.index(pair)
    counts = list(progress.counts or (0,) * len(progress.seen_pairs))
    counts[index] += 1
    return replace(updated, counts=tuple(counts))


def record_worktree_change(progress: Progress, at: float) -> Progress:
    """Return the progress after a change of the worktree at time ``at``."""
    return replace(progress, calls_since_change=0, changed_at=at)


def forget_untimed_calls(progress: Progress) -> Progress:
    """Return the progress without the counts of calls whose time is unknown: they precede this supervisor."""
    return replace(progress, counts=(), calls_since_change=0, changed_at=None)


def check_progress(limits: LoopLimits, progress: Progress, at: float) -> Stuck | None:
    """Return why the session makes no progress; None while it makes progress."""
    if progress.last_call is None:
        return None
    # Add 1: the first occurrence of the pair is not in ``counts``.
    same = max(progress.counts, default=0) + 1
    if 0 < limits.same_calls <= same:
        reason = (
            f"{NO_PROGRESS_PREFIX}the same call with the same result {same} times ({progress.last_call.description})"
        )
        return Stuck(reason, same >= 2 * limits.same_calls)
    seconds = 0.0 if progress.changed_at is None else at - progress.changed_at
    if 0 < limits.unchanged_calls <= progress.calls_since_change and seconds >= limits.unchanged_seconds:
        calls = f"{progress.calls_since_change} tool calls in {seconds / 60:.0f} min"
        reason = f"{NO_PROGRESS_PREFIX}{calls} without a change in the worktree"
        final = progress.calls_since_change >= 2 * limits.unchanged_calls and seconds >= 2 * limits.unchanged_seconds
        return Stuck(reason, final)
    return None
