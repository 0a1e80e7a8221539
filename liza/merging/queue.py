"""queue: show the merge queue, and let a person change its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import git_refs
from liza.git.runner import Git
from liza.merging import gate_log, merge_lock, merge_recovery
from liza.merging.rules import merge_queue
from liza.merging.rules.merge_queue import Batch, QueueExit, QueueRow, queue_rows
from liza.model import gates, targets
from liza.model.configuration import Gate
from liza.model.errors import GitFailed
from liza.model.gates import GateOutcome, GateRun
from liza.model.model import State, Task
from liza.model.value_classes import Value, replace
from liza.tasks import archive
from liza.tasks.rules import claims


class RunReport(Value):
    """A run of a gate over the first ``tasks`` of a batch."""

    gate: str
    tasks: int
    outcome: str
    seconds: float


class BatchReport(Value):
    """A batch under test: its tasks, the branch ``into`` which it is merged, and the runs of its gates."""

    tasks: tuple[str, ...]
    into: str
    candidate: str
    base: str
    tested: bool | None
    waiting: tuple[str, ...]
    runs: tuple[RunReport, ...]


class GateReport(Value):
    """A gate, and what its recent runs say: how many were red, how often it was flaky, and the seconds it takes."""

    name: str
    command: str
    paths: tuple[str, ...]
    timeout: int
    runs: int
    red: int
    flaky: int
    seconds: float | None


class QueueReport(Value):
    """The approved tasks in their order, the batches that are being merged, and the gates. Times are in seconds.

    ``left``: the tasks that left the queue last, newest first.
    """

    queue: tuple[QueueRow, ...]
    batches: tuple[BatchReport, ...]
    gates: tuple[GateReport, ...]
    merging: bool
    left: tuple[QueueExit, ...] = ()
    setup: GateReport | None = None
    """The set-up of the merge slots, if there is one."""


_SET_UP = "set-up"
MAX_EXITS = 10
"""Tasks that left the queue, of a report."""


def show_queue(crew: Crew) -> QueueReport:
    """Return the merge queue as it is now. Raises LizaError if a file cannot be read."""
    state, runs = crew.board.read(), gate_log.refresh_runs(crew)
    is_merging, now = merge_lock.is_merger_running(crew.paths), crew.clock.now()
    return QueueReport(
        _queue_rows(crew, state, runs),
        tuple(_report_batch(batch, runs, now, is_merging=is_merging) for batch in merge_queue.find_batches(state)),
        tuple(_report_gate(state, runs, gate) for gate in state.config.all_gates),
        is_merging,
        merge_queue.find_exits(state)[:MAX_EXITS],
        _report_setup(state, runs),
    )


def _queue_rows(crew: Crew, state: State, runs: tuple[GateRun, ...]) -> tuple[QueueRow, ...]:
    rows = queue_rows(state, crew.clock.now())
    batches: dict[int, list[Task]] = {}
    for row in rows:
        if row.batch is not None:
            batches.setdefault(row.batch, []).append(claims.get_task(state, row.id))
    ends = dict(zip(batches, _estimate_ends(crew.git, state, runs, list(batches.values())), strict=True))
    return tuple(row if row.batch is None else replace(row, estimate=ends[row.batch]) for row in rows)


def _estimate_ends(
    git: Git, state: State, runs: tuple[GateRun, ...], batches: Sequence[Sequence[Task]]
) -> list[float | None]:
    """Return in how many seconds each batch ends; None from the first one on whose time is unknown."""
    ends: list[float | None] = []
    end: float | None = 0.0
    for batch in batches:
        branch = targets.target_branch(state, batch[0])
        seconds = gates.estimate_batch_seconds(state.config, runs, branch, _changed_paths(git, state, branch, batch))
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


def _report_batch(batch: Batch, runs: tuple[GateRun, ...], now: datetime, *, is_merging: bool) -> BatchReport:
    first = batch.members[0].merging
    shown = (
        _report_run(run, now)
        for member in batch.members
        for run in gates.last_runs(runs, member.merging.candidate)
        if is_merging or run.outcome is not GateOutcome.RUNNING
    )
    return BatchReport(
        batch.ids, batch.branch, batch.tip, batch.expected, first.tested, tuple(first.waiting), tuple(shown)
    )


def _report_run(run: GateRun, now: datetime) -> RunReport:
    seconds = (now - run.time).total_seconds() if run.outcome is GateOutcome.RUNNING else run.seconds
    name = _SET_UP if run.gate == gates.SET_UP_RUN else run.gate
    return RunReport(name, run.tasks, run.outcome.value, seconds)


def _report_setup(state: State, runs: tuple[GateRun, ...]) -> GateReport | None:
    setup = state.config.sandbox_setup
    if not setup:
        return None
    return replace(_report_gate(state, runs, Gate(name=gates.SET_UP_RUN, command=setup)), name=_SET_UP)


def _report_gate(state: State, runs: tuple[GateRun, ...], gate: Gate) -> GateReport:
    recent = gates.recent_runs(runs, gate.name)
    return GateReport(
        name=gate.name,
        command=gate.command,
        paths=tuple(gate.paths),
        timeout=gate.timeout or state.config.integration_timeout,
        runs=len(recent),
        red=sum(run.outcome is not GateOutcome.GREEN for run in recent),
        flaky=gates.count_flaky(recent),
        seconds=gates.estimate_seconds(recent),
    )


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
    archive.refuse_archived(crew.board, crew.board.read(), [task_id])
    merge_recovery.recover_if_dead(crew, by, task_id)
    with crew.change(by, "queue", task_id) as tx:
        tx.state = change(tx.state, task_id)
    return replace(make_result(tx.before, tx.state, task_id, "liza queue"), message=message)
