"""A crew that does its best: whatever state a board is in, it completes every open task.

Supervisors do what ``decide`` says, and their sessions succeed. A person acts only where no supervisor can. Nobody uses
a verb that its role does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from liza.breaker.rules import board_reports, breaker_trips
from liza.breaker.rules.breaker_trips import open_trips, signals_of_trips
from liza.config.rules import setting_values
from liza.merging.rules import epic_rules, merge_queue, merge_rules, undo_rules
from liza.merging.rules.merge_queue import Batch, Member
from liza.merging.rules.merge_rules import MergeFailure, MergeFailureKind
from liza.model import targets
from liza.model.derived import update_derived_fields
from liza.model.model import FINAL_STATUSES, EpicStep, MergeInProgress, Resolution, State, Status, Task
from liza.model.statuses import WakeTrigger
from liza.model.tested import HowTested
from liza.model.transitions import Invocation
from liza.supervisor.rules import actions
from liza.supervisor.rules.decide import decide
from liza.supervisor.rules.session_facts import MergeFacts, Situation
from liza.tasks.rules import backlog, claims, coding, picking, planning, reviews
from liza.tasks.rules.backlog import RequestContext, TaskFields
from liza.tasks.rules.coding import SubmittedWork
from liza.tasks.rules.picking import Evidence
from liza.tasks.rules.planning import SprintEnd
from tests.unit.boards import BASE, HERE
from tests.unit.machine import comparison

PERSON = "human:ann"
CREW = ("planner-1", "coder-1", "coder-2", "coder-3", "code-reviewer-1", "code-reviewer-2")
MAX_ROUNDS = 300
"""Rounds in which each supervisor acts once. A board of the machine needs about 20."""


def make_chain(state: State, tasks: Sequence[Task], new_commit: Callable[[], str]) -> Batch:
    """Return a batch of these tasks, each candidate built on the one before."""
    commits = [BASE, *(new_commit() for _ in tasks)]
    tip = commits[-1] if len(tasks) > 1 else None
    members = tuple(
        Member(task, MergeInProgress(candidate=candidate, expected=expected, tip=tip))
        for task, expected, candidate in zip(tasks, commits, commits[1:], strict=False)
    )
    return Batch(members, targets.target_branch(state, tasks[0]))


class HelpfulCrew:
    """All earlier sessions are over, all supervisors run, and a person is there."""

    def __init__(self, state: State, now: datetime) -> None:
        self.state = state
        self.now = now
        self.agents = list(CREW)
        self.commits = 10**6
        self.log: list[str] = []

    def complete(self) -> State:
        """Return the board with every task closed and every epic landed. Raises AssertionError if that fails."""
        self.recover()
        for _ in range(MAX_ROUNDS):
            if self.is_complete():
                return self.state
            acted = [self.supervisor_acts(agent) for agent in self.agents]
            if not any(acted) and not self.person_acts():
                self.now += timedelta(seconds=400)
        stuck = [f"{task.id} {task.status}" for task in self.state.tasks if task.status not in FINAL_STATUSES]
        raise AssertionError(f"the crew cannot complete {stuck}; its last steps: {self.log[-12:]}")

    def is_complete(self) -> bool:
        return all(task.status in FINAL_STATUSES and not targets.is_to_land(task) for task in self.state.tasks)

    def change(self, rule: Callable[..., Any], *args: Any, **named: Any) -> str:
        """Apply a rule that must be allowed. Return the new run, if there is one."""
        self.log.append(f"{rule.__name__} {' '.join(arg for arg in args if isinstance(arg, str))}")
        result = rule(self.state, *args, **named)
        after, returned = result if isinstance(result, tuple) else (result, "")
        after = update_derived_fields(after)
        comparison.check_step(self.state, after)
        self.state = after
        return str(returned)

    def new_commit(self) -> str:
        self.commits += 1
        return f"{self.commits:040x}"

    def by(self, actor: str, detail: str | None = None) -> Invocation:
        return Invocation(now=self.now, by=actor, detail=detail)

    def evidence(self) -> Evidence:
        return Evidence(dead=comparison.all_runs(self.state), online=frozenset(self.agents))

    def recover(self) -> None:
        """What the next process repairs: claims and merges of processes that died."""
        for task in self.state.tasks:
            if task.reservation is not None:
                self.change(claims.undo_reservation, task.id, task.reservation.run)
            if task.merging is not None and not task.merging.waiting:
                died = MergeFailure(MergeFailureKind.DIED, "its merger died")
                self.change(merge_rules.retry_or_fail, task.id, died, self.by("liza"))
        for task in undo_rules.find_unfinished(self.state):
            self.change(undo_rules.drop_undo, task.id)
        for epic in self.state.epics:
            self.change(epic_rules.drop_candidate, epic)

    # Supervisors.

    def supervisor_acts(self, agent: str) -> bool:
        """Carry out what the supervisor of ``agent`` decides. Return whether it did anything."""
        waiting = [task.id for task in self.state.tasks if task.merging is not None and task.merging.waiting]
        resumable = MergeFacts(resumable=next(iter(waiting), None))
        signals = tuple(signals_of_trips(self.state))
        at = Situation(agent, self.state, self.now, self.evidence(), signals, merging=resumable)
        match decide(at):
            case actions.Claim(task):
                slot = picking.free_slot(self.state, claims.get_task(self.state, task))
                claimant = claims.Claimant(agent, HERE)
                run = self.change(claims.reserve, task, claimant, slot, self.now, self.evidence())
                self.change(claims.confirm, task, run, BASE, self.now, self.evidence())
                self.code(task, run)
            case actions.Resume(task, run):
                self.code(task, self.change(claims.resume, task, run, self.now))
            case actions.ClaimReview(task):
                run = self.change(reviews.claim_review, task, agent, self.now, self.evidence())
                self.approve(task, run)
            case actions.ClaimPlanning(_):
                self.plan(self.change(planning.claim_planning, agent, self.now, self.evidence()))
            case actions.BlockTask(task, reason):
                self.change(coding.block_by_supervisor, task, reason, self.now)
            case actions.GiveBack(_):
                self.change(planning.give_back_work, agent, self.now)
            case actions.Merge(subject):
                self.merge(subject)
            case actions.Wait():
                return False
            case other:
                raise AssertionError(f"{agent}: unexpected {other}")
        return True

    def code(self, task: str, run: str) -> None:
        work = SubmittedWork(head=self.new_commit(), ahead=True, branch=f"task/{task}")
        self.change(coding.submit, task, run, work, self.now)

    def approve(self, task: str, by: str) -> None:
        commit = claims.get_task(self.state, task).review_commit
        self.change(reviews.approve, task, by, commit, self.now, "the tests pass")

    def plan(self, run: str) -> None:
        """A planner's session: it decides about what it was woken for."""
        agent, ids = run.rpartition(".")[0], self.state.planning.ids
        # A trip of the breaker names tasks as evidence: nothing about them has to be decided.
        about = () if self.state.planning.trigger == WakeTrigger.BREAKER_TRIPPED else ids
        for task in [task for task in self.state.tasks if task.id in about]:
            self.decide_about(task, agent)
        for discovery in board_reports.open_discoveries(self.state):
            resolution = Resolution(by=agent, timestamp=self.now, why="it is known")
            self.change(board_reports.resolve_report, discovery.id, resolution)
        self.change(planning.end_planning, run, SprintEnd(self.now))

    def decide_about(self, task: Task, by: str) -> None:
        """Answer a task, or replace it if two coders failed it, or if no coder may continue it."""
        if task.status is Status.BLOCKED and len(task.failed_by) < planning.MAX_FAILED_CODERS:
            self.change(backlog.unblock, task.id, ["do it so"], self.by(by))
            return
        new = TaskFields(f"h{self.new_commit()[-6:]}", "d", "w", "s", "spec.md")
        specs = frozenset({"spec.md"})
        self.change(backlog.supersede, task.id, [new], (), RequestContext(self.by(by, "it was too large"), specs))

    def merge(self, subject: str) -> None:
        epic = targets.epic_of(subject)
        if epic is not None:
            self.merge_epic(epic)
            return
        task = claims.get_task(self.state, subject)
        if task.merging is not None:  # it waited for files, which are not in the way any more
            self.change(merge_rules.drop_candidate, subject)
            task = claims.get_task(self.state, subject)
        batch = make_chain(self.state, merge_queue.choose_batch(self.state, task, self.now), self.new_commit)
        self.change(merge_queue.begin_batch, batch)
        self.change(merge_queue.record_tested, batch, (), HowTested(True))
        tested = next(tested for tested in merge_queue.find_batches(self.state) if tested.ids == batch.ids)
        self.change(merge_queue.record_merged, tested, self.by("liza"))

    def merge_epic(self, epic: str) -> None:
        job = epic_rules.find_job(self.state, epic)
        assert job is not None
        self.change(epic_rules.begin_merge, job, self.new_commit(), BASE)
        self.change(epic_rules.record_tested, epic, True)
        if job.step is EpicStep.UPDATE:
            self.change(epic_rules.finish_update, epic)
            return
        landed = [task.id for task in targets.tasks_of(self.state, epic) if targets.is_to_land(task)]
        self.change(epic_rules.finish_landing, epic, self.new_commit(), landed, self.by("liza"))

    # A person, when no supervisor can do anything.

    def person_acts(self) -> bool:
        """Do the first thing that waits for a person. Return whether there was one."""
        action = next(self.things_to_do(), None)
        if action is not None:
            action()
        return action is not None

    def things_to_do(self) -> Iterator[Callable[[], Any]]:
        if open_trips(self.state):
            yield partial(self.change, breaker_trips.resolve_trips, PERSON, "a missing service", self.now)
        lost = picking.find_unclaimable(self.state)
        for task in self.state.tasks:
            if task.status not in FINAL_STATUSES:
                yield from self.help_with(task, is_lost=task.id in lost)
        if self.state.config.slots.max is not None:
            yield partial(self.change, setting_values.change_setting, "slots.max", None)

    def help_with(self, task: Task, *, is_lost: bool) -> Iterator[Callable[[], Any]]:
        if task.status is Status.DRAFT:
            context = RequestContext(self.by(PERSON), frozenset({"spec.md"}))
            yield partial(self.change, backlog.edit, TaskFields(task.id, spec_ref="spec.md"), context)
        if is_lost:
            yield partial(self.change, backlog.drop, task.id, self.by(PERSON, "it waits for ever"), "unlink")
        if task.status is Status.BLOCKED:
            yield partial(self.decide_about, task, PERSON)
        if task.status is Status.READY_FOR_REVIEW and task.review == "human":
            yield partial(self.approve, task.id, PERSON)
        if task.status is Status.APPROVED and task.merge_hold is not None:
            yield partial(self.change, merge_queue.release, task.id)
        if task.status is Status.CLAIMED and task.run is None:
            yield partial(self.change, claims.release, task.id, None, self.now, PERSON)
        if picking.failed_by_every_coder(self.state, task) or set(task.failed_by) >= set(CREW[1:4]):
            yield partial(self.new_coder, f"coder-{len(self.agents)}")

    def new_coder(self, agent: str) -> None:
        """A person starts a supervisor of another coder."""
        self.log.append(f"{agent} joins")
        self.agents.append(agent)
        self.state = claims.ensure_agent(self.state, agent)
