"""How well the work record of an agent fits a task, for `config.routing: record`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from liza.model.model import State, Task
from liza.model.value_classes import Value
from liza.tasks.rules.work_record import TaskOutcome, TaskRecord, success_rates

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


def scope_areas(scope: str) -> frozenset[str]:
    """Return the paths that a scope names: its words with a slash or a dot inside, up to the first wildcard."""
    words = (re.sub(r"^\./", "", word.strip("`'\"():")).rstrip(".") for word in re.split(r"[\s,;]+", scope))
    named = (re.split(r"[*?\[]", word, maxsplit=1)[0].rstrip("/") for word in words if re.search(r"/|\w\.\w", word))
    return frozenset(area for area in named if area)


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
