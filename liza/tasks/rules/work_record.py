"""The work record of an agent: what became of the tasks that it had; and whom a task is routed to. Pure.

A record is derived from the histories of tasks, so it is as lasting as they are: it needs no slot, no session, and no
entry of the agent on the board.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from liza.model.history_events import HistoryEvent
from liza.model.model import Event, State, Status, Task
from liza.model.paths import agent_of
from liza.model.spending import LedgerEntry
from liza.model.value_classes import FrozenStruct, Value

E = HistoryEvent
_MAX_AREAS = 12


class TaskOutcome(StrEnum):
    """What became of a task for one coder. GIVEN_UP: it was dropped or replaced, or another coder has it now."""

    MERGED = "merged"
    FAILED = "failed"
    GIVEN_UP = "given up"
    OPEN = "open"


class TaskRecord(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent did on a task.

    ``seconds``: from its first claim to the approval of its work, None without one. ``cost``: US dollars, None if its
    programs report none. ``paths``: files that the merge changed.
    """

    task: str
    outcome: TaskOutcome
    tries: int = 0
    reviews: int = 0
    rejections: int = 0
    failed_merges: int = 0
    seconds: int | None = None
    cost: float | None = None
    tokens: int = 0
    programs: tuple[str, ...] = ()
    merge_commit: str | None = None
    paths: tuple[str, ...] = ()

    @property
    def is_approved_at_once(self) -> bool:
        """Whether the first review approved it."""
        return self.reviews > 0 and self.rejections == 0


