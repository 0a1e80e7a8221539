"""Gather the facts of a brief and of a context: from the board, git, and the agent's inbox."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from liza.briefs import inbox
from liza.briefs.brief_context import BriefContext
from liza.briefs.rules.message_rules import Message, list_quotable
from liza.crew.crew import Crew
from liza.git import sparse_checkout, survey
from liza.git.slots import slot_setup
from liza.model.errors import LizaError
from liza.model.history_events import HistoryEvent
from liza.model.model import State
from liza.model.owned_work import CurrentWork
from liza.model.paths import agent_of, run_id, run_number
from liza.model.session_ends import SessionOutcome
from liza.model.statuses import WorkKind
from liza.programs.session.run_directory import ReadyEvidence, RunDir
from liza.system.liza_path import liza_path
from liza.tasks.evidence import gather_evidence
from liza.tasks.left_work import describe_left_work
from liza.tasks.rules import planning
from liza.tasks.rules.conversations import earlier_runs
from liza.text.undecoded import escape_undecoded


def gather_brief_facts(
    crew: Crew, state: State, work: CurrentWork, directory: RunDir, messages: tuple[Message, ...] | None = None
) -> BriefContext:
    """Return the facts for the session of ``work``. ``messages``: those to show, by default all that are not read.

    A run without a directory is work by hand. Raises GitFailed, LizaError, OSError.
    """
    triggers = planning.find_triggers(state, gather_evidence(crew, state)) if work.kind == WorkKind.PLANNING else ()
    trigger = next((candidate for candidate in triggers if candidate.name == state.planning.trigger), None)
    worktree = crew.paths.slot(_slot(state, work))
    is_by_hand = _is_by_hand(directory)
    return BriefContext(
        state=state,
        run=work.run,
        now=crew.clock.now(),
        root=crew.paths.root,
        liza=liza_path(),
        worktree=worktree,
        assignment=directory.assignment_path if directory.exists() else None,
        task=state.task(work.task) if work.task else None,
        integration_tip=crew.git.out("rev-parse", f"refs/heads/{state.config.integration_branch}"),
        sparse=_sparse(crew, worktree),
        is_set_up=bool(state.config.sandbox_setup) and not (is_by_hand and _is_setup_due(crew, state, worktree)),
        hidden=_hidden_names(crew, state, worktree),
        is_by_hand=is_by_hand,
        is_confined=_is_confined(directory),
        wake_trigger=state.planning.trigger or "",
        wake_ids=state.planning.ids,
        wake_facts=trigger.facts if trigger else "",
        messages=list_quotable(inbox.list_pending(crew.paths, agent_of(work.run)) if messages is None else messages),
        unfinished=_unfinished(crew, state, work, worktree, is_by_hand),
        earlier_commits=_earlier_commits(crew, state, work, worktree),
        previous_outcome=_previous_outcome(crew, state, work),
        continues=_continued_run(directory),
    )


def _unfinished(crew: Crew, state: State, work: CurrentWork, worktree: Path, is_by_hand: bool) -> str:
    """Return the operation of git in progress in the worktree of a task, or what the last session left of one."""
    task = state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
    if task is None or not crew.worktrees.exists(worktree.name):
        return ""
    if not is_by_hand and all(event.run in (None, work.run) for event in task.history):
        return ""  # the first session of a task begins in a worktree that was just reset
    operation = survey.read_unfinished(crew.worktrees.open_git(worktree.name))
    if operation is not None:
        return f"{operation.describe(task.id)}. {operation.next_step(has_changes=True)}"
    return describe_left_work(crew, task, work.run)


def _sparse(crew: Crew, worktree: Path) -> tuple[str, ...]:
    if not crew.worktrees.exists(worktree.name):
        return ()
    return sparse_checkout.list_included(crew.worktrees.slot_git(worktree.name))


def _is_confined(directory: RunDir) -> bool:
    record = directory.read_record()
    return record is not None and record.is_confined


def _is_by_hand(directory: RunDir) -> bool:
    """Return whether no supervisor started the session: it does not exist, or a person started it with `liza run`."""
    if not directory.exists():
        return True
    sentinel = directory.read_sentinel()
    return sentinel is not None and sentinel.evidence == ReadyEvidence.BY_HAND


def _is_setup_due(crew: Crew, state: State, worktree: Path) -> bool:
    """Whether the set-up has not been run for the present files. A supervisor starts no session before it has."""
    return slot_setup.is_setup_due(crew.paths.root, crew.worktrees.slot_git(worktree.name), state.config)


def _hidden_names(crew: Crew, state: State, worktree: Path) -> tuple[str, ...]:
    """Return what the set-up left in the worktree and git ignores only there. Raises GitFailed, OSError."""
    if not state.config.sandbox_setup:
        return ()

    return slot_setup.hidden_names(crew.worktrees.slot_git(worktree.name))


def _previous_outcome(crew: Crew, state: State, work: CurrentWork) -> SessionOutcome | None:
    """Return how the session before this one ended: of the task, of its review, or of the planner's last run."""
    run = _previous_run(state, work)
    if run is None:
        return None
    with suppress(LizaError, OSError):  # an agent may have replaced the file; the topic of a beacon needs no retry
        return crew.run_dir(run).read_outcome()
    return None


def _previous_run(state: State, work: CurrentWork) -> str | None:
    task = state.task(work.task) if work.task else None
    if task is None:
        agent = agent_of(work.run)
        number = run_number(work.run, agent) or 1
        return run_id(agent, number - 1) if number > 1 else None
    if work.kind == WorkKind.WORK:
        return next(iter(earlier_runs(task, work.run)), None)
    last = next((event for event in reversed(task.history) if event.run not in (None, work.run)), None)
    return last.run if last is not None and last.event == HistoryEvent.RELEASE_REVIEW else None


def _continued_run(directory: RunDir) -> str | None:
    """Return the run whose conversation the session continues; None if the record cannot be read."""
    with suppress(LizaError, OSError):
        record = directory.read_record()
        return record.continues if record is not None else None
    return None


def _slot(state: State, work: CurrentWork) -> str:
    """Return the name of the worktree: that of a coder's task, or the agent's own."""
    task = state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
    return task.worktree if task is not None and task.worktree else agent_of(work.run)


def _earlier_commits(crew: Crew, state: State, work: CurrentWork, worktree: Path) -> tuple[str, ...]:
    """Return what earlier runs committed on the task's branch, newest first, at most 10. Raises GitFailed."""
    task = state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
    if (
        task is None
        or task.base_commit is None
        or not any(event.run != work.run for event in task.history if event.run)
    ):
        return ()
    git = crew.worktrees.slot_git(worktree.name)
    commits = f"{task.base_commit}..HEAD"
    subjects = git.lines("log", "--no-color", "--first-parent", "--format=%h %s", "-n10", commits)
    return tuple(map(escape_undecoded, subjects))
