"""epics: list the epics with their branches, and let a person restore or accept a branch that was moved."""

from __future__ import annotations

from typing import Any

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import merges
from liza.git.runner import Git
from liza.merging.merge_lock import hold_merge_lock
from liza.merging.rules import epic_rules
from liza.model import targets
from liza.model.errors import Refused, UnknownId
from liza.model.model import FINAL_STATUSES, Epic, State, Status
from liza.model.paths import check_task_id
from liza.tasks import task_branches


def list_epics(crew: Crew) -> list[dict[str, Any]]:
    """Return every epic of the board with its branch, its tasks, and what it waits for. Raises GitFailed."""
    state = crew.board.read()
    names = dict.fromkeys([*state.epics, *(task.epic for task in state.tasks if task.epic is not None)])
    faults = task_branches.find_faults(crew) if names else {}
    return [_epic_row(crew.git, state, name, faults.get(name)) for name in names]


def _epic_row(git: Git, state: State, name: str, fault: Refused | None) -> dict[str, Any]:
    tasks, entry = targets.tasks_of(state, name), state.epics.get(name, Epic())
    waiting = [task.id for task in tasks if task.status not in FINAL_STATUSES]
    job = epic_rules.find_job(state, name)
    if fault is not None:
        stands, why, step = "broken", fault.message, fault.hint
    elif entry.set_aside is not None:
        stands, why, step = "set aside", " ".join(entry.set_aside.reason.split()), _retry_command(name, entry)
    elif waiting:
        stands, why, step = "open", "", ""
    elif job is not None:
        stands, why, step = "to land", "", f"liza merge {job.branch}"
    else:
        stands, why, step = "landed" if entry.landed else "empty", "", ""
    return {
        "name": name,
        "branch": targets.epic_branch(name),
        "tip": merges.branch_tip(git, targets.epic_branch(name)),
        "state": stands,
        "why": why,
        "next": step,
        "open": waiting,
        "merged": [task.id for task in tasks if task.status is Status.MERGED],
        "landed": list(entry.landed),
    }


def _retry_command(name: str, entry: Epic) -> str:
    hint = entry.set_aside.hint if entry.set_aside is not None else ""
    return hint or f"liza merge {targets.epic_branch(name)}"


def restore(crew: Crew, name: str) -> Result:
    """Put the branch of an epic back to where Liza left it; what it had since is saved. Raises Refused, GitFailed."""
    require_person(crew, planner=False)
    with hold_merge_lock(crew) as locked:
        message = task_branches.restore_branch(locked, check_task_id(name))
    return Result("changed", next="liza epics", details={"epic": name}, message=message)


def accept(crew: Crew, name: str) -> Result:
    """Accept the commits of a person on the branch of an epic. Raises UnknownId, Refused, GitFailed."""
    require_person(crew, planner=False)
    state = crew.board.read()
    if check_task_id(name) not in targets.open_epics(state):
        raise UnknownId(f"there is no open epic {name!r}", "liza epics")
    with hold_merge_lock(crew) as locked:
        message = task_branches.accept_branch(locked.git, name)
    return Result("changed", next="liza epics", details={"epic": name}, message=message)
