"""The data of a brief or a context, and how they are gathered from the board, git and the agent's inbox."""

from __future__ import annotations

import shlex
from collections import Counter
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from liza.breaker.rules.breaker_patterns import find_repeated_rejections
from liza.breaker.rules.breaker_trips import open_trips
from liza.briefs import inbox
from liza.briefs.rules.message_rules import Message, list_quotable
from liza.crew.crew import Crew
from liza.git import local_files, slot_setup, survey
from liza.git.worktrees import Worktrees
from liza.model.derived import CurrentWork
from liza.model.errors import LizaError
from liza.model.history_events import FRAMING_EVENTS, HistoryEvent, session_end
from liza.model.model import Anomaly, Discovery, FailedCheck, State, Task
from liza.model.paths import Paths, agent_of, role_of, run_id, run_number
from liza.model.session_ends import SessionOutcome
from liza.model.statuses import WorkKind
from liza.model.value_classes import Value
from liza.programs.session.run_directory import ReadyEvidence, RunDir
from liza.system.installation import liza_path
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules import planning
from liza.tasks.rules.conversations import earlier_runs
from liza.tasks.task_branches import describe_left_work
from liza.text.undecoded import escape_undecoded

_REJECTIONS = (HistoryEvent.REJECT, HistoryEvent.DEADLOCK)


