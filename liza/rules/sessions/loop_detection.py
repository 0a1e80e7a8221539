"""Whether a session that calls tools gets anywhere. Pure: a fold over its tool calls, and a verdict.

Two signs of a loop. One call gives one result again and again while nothing new is called: `pytest` after each edit is
none of that, because each edit is a new call. And many calls over a long time leave the worktree as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from liza.rules.model import Loop

NO_PROGRESS = "no progress: "
"""How the reason of a session begins that was ended for a loop."""
MOST_KNOWN = 32
"""How many different calls are remembered: the longest cycle that is recognised."""


@dataclass(frozen=True)
class ToolCall:
    """One finished tool call: digests of what was called and of its result; ``words`` name it for a person.

    ``at`` is in seconds of the steady clock.
    """

    call: str
    result: str
    words: str
    at: float


@dataclass(frozen=True)
class Progress:
    """What the calls of a session came to so far. ``counts`` holds how often each known pair came again since the last
    new one; ``unchanged`` counts calls since ``since``, when the worktree last changed."""

    calls: int = 0
    known: tuple[tuple[str, str], ...] = ()
    counts: tuple[int, ...] = ()
    last: ToolCall | None = None
    unchanged: int = 0
    since: float | None = None


@dataclass(frozen=True)
class Stuck:
    """A session that makes no progress. ``final``: it had its warning, and is to be ended."""

    words: str
    final: bool


def after(progress: Progress, call: ToolCall, pause: float) -> Progress:
    """The progress with one more call in it."""
    pair = (call.call, call.result)
    waited = progress.last is not None and call.at - progress.last.at > pause
    since = call.at if progress.since is None else progress.since
    found = replace(progress, calls=progress.calls + 1, last=call, unchanged=progress.unchanged + 1, since=since)
    if pair not in progress.known:
        return replace(found, known=(*progress.known, pair)[-MOST_KNOWN:], counts=())
    if waited:
        return found
    place = progress.known.index(pair)
    counts = list(progress.counts or (0,) * len(progress.known))
    counts[place] += 1
    return replace(found, counts=tuple(counts))


def changed(progress: Progress, at: float) -> Progress:
    """The progress when the worktree has changed."""
    return replace(progress, unchanged=0, since=at)


def rested(progress: Progress) -> Progress:
    """The progress without what cannot be timed, because it happened before anybody looked."""
    return replace(progress, counts=(), unchanged=0, since=None)


def stuck(limits: Loop, progress: Progress, at: float) -> Stuck | None:
    """Whether the session makes no progress; None while it does."""
    if progress.last is None:
        return None
    # Two: the pair that made itself known, and its first return, are two sights of it.
    same = max(progress.counts, default=0) + 1
    if 0 < limits.same_calls <= same:
        words = f"{NO_PROGRESS}the same call with the same result {same} times ({progress.last.words})"
        return Stuck(words, same >= 2 * limits.same_calls)
    seconds = 0.0 if progress.since is None else at - progress.since
    if 0 < limits.unchanged_calls <= progress.unchanged and seconds >= limits.unchanged_seconds:
        calls = f"{progress.unchanged} tool calls in {seconds / 60:.0f} min"
        words = f"{NO_PROGRESS}{calls} without a change in the worktree"
        final = progress.unchanged >= 2 * limits.unchanged_calls and seconds >= 2 * limits.unchanged_seconds
        return Stuck(words, final)
    return None
