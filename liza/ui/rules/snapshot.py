"""What was read of a crew at one moment, for the picture."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from liza.merging.queue import QueueReport
from liza.model.gates import GateRun
from liza.model.model import Task
from liza.model.value_classes import Value, replace
from liza.programs.rules.session_events import LoggedEvent
from liza.tasks.diff import TaskDiff
from liza.usage.program_accounts import AccountReport
from liza.view.history import PastNews
from liza.view.metrics import UsageReport
from liza.view.rules.structs import Picture


class Unread(Value):
    """A part that could not be read. It is drawn as ``?`` with the reason: never as zero, none or idle.

    ``next``: a command.
    """

    reason: str
    next: str


class ScreenName(StrEnum):
    """A screen of the picture. The first six have a digit as key; SESSION and TASK are opened from a line."""

    NOW = "Now"
    BOARD = "Board"
    AGENTS = "Agents"
    QUEUE = "Queue"
    COSTS = "Costs"
    HISTORY = "History"
    SESSION = "Session"
    TASK = "Task"
    HELP = "Keys"


SCREEN_PARTS: Final[Mapping[ScreenName, str]] = {
    ScreenName.QUEUE: "queue",
    ScreenName.COSTS: "costs",
    ScreenName.HISTORY: "latest",
    ScreenName.SESSION: "session",
    ScreenName.TASK: "task",
}
"""The part of the snapshot without which a screen cannot be drawn."""


class Wanted(Value):
    """What has to be read beside the picture. ``subject``: the task of TASK, the agent or the run of SESSION."""

    screen: ScreenName = ScreenName.NOW
    subject: str = ""


class TaskPage(Value):
    """A task with the text of `task show`, with colours, its diff, and the runs of gates on its candidates.

    ``texts`` and ``facts``: what that text is made of, with labels.
    """

    task: Task
    text: str
    diff: TaskDiff | Unread
    tests: tuple[GateRun, ...] | Unread = ()
    texts: tuple[tuple[str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


class SessionPage(Value):
    """The events of a session, oldest first. ``run``: empty if the agent had none yet. ``task``: what it works on.

    ``notes``: what its output does not say.
    """

    run: str
    events: tuple[LoggedEvent, ...]
    task: str = ""
    notes: tuple[str, ...] = ()


class Snapshot(Value, kw_only=True):
    """A crew at ``time``. Parts that no screen shows now are None: they were not read.

    ``feed``: why changes are not seen at once, for the header; empty while they are. ``fault``: why the crew cannot be
    read; the picture is then the last good one, or ``fault`` itself.
    """

    time: datetime
    wanted: Wanted
    picture: Picture | Unread
    latest: PastNews | Unread | None = None
    queue: QueueReport | Unread | None = None
    costs: UsageReport | Unread | None = None
    accounts: AccountReport | Unread | None = None
    task: TaskPage | Unread | None = None
    session: SessionPage | Unread | None = None
    feed: str = ""
    fault: Unread | None = None


def keep_last_good(before: Snapshot | None, after: Snapshot) -> Snapshot:
    """Return the new snapshot; if the crew could not be read, with the time and the picture of the one before."""
    if not isinstance(after.picture, Unread):
        return after
    if before is None or isinstance(before.picture, Unread):
        return replace(after, fault=after.picture)
    return replace(after, fault=after.picture, picture=before.picture, time=before.time)