class BriefContext(Value):
    """The data of a brief. ``liza`` is the absolute path of the command, ``assignment`` that of the full text; None for
    work by hand, which has no file with it.

    ``task`` is None for a planner; ``wake_trigger``, ``wake_ids`` and ``wake_facts`` are its wake-up.
    ``unfinished``: the operation of git that is in progress in the worktree, or that an earlier session left.
    ``earlier_commits``: commits of earlier tries on the task's branch, newest first, one line each.
    ``sparse``: what the sparse checkout of the worktree includes; empty for a full one.
    ``is_set_up``: the set-up has been run in the worktree. ``hidden``: untracked names that git ignores only there.
    ``is_by_hand``: a person claimed the work or started the program; no supervisor does. ``is_confined``: the session
    runs in a box, with a git directory of its own.
    ``previous_outcome``: how the session before this one ended, of this task, or of a planner; None if there was none,
    or if that is not on record. ``continues``: the run whose conversation this one continues.
    """

    state: State
    run: str
    now: datetime
    root: Path
    liza: Path
    worktree: Path
    assignment: Path | None
    task: Task | None = None
    integration_tip: str = ""
    sparse: tuple[str, ...] = ()
    is_set_up: bool = False
    hidden: tuple[str, ...] = ()
    is_by_hand: bool = False
    is_confined: bool = False
    wake_trigger: str = ""
    wake_ids: tuple[str, ...] = ()
    wake_facts: str = ""
    messages: tuple[Message, ...] = ()
    unfinished: str = ""
    earlier_commits: tuple[str, ...] = ()
    previous_outcome: SessionOutcome | None = None
    continues: str | None = None

    @property
    def agent(self) -> str:
        """The agent of the run."""
        return agent_of(self.run)

    @property
    def role(self) -> str:
        """The role of the agent."""
        return role_of(self.agent)

    @property
    def liza_command(self) -> str:
        """The command, quoted for a shell."""
        return shlex.quote(str(self.liza))

    @property
    def full_text(self) -> str:
        """What has the full text: the path of the assignment, or for work by hand a command."""
        if self.assignment is not None:
            return str(self.assignment)
        return f"{self.liza_command} task show {self.task.id}" if self.task else f"{self.liza_command} status"

    @property
    def required_task(self) -> Task:
        """The task, which a coder's or a reviewer's brief must have. Raises ValueError if there is no task."""
        if self.task is None:
            raise ValueError(f"{self.run} has no task to be briefed on")
        return self.task

    @property
    def rejection(self) -> tuple[str, str] | None:
        """The agent that last rejected the work, and the reason; None if no agent has.

        A new submission removes it from the coder's brief. The reviewer's brief keeps it, because the reviewer judges
        whether the work was fixed.
        """
        if self.task is None or (self.role == "coder" and not self.task.rejection_reason):
            return None
        rejections = [event for event in self.task.history if event.event in _REJECTIONS]
        reason = self.task.rejection_reason or (rejections[-1].detail if rejections else None)
        if not reason:
            return None
        return (rejections[-1].agent if rejections and rejections[-1].agent else "the reviewer"), reason

    @property
    def repeated_rejections(self) -> tuple[str, ...]:
        """The reasons of similar rejections after which the coder has to state a root cause; empty if it has not to."""
        if self.task is None or self.role != "coder" or self.rejection is None:
            return ()
        return find_repeated_rejections(self.task, self.state.config.breaker.similarity)

    @property
    def previous_end(self) -> str | None:
        """How the session before this one ended, if it had no closing command; otherwise None."""
        events = self.task.history if self.task else ()
        framing = [event for event in events if event.event in FRAMING_EVENTS]
        end = session_end(framing[-1].event) if framing else ""
        return f"{end}. {framing[-1].detail or ''}".strip() if end else None

    @property
    def failed_check(self) -> FailedCheck | None:
        """The start-up check that the last session of the task failed; None if another session has begun since."""
        note = self.state.handoff.get(self.task.id) if self.task is not None else None
        failed = note.failed_check if note is not None else None
        if failed is None or self.task is None:
            return None
        later = (event for event in self.task.history if event.time >= failed.time)
        is_newest = all(event.run in (None, failed.run, self.run) for event in later)
        return failed if is_newest else None

    def spec_path(self, reference: str) -> str:
        """Return the path of a spec for the session: worktrees have no .liza, so those below it are absolute."""
        return str(self.root / reference) if reference.startswith(".liza/") else reference

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages of people to this agent, its role, its task, or everyone; the newest last."""
        recipients = {None, "", self.agent, self.role, self.task.id if self.task else self.agent}
        return tuple(note.message for note in self.state.human_notes if note.recipient in recipients)

    @property
    def open_trips(self) -> tuple[str, ...]:
        """The open trips of the circuit breaker, one line each; empty for other roles than planners."""
        trips = open_trips(self.state) if self.role == "planner" else ()
        return tuple(f"{trip.severity}, {trip.trigger}: {trip.detail}" for trip in trips)

    @property
    def test_command(self) -> str:
        """The command that tests the project; empty if none is configured."""
        return self.state.config.integration_command or ""


def describe_failed_check(failed: FailedCheck) -> str:
    """Return a failed start-up check in one sentence."""
    return f"{failed.run} failed the check of the {failed.check}. Expected: {failed.expected}. Found: {failed.actual}"


def describe_sprint(context: BriefContext) -> str:
    """Return the number of tasks by status, the tip of integration, and the number of untriaged discoveries."""
    counts = Counter(task.status.value for task in context.state.tasks)
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no tasks"
    tip = (
        f" · {context.state.config.integration_branch} {context.integration_tip[:12]}"
        if context.integration_tip
        else ""
    )
    untriaged = sum(discovery.is_open for discovery in context.state.discovered)
    return f"{statuses}{tip} · {untriaged} {'discovery' if untriaged == 1 else 'discoveries'} not yet triaged"


def describe_discovery(discovery: Discovery) -> str:
    """Return a discovery as one text: id, urgency, author, what is wrong, what the author recommends."""
    during = f" during {discovery.during}" if discovery.during else ""
    advice = f" Recommended: {discovery.recommendation}" if discovery.recommendation else ""
    head = f"{discovery.id} {discovery.urgency}, {discovery.severity} (by {discovery.by or 'unknown'}{during})"
    return f"{head}: {discovery.description}{advice}"


def describe_anomaly(anomaly_id: str, anomaly: Anomaly) -> str:
    """Return an anomaly as one text: id, kind, author, task, details."""
    about = f" in {anomaly.task}" if anomaly.task else ""
    details = "; ".join(str(value) if name == "text" else f"{name}: {value}" for name, value in anomaly.details.items())
    return f"{anomaly_id} {anomaly.type} (by {anomaly.reporter or 'unknown'}{about}): {details}"


def describe_agents(context: BriefContext) -> str:
    """Return the other agents of the board with their status and task, such as ``coder-1 WORKING on shop-cart``."""
    return ", ".join(
        f"{name} {agent.status}{f' on {agent.current_task}' if agent.current_task else ''}"
        for name, agent in context.state.agents.items()
        if name != context.agent
    )


def root_cause_demand(context: BriefContext) -> str:
    """Return the instruction to a coder whose work was rejected for one reason again and again."""
    return (
        f"{len(context.repeated_rejections)} rejections in a row have the same reason; another try like the last one "
        "fails, too. Before you change code, write the root cause into a commit message or a test that fails because "
        "of it: what you assumed, what is true, how you saw it. "
        f"If you cannot: {context.liza_command} block."
    )


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
        sparse=_sparse(crew.worktrees, worktree),
        is_set_up=_is_set_up(crew, state, work, worktree, is_by_hand=is_by_hand),
        hidden=_hidden_names(crew.worktrees, state, worktree),
        is_by_hand=is_by_hand,
        is_confined=_is_confined(directory),
        wake_trigger=state.planning.trigger or "",
        wake_ids=state.planning.ids,
        wake_facts=trigger.facts if trigger else "",
        messages=list_quotable(inbox.list_pending(crew.paths, agent_of(work.run)) if messages is None else messages),
        unfinished=_unfinished(crew, state, work, worktree, is_by_hand),
        earlier_commits=_earlier_commits(crew.worktrees, state, work, worktree),
        previous_outcome=_previous_outcome(crew.paths, state, work),
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
    return describe_left_work(crew.git, task, work.run)


def _sparse(worktrees: Worktrees, worktree: Path) -> tuple[str, ...]:
    if not worktrees.exists(worktree.name):
        return ()
    return local_files.list_included(worktrees.slot_git(worktree.name))


def _is_confined(directory: RunDir) -> bool:
    record = directory.read_record()
    return record is not None and record.is_confined


def _is_by_hand(directory: RunDir) -> bool:
    """Return whether no supervisor started the session: it does not exist, or a person started it with `liza run`."""
    if not directory.exists():
        return True
    sentinel = directory.read_sentinel()
    return sentinel is not None and sentinel.evidence == ReadyEvidence.BY_HAND


def _is_set_up(crew: Crew, state: State, work: CurrentWork, worktree: Path, *, is_by_hand: bool) -> bool:
    """Return whether the set-up has been run. A supervisor runs it before each session but a planner's."""
    may_be_due = is_by_hand or work.kind == WorkKind.PLANNING
    return bool(state.config.sandbox_setup) and not (may_be_due and _is_setup_due(crew, state, worktree))


