"""What a person must know of merges that failed, and of what merges could not bring along. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from liza.rules.model import Task


class Alarm(msgspec.Struct, frozen=True):
    """``kind`` is a word for programs, ``about`` the entry, ``next`` one command."""

    kind: str
    about: str
    message: str
    next: str
    waiting_since: datetime | None = None


class AbsentCheckout(msgspec.Struct, frozen=True):
    """A checkout of integration that was not there when the branch moved, and the commit that it was left at."""

    place: str
    left: str
    branch: str


def retry_alarms(task: Task) -> Iterator[Alarm]:
    """A merge that failed and is tried again. One dead merger alone is none: the next one begins at once."""
    aside = task.set_aside
    if aside is None or aside.until is None:
        return
    times = "once" if aside.tries == 1 else f"{aside.tries} times"
    reason = " ".join(aside.reason.split())
    message = f"{task.id} is approved and could not be merged ({times}): {reason[:400]}"
    next_try = f"; the next try is at {aside.until:%H:%M:%SZ}, others are merged meanwhile"
    again = f"liza merge {task.id}"
    step = f"{aside.hint} && {again}" if _is_simple(aside.hint) and aside.hint != again else again
    yield Alarm("merge_set_aside", task.id, message + next_try, step)


def _is_simple(command: str) -> bool:
    """Whether ``command`` is one command, without shell operators. It comes from the board, which agents can write."""
    try:
        words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    except ValueError:
        return False
    operators = any(not set(word) - set("();<>|&") for word in words if word)
    return bool(words) and not operators and command.isprintable() and not set("`$") & set(command)


def absent_checkout_alarms(places: Sequence[AbsentCheckout]) -> Iterator[Alarm]:
    """Checkouts whose index lags behind their branch: a commit there would revert what was merged since."""
    for one in places:
        message = (
            f"{one.branch} is checked out in {one.place}, which was not there when tasks were merged: a commit there "
            "would revert them. The next merge brings it along, or the command does, once it is there"
        )
        step = f"git -C {shlex.quote(one.place)} read-tree -m -u {one.left[:12]} HEAD"
        yield Alarm("checkout_away", one.place, message, step)


def stuck_slot_alarms(directories: Sequence[str]) -> Iterator[Alarm]:
    """Slots that could not be emptied: what is in them is kept, and is the person's to remove."""
    for place in directories:
        message = f"a worktree could not be emptied (files of another user?); it was replaced, and is kept as {place}"
        yield Alarm("slot_set_aside", place, message, f"sudo rm -rf {shlex.quote(place)}")
