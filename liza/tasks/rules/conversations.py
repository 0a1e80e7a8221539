"""Whether a session continues the conversation of the task's last session, or why it begins a new one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from liza.model.history_events import HistoryEvent
from liza.model.model import Task
from liza.model.paths import agent_of
from liza.model.value_classes import Value

MAX_RESUMED_FAILURES = 2
"""Sessions in a row that continued a conversation and failed, after which a new one begins."""
_E = HistoryEvent
_STARTS = frozenset({_E.CLAIM, _E.RESUME})
_FAILURES = frozenset({_E.CRASH, _E.UNANSWERED})
_CONTINUED_ENDS = _FAILURES | {_E.SUBMIT, _E.STOP, _E.QUOTA, _E.HELD_UP, _E.UNUSABLE}
_FINAL_ENDS = {
    _E.HANDOFF: "it handed off",
    _E.CONTEXT_FULL: "its context window was full",
    _E.TOO_OLD: "it was older than config.session_max",
    _E.ENDED: "it ended without a closing command",
    _E.BLOCK: "it blocked the task",
}
"""Ends after which a new conversation begins, and the reason."""


class EarlierSession(Value):
    """An ended session. ``is_resumed``: it was started to continue a conversation. ``has_worked``: its model used a
    tool or a command of Liza."""

    run: str
    program: str
    worktree: str
    is_resumed: bool = False
    has_worked: bool = True


class ContinueConversation(Value):
    """Decision: continue the conversation of ``run``."""

    run: str


class NewConversation(Value):
    """Decision: begin a new conversation. ``reason`` is empty for the first session of a task."""

    reason: str = ""


def earlier_runs(task: Task, run: str) -> tuple[str, ...]:
    """Return the runs that worked on the task before ``run``, the newest first, each once."""
    runs = [event.run for event in task.history if event.event in _STARTS and event.run and event.run != run]
    return tuple(dict.fromkeys(reversed(runs)))


def choose_conversation(
    task: Task, next_session: EarlierSession, earlier: Sequence[EarlierSession]
) -> ContinueConversation | NewConversation:
    """Return whether ``next_session`` continues the conversation of the last session of the task.

    ``earlier``: the sessions of ``earlier_runs`` whose records exist, the newest first. Only the agent's own session
    with the same program in the same directory is continued, and only if no other agent worked on the task since.
    """
    runs = earlier_runs(task, next_session.run)
    if not runs:
        return NewConversation()
    last = runs[0]
    if agent_of(last) != agent_of(next_session.run):
        return NewConversation(f"the last session was {last}")
    previous = next((session for session in earlier if session.run == last), None)
    if previous is None:
        return NewConversation(f"there is no record of {last}")
    if previous.program != next_session.program:
        return NewConversation(f"{last} ran with {previous.program}")
    if previous.worktree != next_session.worktree:
        return NewConversation(f"{last} worked in another directory")
    reason = _reason_for_new(task, previous, earlier)
    return NewConversation(reason) if reason else ContinueConversation(last)


def _reason_for_new(task: Task, previous: EarlierSession, earlier: Sequence[EarlierSession]) -> str:
    """Return why the ends of the agent's sessions require a new conversation; empty if they do not."""
    ends = _ends(task, previous.run)
    final = next((reason for event, reason in _FINAL_ENDS.items() if event in ends), None)
    if final is not None:
        return f"{previous.run}: {final}"
    if not ends & _CONTINUED_ENDS:
        return f"the end of {previous.run} is not on record"
    if previous.is_resumed and not previous.has_worked and ends & {_E.CRASH, _E.HELD_UP}:
        return f"{previous.run} could not resume its conversation"
    runs = (previous.run, *earlier_runs(task, previous.run)[:1])
    if len(runs) > 1 and all(_E.UNANSWERED in _ends(task, run) for run in runs):
        # Some servers fail for one conversation, for example if it is too long.
        return "the model did not answer two sessions in a row"
    failed = 0
    for session in earlier:
        if not session.is_resumed or not _ends(task, session.run) & _FAILURES:
            break
        failed += 1
    return f"{failed} sessions in a row resumed it and failed" if failed >= MAX_RESUMED_FAILURES else ""


def _ends(task: Task, run: str) -> frozenset[str]:
    """Return all recorded ends of a run: a session that handed off may also be stopped."""
    return frozenset(
        event.event for event in task.history if event.run == run and event.event in {*_CONTINUED_ENDS, *_FINAL_ENDS}
    )
