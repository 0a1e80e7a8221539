"""queue: show the merge queue, and let a person change its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import git_refs
from liza.git.runner import Git
from liza.merging import gate_log, merge_lock, merge_recovery
from liza.merging.rules import merge_queue
from liza.merging.rules.merge_queue import Batch, QueueRow, queue_rows
from liza.model import gates, targets
from liza.model.configuration import Gate
from liza.model.errors import GitFailed
from liza.model.gates import GateOutcome, GateRun
from liza.model.model import Clock, State, Task
from liza.model.value_classes import asdict as fields_of
from liza.model.value_classes import replace
from liza.tasks import archive
from liza.tasks.rules import claims


def show_queue(crew: Crew) -> dict[str, Any]:
    """Return the approved tasks in their order, the batch that is being merged, and the gates. Times are in seconds.

    Raises LizaError if a file cannot be read.
    """
    state, runs = crew.board.read(), gate_log.read_runs(crew.paths)
    is_merging = merge_lock.is_merger_running(crew.paths)
    batches = merge_queue.find_batches(state)
    return {
        "queue": [fields_of(row) for row in _queue_rows(crew, state, runs)],
        "batches": [_batch_row(crew, batch, runs, is_merging=is_merging) for batch in batches],
        "gates": [_gate_row(state, runs, gate) for gate in state.config.all_gates],
        "merging": is_merging,
    }


def _queue_rows(crew: Crew, state: State, runs: tuple[GateRun, ...]) -> tuple[QueueRow, ...]:
    rows = queue_rows(state, crew.clock.now())
    batches: dict[int, list[Task]] = {}
    for row in rows:
        if row.batch is not None:
            batches.setdefault(row.batch, []).append(claims.get_task(state, row.id))
    ends = dict(zip(batches, _estimate_ends(crew, state, runs, list(batches.values())), strict=True))
    return tuple(row if row.batch is None else replace(row, estimate=ends[row.batch]) for row in rows)


def _estimate_ends(
    crew: Crew, state: State, runs: tuple[GateRun, ...], batches: Sequence[Sequence[Task]]
) -> list[float | None]:
    """Return in how many seconds each batch ends; None from the first one on whose time is unknown."""
    ends: list[float | None] = []
    end: float | None = 0.0
    for batch in batches:
        branch = targets.target_branch(state, batch[0])
        seconds = gates.estimate_batch_seconds(
            state.config, runs, branch, _changed_paths(crew.git, state, branch, batch)
        )
        end = None if end is None or seconds is None else round(end + seconds, 1)
        ends.append(end)
    return ends


def _changed_paths(git: Git, state: State, branch: str, batch: Iterable[Task]) -> tuple[str, ...] | None:
    """Return the files that a batch changes; None if they are unknown, or no gate depends on them."""
    if not gates.have_paths(state.config):
        return None
    commits = [task.review_commit or "" for task in batch]
    try:
        return tuple(path for commit in commits for path in git_refs.list_branch_paths(git, branch, commit))
    except GitFailed:
        return None


def _batch_row(crew: Crew, batch: Batch, runs: tuple[GateRun, ...], *, is_merging: bool) -> dict[str, Any]:
    first = batch.members[0].merging
    return {
        "tasks": list(batch.ids),
        "into": batch.branch,
        "candidate": batch.tip,
        "base": batch.expected,
        "tested": first.tested,
        "waiting": list(first.waiting),
        "runs": [
            _run_row(crew.clock, run)
            for member in batch.members
            for run in gates.last_gate_runs(runs, member.merging.candidate)
            if is_merging or run.outcome is not GateOutcome.RUNNING
        ],
    }


def _run_row(clock: Clock, run: GateRun) -> dict[str, Any]:
    is_running = run.outcome is GateOutcome.RUNNING
    seconds = (clock.now() - run.time).total_seconds() if is_running else run.seconds
    return {"gate": run.gate, "tasks": run.tasks, "outcome": run.outcome.value, "seconds": seconds}


def _gate_row(state: State, runs: tuple[GateRun, ...], gate: Gate) -> dict[str, Any]:
    recent = gates.recent_runs(runs, gate.name)
    return {
        "name": gate.name,
        "command": gate.command,
        "paths": list(gate.paths),
        "timeout": gate.timeout or state.config.integration_timeout,
        "runs": len(recent),
        "red": sum(run.outcome is not GateOutcome.GREEN for run in recent),
        "flaky": gates.count_flaky(recent),
        "seconds": gates.estimate_seconds(recent),
    }


def move(crew: Crew, task_id: str, position: int) -> Result:
    """Put an approved task at a position of the queue, counted from 1. Raises Refused, UsageError."""
    return _change(
        crew, task_id, f"{task_id} is number {position} in the queue", partial(merge_queue.move, position=position)
    )


def hold(crew: Crew, task_id: str, reason: str) -> Result:
    """Keep a task out of the queue until ``release``. Raises Refused, UsageError."""
    return _change(crew, task_id, f"{task_id} is held", partial(merge_queue.hold, reason=reason))


def release(crew: Crew, task_id: str) -> Result:
    """End the hold of a task, so that it can be merged. Raises Refused."""
    return _change(crew, task_id, f"{task_id} is not held", merge_queue.release)


def retry(crew: Crew, task_id: str) -> Result:
    """End the pause of a task whose merge failed. Raises Refused, also for a task that is held."""
    return _change(crew, task_id, f"{task_id} is merged in its turn", merge_queue.retry)


def _change(crew: Crew, task_id: str, message: str, change: Callable[[State, str], State]) -> Result:
    by = require_person(crew, planner=False)
    archive.refuse_archived(crew.paths, crew.board.read(), [task_id])
    merge_recovery.recover_if_dead(crew, by, task_id)
    with crew.change(by, "queue", task_id) as tx:
        tx.state = change(tx.state, task_id)
    return replace(make_result(tx.before, tx.state, task_id, "liza queue"), message=message)
