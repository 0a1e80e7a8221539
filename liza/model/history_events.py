"""Events in the history of a task, what each of them means, and the texts of failed merges. Pure.

A board may have other events, written by an older version or by hand. They are kept and shown, and mean nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum

from liza.model.model import Event, Task
from liza.model.value_classes import Value
from liza.text.undecoded import list_names


class HistoryEvent(StrEnum):
    """One event of a task's history, as the board spells it. ``Event.event`` is compared with these."""

    # Verbs: each is a row of transitions.TRANSITIONS, which says who may use it.
    EDIT = "edit"
    READY = "ready"
    CLAIM = "claim"
    RESUME = "resume"
    STOP = "stop"
    HANDOFF = "handoff"
    SUBMIT = "submit"
    SUBMIT_AGAIN = "submit again"
    SUBMIT_WORK = "submit work"
    """A person, or a session that Liza did not start, submitted a commit: work, or its next state."""
    BLOCK = "block"
    CLAIM_REVIEW = "claim review"
    RELEASE_REVIEW = "release review"
    GIVE_UP_REVIEW = "give up review"
    APPROVE = "approve"
    REJECT = "reject"
    DEADLOCK = "deadlock"
    MERGING = "merging"
    MERGE = "merge"
    MERGE_FAILED = "merge failed"
    MERGE_CLEARED = "merge cleared"
    """The last failed merge had another cause than the task: its branch is red without it."""
    UNBLOCK = "unblock"
    UNBLOCK_REVIEW = "unblock review"
    """The question of a review without a verdict is answered: the same commit is reviewed again."""
    SUPERSEDE = "supersede"
    DROP = "drop"
    RELEASE = "release"
    UNDO = "undo"
    """A person had its merge reverted."""
    # Written by a run that needs its lease for longer: the status stays.
    EXTEND = "extend lease"
    # Written by planners and humans: the first line of each history.
    ADD = "add"
    # Written by the supervisor when a coder's session ends without a closing command.
    CRASH = "crash"
    ENDED = "ended"
    HELD_UP = "held up"
    """The board, its lock or the disk kept the session from finishing."""
    QUOTA = "quota"
    """A usage limit of the model ended the session."""
    UNUSABLE = "unusable"
    """The program cannot work until a person acts, such as a login."""
    UNANSWERED = "unanswered"
    """The model gave no usable answer (none for too long, only errors, or half an answer)."""
    CONTEXT_FULL = "context full"
    """Liza ended the session, because the context window of its program was nearly full."""
    TOO_OLD = "too old"
    """Liza ended the idle session, because it was older than ``config.session_max``."""
    SAVED = "saved"
    """What a replaced run left on a host that was cut off is at the remote."""
    # Written by a merger.
    TESTS_MOVED_REFS = "tests moved refs"
    LAND = "land"
    """Its epic landed on integration."""
    # Written by earlier versions.
    RESTORE = "restore"


E = HistoryEvent


class EventRule(Value):
    """What follows from an event.

    ``closes_run``: it is the closing command of a session; the run has no more to do. ``frames_session``: the last such
    event decides how the coder's next session begins. ``session_end``: how the session ended that had no closing
    command, as a clause for the next session's brief. ``asks``, ``answers``: the task begins, or ceases, to wait for a
    person. ``is_verdict``: a review ended with it. ``is_for_crew``: a supervisor writes it for the whole crew, not for
    its agent.
    """

    closes_run: bool = False
    frames_session: bool = False
    session_end: str = ""
    asks: bool = False
    answers: bool = False
    is_verdict: bool = False
    is_for_crew: bool = False


EVENT_RULES: dict[HistoryEvent, EventRule] = dict.fromkeys(HistoryEvent, EventRule()) | {
    E.READY: EventRule(answers=True),
    E.CLAIM: EventRule(frames_session=True),
    E.STOP: EventRule(frames_session=True),
    E.HANDOFF: EventRule(closes_run=True, frames_session=True),
    E.SUBMIT: EventRule(closes_run=True, frames_session=True),
    E.SUBMIT_AGAIN: EventRule(closes_run=True),
    E.SUBMIT_WORK: EventRule(answers=True),
    E.BLOCK: EventRule(closes_run=True, asks=True),
    E.RELEASE_REVIEW: EventRule(closes_run=True),
    E.GIVE_UP_REVIEW: EventRule(asks=True),
    E.APPROVE: EventRule(closes_run=True, is_verdict=True),
    E.REJECT: EventRule(closes_run=True, frames_session=True, is_verdict=True),
    E.DEADLOCK: EventRule(closes_run=True, asks=True, is_verdict=True),
    E.MERGE: EventRule(is_for_crew=True),
    E.MERGE_FAILED: EventRule(is_for_crew=True),
    E.MERGE_CLEARED: EventRule(is_for_crew=True),
    E.LAND: EventRule(is_for_crew=True),
    E.UNBLOCK: EventRule(answers=True),
    E.UNBLOCK_REVIEW: EventRule(answers=True),
    E.SUPERSEDE: EventRule(answers=True),
    E.DROP: EventRule(answers=True),
    E.CRASH: EventRule(frames_session=True, session_end="it crashed"),
    E.ENDED: EventRule(frames_session=True, session_end="it ended without a closing command"),
    E.HELD_UP: EventRule(frames_session=True, session_end="a problem outside of it stopped it"),
    E.QUOTA: EventRule(frames_session=True, session_end="a usage limit ended it"),
    E.UNUSABLE: EventRule(frames_session=True, session_end="its program could not be used"),
    E.UNANSWERED: EventRule(frames_session=True, session_end="its model did not answer"),
    E.CONTEXT_FULL: EventRule(frames_session=True, session_end="its context window was full"),
    E.TOO_OLD: EventRule(frames_session=True, session_end="it was older than config.session_max"),
}
"""Each event and what follows from it. The sentences for people are in ``reports/narration.py``."""


