"""Detection of sessions that make no progress. Pure: a fold over tool calls, and a check against the limits.

Two signs of a loop. First: one call gives the same result many times and no new call is made between them (`pytest`
after each edit does not count, because each edit is a new call). Second: many calls over a long time do not change the
worktree.
"""

from __future__ import annotations

from liza.model.model import LoopLimits
from liza.model.session_ends import STOP_RULES, StopReason
from liza.model.value_classes import Value, replace

NO_PROGRESS_PREFIX = f"{STOP_RULES[StopReason.NO_PROGRESS].sentence}: "
MAX_REMEMBERED_CALLS = 32
"""Number of different calls that are remembered. A longer cycle is not recognised."""


class ToolCall(Value):
    """One finished tool call: digests of the call and of its result, and a ``description`` for people.

    ``at`` is in seconds of the monotonic clock.
    """

    call: str
    result: str
    description: str
    at: float


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