def _is_setup_due(crew: Crew, state: State, worktree: Path) -> bool:
    """Return whether the set-up has not been run for the present files."""
    return slot_setup.is_setup_due(crew.paths.root, crew.worktrees.slot_git(worktree.name), state.config)


def _hidden_names(worktrees: Worktrees, state: State, worktree: Path) -> tuple[str, ...]:
    """Return what the set-up left in the worktree and git ignores only there. Raises GitFailed, OSError."""
    if not state.config.sandbox_setup:
        return ()

    return slot_setup.hidden_names(worktrees.slot_git(worktree.name))


def _previous_outcome(paths: Paths, state: State, work: CurrentWork) -> SessionOutcome | None:
    """Return how the session before this one ended: of the task, of its review, or of the planner's last run."""
    run = _previous_run(state, work)
    if run is None:
        return None
    with suppress(LizaError, OSError):  # an agent may have replaced the file; the topic of a beacon needs no retry
        return RunDir(paths, run).read_outcome()
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


def _earlier_commits(worktrees: Worktrees, state: State, work: CurrentWork, worktree: Path) -> tuple[str, ...]:
    """Return what earlier runs committed on the task's branch, newest first, at most 10. Raises GitFailed."""
    task = state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
    if (
        task is None
        or task.base_commit is None
        or not any(event.run != work.run for event in task.history if event.run)
    ):
        return ()
    git = worktrees.slot_git(worktree.name)
    commits = f"{task.base_commit}..HEAD"
    subjects = git.lines("log", "--no-color", "--first-parent", "--format=%h %s", "-n10", commits)
    return tuple(map(escape_undecoded, subjects))
