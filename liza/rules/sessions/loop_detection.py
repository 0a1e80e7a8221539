"""Whether a session that calls tools gets anywhere. Pure: a fold over its tool calls, and a verdict.

Two signs of a loop. One call gives one result again and again while nothing new is called: `pytest` after each edit is
none of that, because each edit is a new call. And many calls over a long time leave the worktree as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from liza.rules.model import LoopLimits

NO_PROGRESS_PREFIX = "no progress: "
"""How the reason of a session begins that was ended for a loop."""
MAX_REMEMBERED_CALLS = 32
"""How many different calls are remembered: the longest cycle that is recognised."""


@dataclass(frozen=True)
class ToolCall:
    """One finished tool call: digests of what was called and of its result; ``words`` name it for a person.

    ``at`` is in seconds of the steady clock.
    """

    call: str
    result: str
    description: str
    at: float


@dataclass(frozen=True)
class Progress:
    """What the calls of a session came to so far. ``counts`` holds how often each known pair came again since the last
    new one; ``unchanged`` counts calls since ``since``, when the worktree last changed."""

    calls: int = 0
    seen_pairs: tuple[tuple[str, str], ...] = ()
    counts: tuple[int, ...] = ()
    last_call: ToolCall | None = None
    calls_since_change: int = 0
    changed_at: float | None = None


@dataclass(frozen=True)
class Stuck:
    """A session that makes no progress. ``final``: it had its warning, and is to be ended."""

    reason: str
    final: bool


def add_call(progress: Progress, call: ToolCall, pause: float) -> Progress:
    """The progress with one more call in it."""
    pair = (call.call, call.result)
    waited = progress.last_call is not None and call.at - progress.last_call.at > pause
    since = call.at if progress.changed_at is None else progress.changed_at
    found = replace(
        progress,
        calls=progress.calls + 1,
        last_call=call,
        calls_since_change=progress.calls_since_change + 1,
        changed_at=since,
    )
    if pair not in progress.seen_pairs:
        return replace(found, seen_pairs=(*progress.seen_pairs, pair)[-MAX_REMEMBERED_CALLS:], counts=())
    if waited:
        return found
    place = progress.seen_pairs.index(pair)
    counts = list(progress.counts or (0,) * len(progress.seen_pairs))
    counts[place] += 1
    return replace(found, counts=tuple(counts))


def record_worktree_change(progress: Progress, at: float) -> Progress:
    """The progress when the worktree has changed."""
    return replace(progress, calls_since_change=0, changed_at=at)


def forget_untimed_calls(progress: Progress) -> Progress:
    """The progress without what cannot be timed, because it happened before anybody looked."""
    return replace(progress, counts=(), calls_since_change=0, changed_at=None)


def check_progress(limits: LoopLimits, progress: Progress, at: float) -> Stuck | None:
    """Whether the session makes no progress; None while it does."""
    if progress.last_call is None:
        return None
    # Two: the pair that made itself known, and its first return, are two sights of it.
    same = max(progress.counts, default=0) + 1
    if 0 < limits.same_calls <= same:
        words = (
            f"{NO_PROGRESS_PREFIX}the same call with the same result {same} times ({progress.last_call.description})"
        )
        return Stuck(words, same >= 2 * limits.same_calls)
    seconds = 0.0 if progress.changed_at is None else at - progress.changed_at
    if 0 < limits.unchanged_calls <= progress.calls_since_change and seconds >= limits.unchanged_seconds:
        calls = f"{progress.calls_since_change} tool calls in {seconds / 60:.0f} min"
        words = f"{NO_PROGRESS_PREFIX}{calls} without a change in the worktree"
        final = progress.calls_since_change >= 2 * limits.unchanged_calls and seconds >= 2 * limits.unchanged_seconds
        return Stuck(words, final)
    return None