def _events_with(holds: Callable[[EventRule], object]) -> tuple[HistoryEvent, ...]:
    return tuple(event for event, rule in EVENT_RULES.items() if holds(rule))


CLOSING_EVENTS = _events_with(lambda rule: rule.closes_run)
FRAMING_EVENTS = _events_with(lambda rule: rule.frames_session)
UNFINISHED_ENDS = _events_with(lambda rule: rule.session_end)
"""Ends of sessions without a closing command."""
QUESTION_EVENTS = _events_with(lambda rule: rule.asks)
ANSWER_EVENTS = _events_with(lambda rule: rule.answers)
VERDICTS = _events_with(lambda rule: rule.is_verdict)
CREW_EVENTS = _events_with(lambda rule: rule.is_for_crew)


def session_end(event: str) -> str:
    """Return how the session ended that had no closing command; empty if ``event`` is no such end."""
    return EVENT_RULES[HistoryEvent(event)].session_end if event in UNFINISHED_ENDS else ""


_CONFLICT = "conflict with "
_LOG = re.compile(r" \(log: (\S+)\)")


def format_failure(what: str, log: str, end: str) -> str:
    """Return the text for a failed command. ``log``: file with all output; ``end``: end of the output."""
    return f"{what} (log: {log})\n{end}"


def describe_conflict(branch: str, files: Sequence[str], hunks: str) -> str:
    """Return the text for a conflict with a branch."""
    return f"{_CONFLICT}{branch} in {list_names(files)}" + (f"\n{hunks}" if hunks else "")


def is_conflict(detail: str | None) -> bool:
    """Return whether a merge failed because of a conflict; else its gates were red, or the commit cannot be merged."""
    return (detail or "").startswith(_CONFLICT)


def find_cleared(task: Task) -> tuple[Event, ...]:
    """Return the failed merges of a task that had another cause than the task."""
    cleared: list[Event] = []
    failed: list[Event] = []
    for event in task.history:
        if event.event == HistoryEvent.MERGE_FAILED:
            failed.append(event)
        elif event.event == HistoryEvent.MERGE_CLEARED:
            cleared += failed[-1:]
    return tuple(cleared)


def is_last_return_cleared(task: Task) -> bool:
    """Return whether the task was sent back last by a failed merge that had another cause: nothing is to be changed."""
    returns = (HistoryEvent.REJECT, HistoryEvent.MERGE_FAILED, HistoryEvent.MERGE_CLEARED)
    last = next((event for event in reversed(task.history) if event.event in returns), None)
    return last is not None and last.event == HistoryEvent.MERGE_CLEARED


def find_blames(task: Task) -> tuple[Event, ...]:
    """Return the failed merges for which the task was blamed, but for conflicts."""
    cleared = find_cleared(task)
    return tuple(
        event
        for event in task.history
        if event.event == HistoryEvent.MERGE_FAILED and event not in cleared and not is_conflict(event.detail)
    )


def count_in_a_row(task: Task) -> int:
    """Return how many merges failed since the task was unblocked last, without those of another cause."""
    cleared, count = find_cleared(task), 0
    for event in reversed(task.history):
        if event.event == HistoryEvent.UNBLOCK:
            break
        count += event.event == HistoryEvent.MERGE_FAILED and event not in cleared
    return count


def last_failure(task: Task) -> str:
    """Return the text of the task's last failed merge; empty without one."""
    failures = [event for event in task.history if event.event == HistoryEvent.MERGE_FAILED]
    return (failures[-1].detail or "").strip() if failures else ""


def find_undo(task: Task) -> Event | None:
    """Return the event with which the merge of the task was undone; None if it was not."""
    return next((event for event in reversed(task.history) if event.event == HistoryEvent.UNDO), None)


def describe_undo(task: Task) -> str:
    """Return as what the task was undone, and why; empty if it was not."""
    event = find_undo(task)
    if event is None:
        return ""
    return f"undone as {(event.commit or '')[:10]}{': ' + event.detail if event.detail else ''}"


def first_line(detail: str | None) -> str:
    """Return the first line: why the merge failed, without the output."""
    return next(iter((detail or "").strip().splitlines()), "")


def inspect_command(task: Task) -> str:
    """Return the command that shows the log of the last failure, or the task if there is no log."""
    log = _LOG.search(first_line(last_failure(task)))
    return f"less {log[1]}" if log else f"liza task show {task.id}"
