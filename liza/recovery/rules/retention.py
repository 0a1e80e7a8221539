"""Which run directories are archived. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from liza.model.model import FINAL_STATUSES, State

UNARCHIVED_RUNS = 20
"""Number of an agent's newest run directories that are not archived."""


def runs_in_use(state: State) -> frozenset[str]:
    """Return the runs that are at work, and the last runs of tasks that are not final."""
    return frozenset(run for run in _named(state) if run is not None)


def _named(state: State) -> Iterator[str | None]:
    yield state.planning.run
    for task in state.tasks:
        if task.status not in FINAL_STATUSES:
            yield from (task.run, task.review_run)
        if task.reservation is not None:
            yield from (task.reservation.run, task.reservation.previous_run)


def runs_to_archive(runs: Sequence[str], used: frozenset[str], newest: int = UNARCHIVED_RUNS) -> tuple[str, ...]:
    """Return those of an agent's runs (oldest first) that are neither in use nor among the ``newest`` ones."""
    return tuple(run for run in runs[: max(0, len(runs) - newest)] if run not in used)