class ReviewRecord(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The reviews of an agent. ``failed_merges``: how often a commit that it approved did not merge."""

    approved: int = 0
    rejected: int = 0
    failed_merges: int = 0


def task_record(task: Task, agent: str, entries: Iterable[LedgerEntry]) -> TaskRecord | None:
    """Return what ``agent`` did on a task as its coder; None if it never claimed it. ``entries``: the whole ledger."""
    own = _own_events(task, agent)
    if not own:
        return None
    used = [entry for entry in entries if entry.task == task.id and agent_of(entry.run) == agent]
    costs = [entry.used.cost for entry in used if entry.used is not None and entry.used.cost is not None]
    counts = Counter(event.event for event in own)
    approvals = [event.time for event in own if event.event == E.APPROVE]
    outcome = _outcome(task, agent, own)
    return TaskRecord(
        task=task.id,
        outcome=outcome,
        tries=counts[E.CLAIM] + counts[E.RESUME],
        reviews=counts[E.APPROVE] + counts[E.REJECT] + counts[E.DEADLOCK],
        rejections=counts[E.REJECT] + counts[E.DEADLOCK],
        failed_merges=counts[E.MERGE_FAILED] - counts[E.MERGE_CLEARED],
        seconds=int((approvals[-1] - own[0].time).total_seconds()) if approvals else None,
        cost=round(sum(costs), 4) if costs else None,
        tokens=sum(entry.used.tokens for entry in used if entry.used is not None),
        programs=tuple(sorted({entry.program for entry in used})),
        merge_commit=task.merge_commit if outcome is TaskOutcome.MERGED else None,
    )


def _own_events(task: Task, agent: str) -> list[Event]:
    """Return the events of a task from each claim of ``agent`` to the next claim of another coder."""
    own: list[Event] = []
    coder: str | None = None
    for event in task.history:
        if event.event == E.CLAIM:
            coder = event.agent
        if coder == agent:
            own.append(event)
    return own


def _outcome(task: Task, agent: str, own: Sequence[Event]) -> TaskOutcome:
    if task.history[-1] is not own[-1] or agent in task.failed_by:
        return TaskOutcome.FAILED if agent in task.failed_by else TaskOutcome.GIVEN_UP
    if task.status is Status.MERGED:
        return TaskOutcome.MERGED
    return TaskOutcome.GIVEN_UP if task.status in (Status.SUPERSEDED, Status.ABANDONED) else TaskOutcome.OPEN


def review_record(tasks: Iterable[Task], agent: str) -> ReviewRecord:
    """Return what ``agent`` reviewed."""
    counts: Counter[str] = Counter()
    for task in tasks:
        approver: str | None = None
        for event in task.history:
            if event.event in (E.APPROVE, E.REJECT, E.DEADLOCK):
                approver = event.agent if event.event == E.APPROVE else None
                counts[E.APPROVE if approver else E.REJECT] += event.agent == agent
            elif event.event == E.MERGE_FAILED:
                counts[E.MERGE_FAILED] += approver == agent
            elif event.event == E.MERGE_CLEARED:
                counts[E.MERGE_FAILED] -= approver == agent
    return ReviewRecord(approved=counts[E.APPROVE], rejected=counts[E.REJECT], failed_merges=counts[E.MERGE_FAILED])


def success_rates(records: Sequence[TaskRecord]) -> dict[str, float | None]:
    """Return the shares of tasks that were approved at the first review, merged, failed and given up, each 0 to 1.

    Open tasks count only for the first, which is a share of the reviewed tasks. None without such tasks.
    """
    reviewed = [record for record in records if record.reviews]
    closed = [record for record in records if record.outcome is not TaskOutcome.OPEN]
    outcomes = Counter(record.outcome for record in closed)
    return {
        "approved_at_once": _share(sum(record.is_approved_at_once for record in reviewed), len(reviewed)),
        "merged": _share(outcomes[TaskOutcome.MERGED], len(closed)),
        "failed": _share(outcomes[TaskOutcome.FAILED], len(closed)),
        "given_up": _share(outcomes[TaskOutcome.GIVEN_UP], len(closed)),
        "rejections_per_task": _share(sum(record.rejections for record in records), len(reviewed)),
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def count_areas(records: Iterable[TaskRecord]) -> dict[str, int]:
    """Return in how many merged tasks each directory was changed, most first; ``.`` is the top directory.

    A directory is named by its first two parts.
    """
    return _count("/".join(path.split("/")[:-1][:2]) or "." for record in records for path in _distinct(record.paths))


def count_languages(records: Iterable[TaskRecord]) -> dict[str, int]:
    """Return in how many merged tasks files with each suffix were changed, most first; ``.py``, ``.ts``."""
    return _count(suffix for record in records for suffix in sorted({_suffix(path) for path in record.paths} - {""}))


def _distinct(paths: Sequence[str]) -> list[str]:
    """Return one path for each directory."""
    return list({"/".join(path.split("/")[:-1][:2]): path for path in paths}.values())


def _suffix(path: str) -> str:
    name = path.rpartition("/")[2]
    stem, dot, suffix = name.rpartition(".")
    return f".{suffix}" if stem and dot else ""


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common(_MAX_AREAS))


PREFERENCE_SECONDS = 20
"""How long a claimable task is kept for the agent that fits best. An idle supervisor claims within a second."""


class Preference(Value):
    """The idle agent whose record fits a task best. ``fits``: the fit of each idle agent that may take the task.

    ``seconds``: how long the task is still kept for it.
    """

    agent: str
    fits: Mapping[str, float]
    seconds: float

    @property
    def why(self) -> str:
        """Describe the decision in one clause."""
        others = [f"{name} {fit:g}" for name, fit in self.fits.items() if name != self.agent]
        beside = f" (beside {', '.join(others)})" if others else ""
        return f"the record of {self.agent} fits best: {self.fits[self.agent]:g}{beside}"


def fit(records: Sequence[TaskRecord], scope: str) -> float:
    """Return how well a record fits a scope, 0 or more.

    Each merged task that changed a file in the scope counts 1, less after rejections and failed merges. The sum is
    multiplied by the share of the agent's closed tasks that were merged.
    """
    areas = scope_areas(scope)
    merged = [record for record in records if record.outcome is TaskOutcome.MERGED]
    related = [record for record in merged if _touches(record.paths, areas)]
    share = success_rates(records)["merged"] or 0.0
    return round(share * sum(1 / (1 + record.rejections + record.failed_merges) for record in related), 3)


def scope_patterns(scope: str) -> frozenset[str]:
    """Return the paths that a scope names, with wildcards: its words with a slash or a dot inside."""
    words = (word.lstrip("`'\"():").rstrip("`'\"():.").removeprefix("./") for word in re.split(r"[\s,;]+", scope))
    return frozenset(word.rstrip("/") for word in words if re.search(r"/|[\w*]\.\w", word) and word.strip("/"))


def scope_areas(scope: str) -> frozenset[str]:
    """Return the paths that a scope names, each up to the first wildcard."""
    named = (re.split(r"[*?\[]", name, maxsplit=1)[0].rstrip("/") for name in scope_patterns(scope))
    return frozenset(area for area in named if area)


def scope_names(scope: str) -> frozenset[str]:
    """Return the paths that a scope names, each up to the first wildcard, and its other words: ``Makefile`` is one."""
    words = (word.strip("`'\"():,;").rstrip("/") for word in scope.split())
    return scope_areas(scope) | frozenset(word for word in words if word)


def _touches(paths: Iterable[str], areas: Iterable[str]) -> bool:
    return any(path == area or path.startswith(f"{area}/") for area in areas for path in paths)


def choose(fits: Mapping[str, float], seconds: float) -> Preference | None:
    """Return the agent with the best fit; None if no record fits. Of equal fits the first counts."""
    best = max(fits, key=lambda name: fits[name], default=None)
    return None if best is None or fits[best] <= 0 else Preference(best, fits, seconds)


def preference_seconds(state: State, task: Task, now: datetime) -> float:
    """Return for how many seconds more a task may be kept for one agent; 0 if that time is over or not known.

    It begins with the last event of the task and of the tasks that it depends on.
    """
    others = [state.task(name) for name in task.depends_on]
    times = [other.history[-1].time for other in (task, *others) if other is not None and other.history]
    if not times:
        return 0.0
    passed = now - max(times)
    # If the clock was set back, the last event is in the future. Then nothing is kept.
    left = timedelta(seconds=PREFERENCE_SECONDS) - passed
    return left.total_seconds() if timedelta(0) <= passed and left > timedelta(0) else 0.0
