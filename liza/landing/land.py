"""land: bring integration to a branch of the person, when the person says so."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import Any

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import git_refs, integration_tip, merges
from liza.git.branch_moves import MoveOutcome
from liza.git.integration_tip import find_landed
from liza.merging import candidate, drift, merge_outcomes
from liza.merging.merge_lock import hold_merge_lock, recover_dead_merger
from liza.model import gates, targets
from liza.model.errors import Refused, UnknownId
from liza.model.model import Status, Task
from liza.model.value_classes import Value
from liza.tasks import archive
from liza.text.formats import count_noun

_NAME = "land"
"""Name of the landing in logs."""


class Landing(Value):
    """The branch that a person lands on, its tip, and the tip of integration.

    ``landed`` is the newest commit of integration whose work the branch has.
    """

    branch: str
    before: str
    integration: str
    tip: str
    landed: str


def describe_landing(crew: Crew, branch: str | None = None) -> dict[str, Any]:
    """Return what a landing on ``branch``, by default the current one, would bring. Nothing is changed or tested.

    ``ahead``: how many commits of integration have work that the branch does not have. ``behind``: how many commits of
    the branch integration does not have; only without any it can be landed. Raises Missing, Refused, UnknownId,
    GitFailed.
    """
    landing = find_landing(crew, branch)
    ahead, behind = len(_list_new(crew, landing)), _count_own(crew, landing)
    forward = _land_command(branch) if ahead else "liza status"
    return {
        "branch": landing.branch,
        "integration": landing.integration,
        "commit": landing.tip,
        "ahead": ahead,
        "behind": behind,
        "tasks": [task.id for task in landed_tasks(crew, landing)],
        "open": [task.id for task in crew.board.read().tasks if task.status is Status.APPROVED],
        "next": f"liza sync {shlex.quote(landing.branch)}" if behind else forward,
    }


def land_merge(crew: Crew, branch: str | None = None, *, untested: bool = False) -> Result:
    """Move ``branch``, by default the current one, forward to integration, after all gates passed on that commit.

    The branch moves by compare-and-swap, together with its checkout. Raises Refused if it has commits that integration
    does not have, if a gate is red or, without ``untested``, says nothing about the commit, or if changed files are in
    the way; then the branch is unchanged. Also raises Missing, UnknownId, GitFailed.
    """
    by = require_person(crew, planner=False)
    with hold_merge_lock(crew) as locked:
        recover_dead_merger(locked, by)
        landing = find_landing(locked, branch)
        again = _land_command(branch, untested=untested)
        own = _count_own(locked, landing)
        if landing.landed == landing.tip:
            message = f"{landing.branch} has all of {landing.integration} already"
            step = f"liza sync {shlex.quote(landing.branch)}" if own else "liza status"
            return Result("unchanged", None, None, step, _details(landing, [], tested=None), message)
        if own:
            missing = f"{landing.branch} has commits that {landing.integration} does not have"
            step = f"liza sync {shlex.quote(landing.branch)} && {again}"
            raise Refused(f"{missing}: they were never tested together", step)
        tasks = [task.id for task in landed_tasks(locked, landing)]
        result = run_landing_gates(locked, landing, untested=untested)
        _advance(locked, landing, again)
        with suppress(*merge_outcomes.CAUGHT_ERRORS):
            locked.append_alert_log([f"landed  {by} brought {landing.tip[:10]} to {landing.branch}. Next: git log"])
    tested = result.tested and not result.remarks
    word = gates.describe_tested(tested, result.remarks)
    message = f"{landing.branch} is at {landing.tip[:10]} with {count_noun(len(tasks), 'task')}, {word}"
    details = {**_details(landing, tasks, tested=tested), "remarks": result.remarks}
    step = f"git log {git_refs.type_revision(crew.git, landing.branch)}"
    return Result("changed", None, None, step, details, message)


def _land_command(branch: str | None, *, untested: bool = False) -> str:
    words = ["liza", "land", "--merge", *([branch] if branch else []), *(["--untested"] if untested else [])]
    return shlex.join(words)


def _details(landing: Landing, tasks: list[str], *, tested: bool | None) -> dict[str, Any]:
    return {
        "branch": landing.branch,
        "before": landing.before,
        "commit": landing.tip,
        "tasks": tasks,
        "tested": tested,
    }


def find_landing(crew: Crew, branch: str | None) -> Landing:
    """Return what is landed on ``branch``, by default the current one.

    Raises Missing, Refused, UnknownId, GitFailed.
    """
    state = crew.board.read()
    integration = state.config.integration_branch
    tip = integration_tip.require_integration(crew.git, state)
    if branch is None:
        branch = git_refs.current_branch(crew.git)
        if branch is None or branch == integration:
            which = f"{integration} itself is" if branch else "no branch is"
            step = git_refs.branch_command(crew.git, "liza land", integration)
            raise Refused(f"{which} checked out: name the branch to land on", step)
    before = merges.branch_tip(crew.git, branch)
    if before is None:
        step = git_refs.branch_command(crew.git, "liza land", integration)
        raise UnknownId(f"there is no branch {branch!r} to land on", step)
    if branch == integration or targets.is_crew_branch(branch):
        step = git_refs.branch_command(crew.git, "liza land", integration)
        raise Refused(f"{branch} is a branch of the crew: land on one of yours", step)
    moved = drift.find_integration_drift(crew)
    if moved is not None:
        raise Refused(moved.message, drift.recovery_commands(crew.git, moved))
    return Landing(branch, before, integration, tip, find_landed(crew.git, before, tip))


def _list_new(crew: Crew, landing: Landing) -> list[str]:
    """Return the commits of integration whose work the branch does not have."""
    return crew.git.out("rev-list", landing.tip, "--not", landing.before, landing.landed).split()


def _count_own(crew: Crew, landing: Landing) -> int:
    """Return how many commits the branch has that integration does not have."""
    return int(crew.git.out("rev-list", "--count", f"{landing.tip}..{landing.before}"))


def landed_tasks(crew: Crew, landing: Landing) -> list[Task]:
    """Return the merged tasks whose work the branch does not have yet, archived ones first. Raises LizaError."""
    commits, state = set(_list_new(crew, landing)), crew.board.read()
    on_board = [task for task in state.tasks if task.merge_commit in commits]
    return [*archive.find_merged(crew.paths, state, commits), *on_board]


def run_landing_gates(crew: Crew, landing: Landing, *, untested: bool = False) -> candidate.CandidateResult:
    """Run all gates on the tip of integration. The caller holds the merge lock.

    Raises Refused if one is red or, without ``untested``, says nothing about the commit.
    """
    run = candidate.CandidateRun(
        _NAME, landing.tip, landing.tip, landing.integration, 0, replaces=landing.before, always=untested
    )
    result = candidate.run_candidate_tests(crew, run)
    if result.moved_refs:
        crew.append_alert_log([f"tests_moved_refs  {result.told('the landing')}. Next: git reflog"])
    log = f"less {shlex.quote(str(crew.paths.logs / f'merge-{_NAME}.log'))}"
    if result.rewound_from is not None:
        restored = merge_outcomes.restore_branch(crew, landing.integration, result.rewound_from)
        raise Refused(f"nothing was landed: {result.told('the landing')}; {restored}", log)
    if result.failure is not None:
        raise Refused(f"nothing was landed: {landing.integration} is red: {result.failure}", log)
    if result.untested is not None and not untested:
        hint = result.untested.hint or "liza land --merge --untested"
        raise Refused(f"nothing was landed: {landing.integration} is untested: {result.untested.text}", hint)
    return result


def _advance(crew: Crew, landing: Landing, again: str) -> None:
    """Move the branch and its checkout. Raises Refused if it has moved, or if changed files are in the way."""
    advance = merges.advance_branch(crew.git, landing.branch, landing.tip, landing.before)
    if advance.outcome is MoveOutcome.WAITING:
        files, step = merges.describe_blocking(advance, again)
        raise Refused(f"nothing was landed: {landing.branch} is checked out, and {files}", step)
    if advance.outcome is MoveOutcome.LOST:
        raise Refused(f"nothing was landed: {landing.branch} moved while the tests ran", again)
