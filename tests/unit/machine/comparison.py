"""The same facts of the board and of the model, so that they can be compared; and what always holds on a board."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

from liza.breaker.rules.breaker_trips import open_trips
from liza.model import invariants
from liza.model.errors import LizaError
from liza.model.history_events import HistoryEvent
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.transitions import find_illegal_changes, find_unexplained_step
from tests.unit.house.test_typed_commands import complaint
from tests.unit.machine.reference_model import Entry, ReferenceModel

FIELDS = {
    "coder": "assigned_to", "run": "run", "lease": "lease_expires", "slot": "worktree", "reviewer": "reviewing_by",
    "review_run": "review_run", "review_lease": "review_lease_expires", "commit": "review_commit",
    "approver": "approved_by", "failed": "failed_by", "rounds": "review_cycles_current", "idle": "idle_sessions",
    "silent_reviews": "reviews_without_verdict", "deps": "depends_on", "successors": "superseded_by", "epic": "epic",
    "target": "target", "hold": "merge_hold", "review": "review",
}  # fmt: skip
"""Fields of a task: name in the model → name on the board."""
DERIVED = ("status", "reserved", "candidate", "waits", "retried", "landed", "undo", "last")


def all_runs(state: State) -> frozenset[str]:
    """Return every run that there was."""
    return frozenset(f"{name}.{number}" for name, agent in state.agents.items() for number in range(1, agent.runs + 1))


def task_facts(task: Task) -> Entry:
    """Return what the model says about a task, as the board has it."""
    taken, merging = task.reservation, task.merging
    return {
        **{ours: getattr(task, name) for ours, name in FIELDS.items()},
        "status": task.status.value,
        "reserved": taken and (taken.run, taken.previous_run, taken.slot),
        "candidate": merging and ("begun" if merging.tested is None else "tested"),
        "waits": bool(merging and merging.waiting),
        "retried": task.set_aside is not None,
        "landed": task.landed is not None,
        "undo": "" if task.undo is None else "begun" if task.status is Status.MERGED else "done",
        "last": task.history[-1].time,
    }


def board_facts(state: State) -> dict[str, Any]:
    """Return what the model says about everything else, as the board has it."""
    reports = {entry.id: entry for entry in state.discovered}
    ends = {name: "converted" if entry.converted_to_task else "resolved" for name, entry in reports.items()}
    found = {name: "open" if entry.is_open else ends[name] for name, entry in reports.items()}
    numbered = enumerate(state.anomalies, 1)
    return {
        "goal": state.goal.status,
        "runs": {name: agent.runs for name, agent in state.agents.items()},
        "planning": (state.planning.run, state.planning.trigger, state.planning.lease_expires),
        "reports": {**found, **{f"a-{index}": "resolved" if entry.resolved else "open" for index, entry in numbered}},
        "trips": tuple(trip.severity for trip in open_trips(state)),
        "epics": {
            name: (frozenset(entry.contains), entry.merging and entry.merging.step.value, entry.mends)
            for name, entry in state.epics.items()
        },
    }


def model_facts(model: ReferenceModel) -> dict[str, Any]:
    """Return the facts of ``board_facts`` from the model."""
    return {
        "goal": model.goal,
        "runs": model.runs,
        "planning": tuple(model.plan[name] for name in ("run", "trigger", "lease")),
        "reports": model.reports,
        "trips": model.trips,
        "epics": {name: (entry["contains"], entry["candidate"], entry["mends"]) for name, entry in model.epics.items()},
    }


def differences(state: State, model: ReferenceModel) -> list[str]:
    """Return where board and model differ, one line each; empty if they agree."""
    found = [f"tasks: {sorted(task.id for task in state.tasks)}, the model has {sorted(model.tasks)}"]
    found = found if {task.id for task in state.tasks} != set(model.tasks) else []
    for task in state.tasks:
        facts, entry = task_facts(task), model.tasks.get(task.id, {})
        wrong = [name for name in (*FIELDS, *DERIVED) if entry and facts[name] != entry[name]]
        found += [f"{task.id}: {name} is {facts[name]!r}, the model says {entry[name]!r}" for name in wrong]
    ours, theirs = model_facts(model), board_facts(state)
    return found + [
        f"{name}: {theirs[name]!r}, the model says {ours[name]!r}" for name in ours if ours[name] != theirs[name]
    ]


def check_step(before: State, after: State) -> None:
    """Check what holds after each change of a board, whatever the model says."""
    moved = {task.id for task in before.tasks} - {task.id for task in after.tasks}
    kept = [task for task in before.tasks if task.id not in moved]
    assert all(task.status in FINAL_STATUSES for task in before.tasks if task.id in moved)
    assert (
        find_illegal_changes(before.__class__(version=1, revision=1, goal=before.goal, tasks=tuple(kept)), after) == ()
    )
    violations = [str(violation) for violation in invariants.check_board(after)]
    assert not violations, violations
    old = {task.id: task for task in kept}
    for task in after.tasks:
        previous = old.get(task.id)
        if previous is not task:
            check_task(previous, task)
    assert all(after.agents[name].runs >= agent.runs for name, agent in before.agents.items())
    holders = Counter(agent for task in after.tasks for agent in holders_of(task))
    holders.update(filter(None, [after.planning.run and after.planning.run.rpartition(".")[0]]))
    assert all(count == 1 for count in holders.values()), f"one agent holds more than one thing: {holders}"


def holders_of(task: Task) -> list[str]:
    """The agents that claim, hold or review a task."""
    claims = [task.assigned_to] if task.status is Status.CLAIMED else []
    taken = [task.reservation.agent] if task.reservation else []
    return [agent for agent in (*claims, *taken, task.reviewing_by) if agent]


def check_task(previous: Task | None, task: Task) -> None:
    """Check one task that changed: its history only grows, and its verdict is another's, on exactly its commit."""
    if previous is not None:
        assert task.history[: len(previous.history)] == previous.history, "the history was rewritten"
    assert find_unexplained_step(task) is None
    if task.status in FINAL_STATUSES:
        assert (task.worktree, task.reservation, task.merging, task.reviewing_by) == (None, None, None, None)
    if task.status in (Status.APPROVED, Status.MERGED):
        verdict = [event for event in task.history if event.event == HistoryEvent.APPROVE][-1]
        assert (verdict.commit, verdict.agent) == (task.review_commit, task.approved_by)
        authors = {event.agent for event in task.history if event.event == HistoryEvent.CLAIM}
        assert task.approved_by not in authors, "an agent approved its own work"


def check_refusal(refusal: LizaError) -> None:
    """Check that a refusal is one of a rule, says why, and names a command that exists."""
    assert refusal.exit_code in (1, 2), f"a refusal that is none: {refusal!r}"
    assert refusal.message.strip()
    assert refusal.hint.startswith(("liza ", "git ")), f"no command: {refusal.hint!r}"
    assert command_problem(refusal.hint) is None


@cache
def command_problem(hint: str) -> str | None:
    """Return what of a hint does not exist; None if it is a command that can be typed."""
    command = hint.partition(", or: ")[2] or hint
    return complaint(command) if command.startswith("liza ") else None
