"""The machine: random verbs of all roles, legal or not, and after each of them the board and the model must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from liza.board.rules import archiving
from liza.breaker.rules import board_reports, breaker_patterns, breaker_trips
from liza.breaker.rules.breaker_trips import open_trips
from liza.config.rules import setting_values
from liza.merging.rules import epic_rules, merge_queue, merge_rules, undo_rules
from liza.merging.rules.epic_rules import EpicJob
from liza.merging.rules.merge_queue import Batch
from liza.merging.rules.merge_rules import MergeFailure, MergeFailureKind
from liza.model import targets
from liza.model.configuration import BreakerSettings
from liza.model.derived import update_derived_fields
from liza.model.errors import LizaError
from liza.model.model import (
    FINAL_STATUSES,
    Anomaly,
    Discovery,
    EpicStep,
    Handoff,
    LineComment,
    MergeInProgress,
    Resolution,
    State,
    Status,
    Task,
    Undo,
)
from liza.model.paths import is_person
from liza.model.session_ends import OUTCOME_RULES, SessionOutcome
from liza.model.tested import HowTested
from liza.model.transitions import Invocation
from liza.model.value_classes import replace
from liza.tasks.rules import backlog, claims, coding, leases, picking, planning, reviews
from liza.tasks.rules.backlog import RequestContext, TaskFields
from liza.tasks.rules.coding import SubmittedWork
from liza.tasks.rules.leases import Extension
from liza.tasks.rules.picking import Evidence, MissingParts
from liza.tasks.rules.planning import SprintEnd
from tests.unit.boards import BASE, HERE, NOW, board, with_config
from tests.unit.machine import comparison
from tests.unit.machine.helpful_crew import HelpfulCrew, make_chain
from tests.unit.machine.reference_model import Entry, No, ReferenceModel

PERSON, PLANNER = "human:ann", "planner-1"
SPECS = frozenset({"spec.md"})
MAX_TASKS = 8
"""Tasks on a board: few, so that verbs meet."""
PLAYED: Counter[tuple[str, str]] = Counter()
"""How often each rule was played: (module and name, ``allowed`` or ``refused``)."""
REACHED: set[Status] = set()

FAILED = (Status.REJECTED, Status.INTEGRATION_FAILED, Status.BLOCKED)
QUEUE_WORDS = ("hold", "release", "retry", "move")
SUBMISSIONS = ("", "", "same", "behind", "branch", "dirty", "unrelated")
coders = st.sampled_from(["coder-1", "coder-2", "coder-3"])
reviewers = st.sampled_from(["code-reviewer-1", "code-reviewer-2"])
agents = st.sampled_from(["coder-1", "coder-2", "coder-3", "code-reviewer-1", "code-reviewer-2", PLANNER])
indexes = st.integers(0, 11)
mostly = st.sampled_from([True, True, False])
texts = st.sampled_from(["why", "why", "why", " "])
planners = st.sampled_from([PERSON, PLANNER])
ends = st.sampled_from([outcome for outcome in SessionOutcome if outcome is not SessionOutcome.STOPPED])
Play = Callable[..., Any]
Predict = Callable[[ReferenceModel], str | None]


def has(*statuses: Status) -> Callable[[Any], bool]:
    """Precondition: a task has one of these statuses. The verb is then played on that task, or on another one."""
    return lambda machine: any(task.status in statuses for task in machine.state.tasks)


class CrewMachine(RuleBasedStateMachine):
    """Each rule of the machine plays one verb, or a few in their usual order, by ``play``."""

    @initialize(linked=st.booleans(), epic=st.booleans(), first=st.integers(0, 4), second=st.integers(0, 4))
    def begin(self, linked: bool, epic: bool, first: int, second: int) -> None:
        """Two tasks, which may have taken some steps already."""
        self.model = ReferenceModel(NOW)
        low = BreakerSettings(repeated_error=3, review_loop=3, trade_offs=2, sessions_without_merge=12)
        self.state = with_config(board(), breaker=low)
        self.heads = 0
        self.asked: set[str] = set()
        name = "invoices" if epic else None
        self.add_tasks([self.new_task(), self.new_task(deps=("t1",) if linked else (), epic=name)], PLANNER)
        for number, steps in enumerate((first, second), 1):
            for _ in range(steps):
                self.take_next_step(f"t{number}", f"coder-{number}", f"code-reviewer-{number}", well=True)

    def teardown(self) -> None:
        """Whatever has happened: a crew that does its best completes every open task."""
        if hasattr(self, "model"):
            HelpfulCrew(self.state, self.model.now).complete()

    # How a verb is played.

    def play(self, predict: Predict, change: Play, *args: Any, on: State | None = None, **named: Any) -> bool:
        """Play a verb in the model and on the board, and compare. Return whether it was allowed.

        ``on``: the board as somebody has changed it without a verb.
        """
        name = f"{change.__module__.rpartition('.')[2]}.{change.__name__}"
        trial, predicted, why = self.model.copy(), None, None
        try:
            predicted = predict(trial)
        except No as no:
            why = str(no) or "refused"
        try:
            result = change(on or self.state, *args, **named)
        except LizaError as refusal:
            comparison.check_refusal(refusal)
            # The same reason wakes a planner only twice: the model does not count that.
            is_expected = why is not None or change is planning.claim_planning
            PLAYED[name, "refused"] += 1
            result, text = None, str(refusal)
        if result is None:
            assert is_expected, f"{name}: the model allows it, the rule says: {text}"
            return False
        assert why is None, f"{name}: the rule allows it, the model says {why}"
        after, returned = result if isinstance(result, tuple) else (result, None)
        if predicted is not None:
            assert returned == predicted, f"{name}: the new run is {returned}, the model says {predicted}"
            trial.living |= {predicted} if change is not claims.reserve else set()
        PLAYED[name, "allowed"] += 1
        self.take_over(update_derived_fields(after), trial)
        return True

    def take_over(self, after: State, trial: ReferenceModel) -> None:
        before, self.state, self.model = self.state, after, trial
        if before.planning.run != after.planning.run and after.planning.run:
            assert after.planning.trigger in trial.reasons_to_plan()
            trial.plan["trigger"] = after.planning.trigger
        REACHED.update(task.status for task in after.tasks)
        comparison.check_step(before, after)
        found = comparison.differences(after, trial)
        assert not found, "; ".join(found)

    def evidence(self) -> Evidence:
        """The facts outside of the board, gathered as the crew gathers them."""
        dead = comparison.all_runs(self.state) - self.model.living
        lapsed = [(task.review_run, task.review_lease_expires) for task in self.state.tasks]
        lapsed.append((self.state.planning.run, self.state.planning.lease_expires))
        expired = [run for run, lease in lapsed if run and lease and lease <= self.model.now and run in dead]
        abandoned = frozenset(run for run in expired if run.rpartition(".")[0] in self.model.offline)
        return Evidence(offline=self.model.offline, dead=dead, abandoned=abandoned)

    def task_at(self, index: int) -> str:
        """One of the tasks, or rarely one that is not on the board."""
        names = [task.id for task in self.state.tasks]
        return names[index % len(names)] if names and index < 11 else "t99"

    def get(self, name: str) -> Task:
        return self.state.task(name) or Task(id=name, status=Status.ABANDONED)

    def some_run(self, name: str, index: int) -> str:
        """Mostly a run that holds the task, so that deep states are reached; else any run that was."""
        task = self.get(name)
        holders = [run for run in (task.run, task.review_run, task.reservation and task.reservation.run) if run]
        others = sorted(comparison.all_runs(self.state)) or ["coder-1.99"]
        return holders[index % len(holders)] if holders and index < 9 else others[index % len(others)]

    def by(self, actor: str, detail: str | None = None) -> Invocation:
        return Invocation(now=self.model.now, by=actor, detail=detail)

    def new_commit(self) -> str:
        self.heads += 1
        return f"{self.heads:040x}"

    # Time, processes and sessions.

    @rule(seconds=st.sampled_from([1, 100, 301, 1000]))
    def time_passes(self, seconds: int) -> None:
        self.model.now += timedelta(seconds=seconds)

    @rule(agent=agents)
    def supervisor_exits_or_starts(self, agent: str) -> None:
        self.model.offline ^= {agent}

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes, which=indexes)
    def session_vanishes(self, index: int, which: int) -> None:
        self.model.living -= {self.some_run(self.task_at(index), which)}

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes, which=indexes, outcome=ends, moved=st.booleans())
    def session_ends(self, index: int, which: int, outcome: SessionOutcome, moved: bool) -> None:
        name = self.task_at(index)
        run, event = self.some_run(name, which), OUTCOME_RULES[outcome].event.value
        self.model.living -= {run}
        end: Entry = {"outcome": outcome, "detail": "it ended", "moved": moved, "now": self.model.now}
        self.play(lambda model: model.session_end(name, run, event, moved), coding.record_session_end, name, run, **end)

    @precondition(lambda machine: any(agent.current_task for agent in machine.state.agents.values()))
    @rule(agent=agents)
    def gives_back(self, agent: str) -> None:
        self.play(lambda model: model.give_back(agent), planning.give_back_work, agent, self.model.now)

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes, which=indexes)
    def heartbeat(self, index: int, which: int) -> None:
        run = self.some_run(self.task_at(index), which)
        self.play(lambda model: model.renew(run), leases.renew_lease, run, self.model.now)

    @rule(index=indexes, which=indexes, seconds=st.sampled_from([0, 60, 1000, 4 * 3600, 4 * 3600 + 1]))
    def extend(self, index: int, which: int, seconds: int) -> None:
        run, wanted = self.some_run(self.task_at(index), which), Extension(seconds, "the build takes long")
        self.play(lambda model: model.extend(run, seconds), leases.extend_lease, run, wanted, self.model.now)

    # Planner and person: tasks.

    def new_task(self, **fields: Any) -> Entry:
        self.heads += 1
        number = sum(name.startswith("t") for name in self.asked) + 1
        self.asked.add(f"t{number}")
        return {"id": f"t{number}", "complete": True, **fields}

    def fields_of(self, wanted: Entry) -> TaskFields:
        return TaskFields(
            wanted["id"],
            description="d",
            done_when="w",
            scope="s",
            spec_ref="spec.md" if wanted["complete"] else "missing.md",
            **{name: wanted.get(name) for name in ("priority", "epic", "target", "review")},
            depends_on=wanted.get("deps"),
            draft=wanted.get("draft", False),
            from_discovery=wanted.get("discovery"),
        )

    def context(self, by: str, epics: tuple[str | None, ...], detail: str | None = None) -> RequestContext:
        """What the edge adds to a request: specs that exist, the archive, and what new branches of epics contain."""
        delivered = frozenset(task.id for task in self.state.tasks if targets.is_on_integration(task))
        new = frozenset(filter(None, epics)) - set(targets.open_epics(self.state))
        archived = {name: Status(outcome) for name, outcome in self.model.archived.items()}
        return RequestContext(self.by(by, detail), SPECS, archived, new, delivered)

    def add_tasks(self, wanted: list[Entry], by: str) -> bool:
        context = self.context(by, tuple(fields.get("epic") for fields in wanted))
        fields = [self.fields_of(task) for task in wanted]
        return self.play(lambda model: model.add(wanted), backlog.add, fields, context)

    @rule(
        dep=indexes,
        kind=st.sampled_from(["", "", "draft", "incomplete", "human", "twice", "priority", "both"]),
        epic=st.sampled_from([None, None, "invoices", "mails"]),
        branch=st.sampled_from([None, None, None, "release"]),
        discovery=st.sampled_from([None, None, "d-1", "d-2"]),
    )
    def add(self, dep: int, kind: str, epic: str | None, branch: str | None, discovery: str | None) -> None:
        if len(self.state.tasks) >= MAX_TASKS:
            return
        names = [*self.model.archived, *self.model.tasks, "t99"]
        deps = (names[dep % len(names)],) if dep < 9 else ()
        branch = self.get(deps[0]).target if deps and kind == "" else branch
        wanted = self.new_task(deps=deps, epic=epic, target=None if epic and kind != "both" else branch)
        wanted |= {"complete": kind != "incomplete", "draft": kind == "draft", "discovery": discovery}
        wanted |= {"id": "t1"} if kind == "twice" else {}
        wanted |= {"priority": 10} if kind == "priority" else {}
        wanted |= {"review": "human"} if kind == "human" else {}
        self.add_tasks([wanted], PERSON)

    @rule(index=indexes, dep=indexes, by=planners, kind=st.sampled_from(["deps", "review", "text", "spec", "draft"]))
    def edit(self, index: int, dep: int, by: str, kind: str) -> None:
        name, other = self.task_at(index), self.task_at(dep)
        task = self.get(name)
        complete = kind != "draft" and (kind == "spec" or dep > 1) if kind in ("spec", "draft") else None
        changes: Entry = {"draft": kind == "draft"}
        fields = TaskFields(name, draft=kind == "draft")
        if kind == "deps":
            changes |= {"deps": (other,)}
            fields = replace(fields, depends_on=(other,))
        elif kind == "review":
            changes |= {"review": "human" if dep % 2 else "agent"}
            fields = replace(fields, review=changes["review"])
        elif kind == "text":
            changes |= {"text": f"d{dep}" != task.description}
            fields = replace(fields, description=f"d{dep}")
        elif complete is not None:
            changes |= {"complete": complete}
            fields = replace(fields, spec_ref="spec.md" if complete else "missing.md")
        context = self.context(by, ())
        self.play(lambda model: model.edit(name, by, changes), backlog.edit, fields, context)

    @precondition(has(Status.DRAFT))
    @rule()
    def drafts_are_checked(self) -> None:
        complete = {name for name, task in self.model.tasks.items() if task["complete"]}
        lacks = {
            task.id: MissingParts(() if task.id in complete else ("spec",), "liza sync") for task in self.state.tasks
        }
        args = (self.state, lacks, self.by("liza"))
        self.play(lambda model: model.release_drafts(), picking.release_complete_drafts, *args)

    @precondition(has(Status.BLOCKED))
    @rule(index=indexes, by=planners, answer=texts)
    def unblock(self, index: int, by: str, answer: str) -> None:
        name = self.task_at(index)
        self.play(
            lambda model: model.unblock(name, [answer], by_person=is_person(by)),
            backlog.unblock,
            name,
            [answer],
            self.by(by),
        )

    @rule(index=indexes)
    def note_about_a_task(self, index: int) -> None:
        name = self.task_at(index)
        self.play(lambda model: model.restart_counts(name), backlog.restart_counts, name)

    @rule(index=indexes, other=indexes, by=planners, new=st.booleans(), epic=st.sampled_from(["", "mails"]), why=texts)
    def supersede(self, index: int, other: int, by: str, new: bool, epic: str, why: str) -> None:
        name, existing = self.task_at(index), () if new else (self.task_at(other),)
        wanted = [self.new_task(epic=epic or None)] if new and len(self.state.tasks) < MAX_TASKS else []
        kept = epic or self.get(name).epic
        context = self.context(by, (kept,) if wanted else (), why)
        self.play(
            lambda model: model.supersede(name, wanted, existing, why),
            backlog.supersede,
            name,
            [self.fields_of(task) for task in wanted],
            existing,
            context,
        )

    @rule(index=indexes, by=planners, others=st.sampled_from([None, "cascade", "unlink"]))
    def drop(self, index: int, by: str, others: str | None) -> None:
        name = self.task_at(index)
        self.play(lambda model: model.drop(name, others), backlog.drop, name, self.by(by, "why"), others)

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes, whole=st.booleans())
    def release(self, index: int, whole: bool) -> None:
        """A person takes a task from its coder, in two steps; or another process does the second one."""
        name = self.task_at(index)
        if whole:
            self.play(lambda model: model.fence(name), claims.fence, name, self.model.now)
        self.play(lambda model: model.release(name), claims.release, name, None, self.model.now, PERSON)

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes)
    def fence(self, index: int) -> None:
        name = self.task_at(index)
        self.play(lambda model: model.fence(name), claims.fence, name, self.model.now)

    # Coder.

    def claim(self, agent: str, name: str) -> None:
        """Both phases of a claim."""
        self.reserve_task(agent, name)
        if self.get(name).reservation:
            self.confirm_task(name)

    def reserve_task(self, agent: str, name: str) -> None:
        slot = self.get(name).worktree or f"s{name[1:]}"
        claimant = claims.Claimant(agent, HERE)
        args = (name, claimant, slot, self.model.now, self.evidence())
        self.play(lambda model: model.reserve(name, agent, slot), claims.reserve, *args)

    def confirm_task(self, name: str, stale: str | None = None) -> None:
        reservation = self.get(name).reservation
        run = stale or (reservation.run if reservation else "coder-1.99")
        args = (name, run, BASE, self.model.now, self.evidence())
        if self.play(lambda model: model.confirm(name, run), claims.confirm, *args):
            self.model.living |= {run}

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes, agent=coders, confirmed=st.booleans(), offline=mostly, dead=mostly, late=mostly)
    def coder_is_gone(self, index: int, agent: str, confirmed: bool, offline: bool, dead: bool, late: bool) -> None:
        """A coder's machine is off for longer than its lease, or it seems so. Another coder takes the task over."""
        name = self.task_at(index)
        task = self.get(name)
        self.model.offline |= {task.assigned_to or agent} if offline else set()
        self.model.living -= {task.run or ""} if dead else set()
        self.model.now += timedelta(seconds=1000 if late else 1)
        self.reserve_task(agent, name)
        if confirmed:
            self.confirm_task(name)

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes, outcome=ends, times=st.integers(1, 6))
    def sessions_fail(self, index: int, outcome: SessionOutcome, times: int) -> None:
        """Sessions of one task end in the same way, one after the other."""
        claimed = [task.id for task in self.state.tasks if task.status is Status.CLAIMED]
        for _ in range(times):
            self.fail_session(claimed[index % len(claimed)], outcome)

    def fail_session(self, name: str, outcome: SessionOutcome) -> None:
        run, event, now = self.get(name).run or "coder-1.99", OUTCOME_RULES[outcome].event.value, self.model.now
        self.model.living -= {run}
        end: Entry = {"outcome": outcome, "detail": "it ended", "moved": False, "now": now}
        self.play(lambda model: model.session_end(name, run, event, False), coding.record_session_end, name, run, **end)
        self.play(lambda model: model.resume(name, run), claims.resume, name, run, now)

    @precondition(has(Status.APPROVED))
    @rule(index=indexes, kind=st.sampled_from(list(MergeFailureKind)), times=st.integers(1, 4))
    def merges_fail(self, index: int, kind: MergeFailureKind, times: int) -> None:
        """Merges of one task fail in the same way, one after the other."""
        approved = [task.id for task in self.state.tasks if task.status is Status.APPROVED]
        for _ in range(times):
            self.fail_merge(approved[index % len(approved)], kind)

    def fail_merge(self, name: str, kind: MergeFailureKind) -> None:
        failure = MergeFailure(kind, "git failed with 128", "liza queue")
        said = self.by("liza", "tests/a.py is red after the merge")
        self.play(lambda model: model.merge_failed(name, str(kind)), merge_rules.retry_or_fail, name, failure, said)

    @rule(agent=agents, index=indexes)
    def reserve(self, agent: str, index: int) -> None:
        self.reserve_task(agent, self.task_at(index))

    @precondition(lambda machine: any(task.reservation for task in machine.state.tasks))
    @rule(index=indexes, which=indexes, own=mostly)
    def confirm(self, index: int, which: int, own: bool) -> None:
        name = self.task_at(index)
        self.confirm_task(name, None if own else self.some_run(name, which))

    @precondition(lambda machine: any(task.reservation for task in machine.state.tasks))
    @rule(index=indexes, which=indexes)
    def undo(self, index: int, which: int) -> None:
        name = self.task_at(index)
        if name in self.model.tasks:
            run = self.some_run(name, which)
            self.play(lambda model: model.undo(name, run), claims.undo_reservation, name, run)

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes, which=indexes)
    def resume(self, index: int, which: int) -> None:
        name = self.task_at(index)
        run = self.some_run(name, which)
        tries = self.get(name).iteration
        self.play(lambda model: model.resume(name, run), claims.resume, name, run, self.model.now)
        assert self.get(name).iteration - tries in (0, 1)

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes, which=indexes)
    def stop(self, index: int, which: int) -> None:
        name = self.task_at(index)
        run = self.some_run(name, which)
        self.model.living -= {run}
        self.play(lambda model: model.stop(name, run), claims.stop, name, run, self.model.now)

    def submit_work(self, name: str, run: str, kind: str = "") -> None:
        head = (self.get(name).review_commit if kind == "same" else None) or self.new_commit()
        work = SubmittedWork(
            head=head,
            ahead=kind != "behind",
            branch=f"task/{name}" if kind != "branch" else None,
            dirty=("a.py",) if kind == "dirty" else (),
            related=kind != "unrelated",
        )
        finished = kind in ("", "same")
        args = (name, run, work, self.model.now)
        if self.play(lambda model: model.submit(name, run, head, finished), coding.submit, *args):
            self.model.living -= {run}

    @precondition(has(Status.CLAIMED))
    @rule(
        index=indexes, which=indexes, kind=st.sampled_from(["", "", "same", "behind", "branch", "dirty", "unrelated"])
    )
    def submit(self, index: int, which: int, kind: str) -> None:
        name = self.task_at(index)
        self.submit_work(name, self.some_run(name, which), kind)

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes, which=indexes, questions=st.sampled_from([("what?",), ("what?", "who?"), (), (" ",)]))
    def block(self, index: int, which: int, questions: tuple[str, ...]) -> None:
        name = self.task_at(index)
        run = self.some_run(name, which)
        args = (name, run, "the spec says nothing", questions, self.model.now)
        self.play(lambda model: model.block(name, run, questions), coding.block, *args)

    @precondition(has(Status.CLAIMED, Status.REJECTED, Status.INTEGRATION_FAILED))
    @rule(index=indexes)
    def block_at_limit(self, index: int) -> None:
        name = self.task_at(index)
        args = (name, "10 tries of at most 10 are used up", self.model.now)
        self.play(lambda model: model.block_by_supervisor(name), coding.block_by_supervisor, *args)

    @precondition(has(Status.CLAIMED))
    @rule(index=indexes, which=indexes, summary=texts)
    def handoff(self, index: int, which: int, summary: str) -> None:
        name = self.task_at(index)
        run = self.some_run(name, which)
        note = Handoff(agent="coder-1", summary=summary, next_action="n")
        self.play(lambda model: model.handoff(name, run, summary), coding.handoff, name, run, note, self.model.now)

    # Reviewer, and a person who reviews.

    @precondition(has(Status.READY_FOR_REVIEW))
    @rule(agent=agents, index=indexes)
    def claim_review(self, agent: str, index: int) -> None:
        name = self.task_at(index)
        args = (name, agent, self.model.now, self.evidence())
        self.play(lambda model: model.claim_review(name, agent), reviews.claim_review, *args)

    def judge(self, name: str, by: str, word: str, commit: str, reason: str = "why") -> None:
        change: Play = reviews.approve
        more: Entry = {}
        if word == "reject":
            change, more = reviews.reject, {"comments": (LineComment(path="a.py", line=1, text="no"),)}
        args = (name, by, commit, self.model.now, reason)
        if self.play(lambda model: model.verdict(name, by, commit, word, reason), change, *args, **more):
            self.model.living -= {by}

    @precondition(has(Status.READY_FOR_REVIEW))
    @rule(index=indexes, which=indexes, word=st.sampled_from(["approve", "reject"]), own=st.booleans(), reason=texts)
    def verdict(self, index: int, which: int, word: str, own: bool, reason: str) -> None:
        name = self.task_at(index)
        commit = self.get(name).review_commit if own else None
        by = PERSON if which % 4 == 3 else self.some_run(name, which)
        self.judge(name, by, word, commit or BASE, reason)

    @precondition(has(Status.READY_FOR_REVIEW))
    @rule(index=indexes, which=indexes, counted=st.booleans())
    def review_ends(self, index: int, which: int, counted: bool) -> None:
        name = self.task_at(index)
        run = self.some_run(name, which)
        change = reviews.end_review_without_verdict if counted else reviews.release_review
        self.model.living -= {run}
        self.play(
            lambda model: model.release_review(name, run, counted=counted), change, name, run, self.model.now, "ended"
        )

    # Merger, and a person at the queue.

    def chain(self, tasks: Sequence[Task]) -> Batch:
        return make_chain(self.state, tasks, self.new_commit)

    @precondition(has(Status.APPROVED))
    @rule(index=indexes, size=st.integers(1, 3))
    def begin_batch(self, index: int, size: int) -> None:
        queue = [entry.task for entry in merge_queue.ordered_queue(self.state, self.model.now)]
        head = queue[index % len(queue)] if queue and index < 9 else self.state.task(self.task_at(index))
        if head is not None:
            tasks = merge_queue.choose_batch(self.state, head, self.model.now)[:size]
            batch = self.chain(tasks)
            self.play(lambda model: model.begin(batch.ids), merge_queue.begin_batch, batch)

    @precondition(has(Status.MERGED))
    @rule(index=indexes, end=st.sampled_from(["recorded", "recorded", "dropped", ""]))
    def undo_merge(self, index: int, end: str) -> None:
        """A person undoes a merged task that no merged task depends on. The command may be killed in between."""
        name = self.task_at(index)
        if undo_rules.find_dependents(self.state.tasks, name).merged:
            return
        record = Undo(commit=self.new_commit(), tested=True, by=PERSON, because="not now")
        self.play(lambda model: model.begin_undo(name), undo_rules.begin_undo, self.get(name), record)
        if end == "dropped":
            self.play(lambda model: model.drop_undo(name), undo_rules.drop_undo, name)
        elif end:
            self.play(lambda model: model.record_undone(name), undo_rules.record_undone, name, self.model.now)

    @precondition(has(Status.APPROVED))
    @rule(index=indexes)
    def begin_merge(self, index: int) -> None:
        name = self.task_at(index)
        merging = MergeInProgress(candidate=self.new_commit(), expected=BASE)
        self.play(lambda model: model.begin([name]), merge_rules.begin_merge, name, merging)

    @precondition(has(Status.APPROVED))
    @rule(index=indexes, length=st.integers(1, 3), tested=st.booleans())
    def tests_end(self, index: int, length: int, tested: bool) -> None:
        """The tests of a batch were green up to a member, and the candidates after it are dropped."""
        batches = merge_queue.find_batches(self.state)
        if batches:
            batch = batches[index % len(batches)]
            passed = batch.prefix(min(length, len(batch.members)))
            dropped = [name for name in batch.ids if name not in passed.ids]
            args = (passed, dropped, HowTested(tested))
            self.play(lambda model: model.tested(passed.ids, dropped), merge_queue.record_tested, *args)

    @precondition(has(Status.APPROVED))
    @rule(index=indexes, single=st.booleans())
    def files_are_in_the_way(self, index: int, single: bool) -> None:
        name = self.task_at(index)
        batches = [batch for batch in merge_queue.find_batches(self.state) if len(batch.members) == 1]
        if single or not batches:
            self.play(lambda model: model.wait_for_files([name]), merge_rules.wait_for_files, name, ("a.py",))
        else:
            batch = batches[index % len(batches)]
            self.play(lambda model: model.wait_for_files(batch.ids), merge_queue.wait_for_files, batch, ("a.py",))

    @precondition(has(Status.APPROVED))
    @rule(index=indexes, batch=st.booleans())
    def candidate_is_dropped(self, index: int, batch: bool) -> None:
        name = self.task_at(index)
        if batch:
            self.play(lambda model: model.drop_candidate(name), merge_queue.drop_candidates, [name])
        else:
            self.play(lambda model: model.drop_candidate(name), merge_rules.drop_candidate, name)

    @precondition(has(Status.APPROVED))
    @rule(index=indexes)
    def publish(self, index: int) -> None:
        """The branch has moved to a tested batch, which is recorded."""
        batches = [
            batch
            for batch in merge_queue.find_batches(self.state)
            if all(member.merging.tested is not None for member in batch.members)
        ]
        if batches:
            batch = batches[index % len(batches)]
            self.play(lambda model: model.merge(batch.ids), merge_queue.record_merged, batch, self.by("liza"))

    @precondition(has(Status.APPROVED))
    @rule(index=indexes)
    def record_merge(self, index: int) -> None:
        name = self.task_at(index)
        merging = self.get(name).merging
        said = replace(self.by("liza"), commit=merging.candidate if merging else "e" * 40)
        if merging is None or merging.tested is not None:
            tested = merging or MergeInProgress(candidate="e" * 40, expected="f" * 40, tested=True)
            self.play(lambda model: model.merge([name]), merge_rules.record_merge, name, said, tested)

    @precondition(has(Status.APPROVED))
    @rule(index=indexes, kind=st.sampled_from(["conflict", *MergeFailureKind]))
    def merge_fails(self, index: int, kind: str) -> None:
        name = self.task_at(index)
        said = self.by("liza", "tests/a.py is red after the merge")
        if kind == "conflict":
            self.play(lambda model: model.merge_failed(name, kind), merge_rules.fail_merge, name, said)
            return
        self.fail_merge(name, MergeFailureKind(kind))

    @precondition(has(Status.APPROVED))
    @rule(index=indexes, word=st.sampled_from(QUEUE_WORDS), position=st.integers(0, 4), why=texts)
    def queue(self, index: int, word: str, position: int, why: str) -> None:
        name = self.task_at(index)
        moves: dict[str, tuple[Callable[[ReferenceModel], None], Play, tuple[Any, ...]]] = {
            "hold": (lambda model: model.hold(name, why), merge_queue.hold, (why,)),
            "release": (lambda model: model.unhold(name), merge_queue.release, ()),
            "retry": (lambda model: model.retry(name), merge_queue.retry, ()),
            "move": (lambda model: model.move(name, position), merge_queue.move, (position,)),
        }
        predict, change, more = moves[word]
        if self.play(predict, change, name, *more) and word == "move":
            queue = merge_queue.ordered_queue(self.state, self.model.now)
            assert [entry.task.id for entry in queue].index(name) == position - 1

    # Epics.

    @precondition(lambda machine: any(map(machine.model.due, machine.model.epics)))
    @rule(index=indexes, step=st.sampled_from(list(EpicStep)))
    def epic_merge(self, index: int, step: EpicStep) -> None:
        """The next step of the merge of an epic with integration, or all of them, or a failure."""
        epic = next(filter(self.model.due, self.model.epics))
        merging = self.state.epics[epic].merging
        if merging is None or index == 0:
            due = step if index == 0 else EpicStep(str(self.model.due(epic)))
            args = (EpicJob(epic, due), self.new_commit(), BASE)
            self.play(lambda model: model.epic_begin(epic, due.value), epic_rules.begin_merge, *args)
        elif index < 6:
            self.epic_merge_fails(epic, index)
        elif merging.tested is None:
            self.play(lambda model: model.epic_tested(epic), epic_rules.record_tested, epic, True)
        elif merging.step is EpicStep.UPDATE:
            self.play(lambda model: model.epic_update(epic), epic_rules.finish_update, epic)
        else:
            landed = [task.id for task in targets.tasks_of(self.state, epic) if targets.is_to_land(task)]
            land = (epic, merging.candidate, landed, self.by("liza"))
            self.play(lambda model: model.epic_land(epic, landed), epic_rules.finish_landing, *land)
        if index > 7 and self.model.due(epic):
            self.epic_merge(11, step)

    def epic_merge_fails(self, epic: str, index: int) -> None:
        failure = MergeFailure(MergeFailureKind.FAILED, "git failed with 128")
        if index < 2:
            self.play(lambda model: model.epic_drop(epic), epic_rules.drop_candidate, epic)
        elif index < 4 or len(self.state.tasks) >= MAX_TASKS:
            args = (epic, failure, self.model.now)
            self.play(lambda model: model.epic_drop(epic), epic_rules.schedule_retry, *args)
        elif self.add_tasks([self.new_task(epic=epic, priority=1)], "liza"):
            self.play(lambda model: model.epic_mend(epic), epic_rules.record_mend, epic)

    @precondition(lambda machine: bool(machine.state.epics))
    @rule(epic=st.sampled_from(["invoices", "mails"]))
    def epic_test_result(self, epic: str) -> None:
        if epic in self.state.epics:
            self.play(lambda model: model.epic_tested(epic), epic_rules.record_tested, epic, True)

    # Planning, reports, the circuit breaker, settings, the archive, a typed status.

    @rule(agent=st.sampled_from([PLANNER, "planner-2"]))
    def claim_planning(self, agent: str) -> None:
        args = (agent, self.model.now, self.evidence())
        self.play(lambda model: model.claim_planning(agent), planning.claim_planning, *args)

    @precondition(lambda machine: machine.state.planning.run is not None)
    @rule(own=st.booleans(), undo=st.booleans())
    def planning_ends(self, own: bool, undo: bool) -> None:
        run = (self.state.planning.run if own else None) or "planner-1.99"
        change = planning.undo_planning_claim if undo else planning.end_planning
        more: Entry = {} if undo else {"end": SprintEnd(self.model.now)}
        self.model.living -= {run}
        self.play(lambda model: model.end_planning(run, undo=undo), change, run, **more)

    @rule(
        kind=st.sampled_from(["discovery", "discovery", "workaround", "tests_weakened", "spec_gap", "trade_off", "no"]),
        text=texts,
        urgency=st.sampled_from(["immediate", "deferred", ""]),
        index=indexes,
    )
    def report(self, kind: str, text: str, urgency: str, index: int) -> None:
        name, now = self.task_at(index), self.model.now
        if kind == "discovery":
            entry = Discovery(id="", by="coder-1", during=name, description=text, created=now)
            args: tuple[Any, ...] = (entry, {"urgency": urgency})
            self.play(lambda model: model.report(kind, text, urgency, name), board_reports.add_discovery, *args)
        else:
            anomaly = Anomaly(timestamp=now, task=name, reporter="coder-1.1", type=kind, details={"text": text})
            self.play(lambda model: model.report(kind, text, urgency, name), board_reports.add_anomaly, anomaly)

    @precondition(lambda machine: bool(machine.model.reports))
    @rule(index=st.integers(1, 5), kind=st.sampled_from("da"), by=planners, why=texts)
    def resolve_report(self, index: int, kind: str, by: str, why: str) -> None:
        name = f"{kind}-{index}"
        resolution = Resolution(by=by, timestamp=self.model.now, why=why)
        self.play(lambda model: model.resolve(name, why), board_reports.resolve_report, name, resolution)

    @precondition(lambda machine: bool(machine.state.anomalies) or has(*FAILED)(machine))
    @rule()
    def breaker_is_checked(self) -> None:
        """Which patterns are found is for the tables of test_circuit_breaker. Here: each is open once at a time."""
        now = self.model.now
        found = breaker_patterns.evaluate_patterns(self.state, breaker_patterns.collect_events(self.state, now))
        severities = [breaker_patterns.severity_of(self.state.config.breaker, finding.pattern) for finding in found]

        def trip(model: ReferenceModel) -> None:
            model.trips = (*model.trips, *severities)

        self.play(trip, breaker_trips.record_findings, found, now)
        self.play(lambda model: None, breaker_trips.record_findings, found, now)  # another supervisor found the same
        subjects = [(trip.trigger, trip.subject) for trip in open_trips(self.state)]
        assert len(set(subjects)) == len(subjects)

    @precondition(lambda machine: bool(machine.state.circuit_breaker.history))
    @rule(by=planners, cause=st.sampled_from(["a missing service", "a missing service", " ", "…"]))
    def resolve_trips(self, by: str, cause: str) -> None:
        args = (by, cause, self.model.now)
        self.play(lambda model: model.resolve_trips(by, cause), breaker_trips.resolve_trips, *args)

    @rule(
        setting=st.sampled_from(
            [
                *(("max_review_cycles", "2"), ("max_review_cycles", "5"), ("max_review_cycles", "many")),
                *(("slots.max", "2"), ("slots.max", "null"), ("slots.max", "0")),
                *(("lease_duration", "200"), ("batch", "1")),
            ]
        )
    )
    def change_setting(self, setting: tuple[str, str]) -> None:
        self.play(lambda model: model.set_setting(*setting), setting_values.change_setting, *setting)

    @precondition(has(*FINAL_STATUSES))
    @rule(keep=st.integers(0, 2))
    def archive(self, keep: int) -> None:
        tasks = archiving.find_archivable(self.state, self.model.living, keep)
        names = {task.id for task in tasks}
        assert keep or names == self.model.archivable()
        totals = archiving.ArchiveTotals(self.state.archived.counts, self.state.archived.verdicts)
        self.play(lambda model: model.archive(names), archiving.move_to_archive, tasks, totals)

    @precondition(has(Status.REJECTED, Status.INTEGRATION_FAILED, *FINAL_STATUSES))
    @rule(index=indexes)
    def typed_approval_is_not_merged(self, index: int) -> None:
        """A person types the status: without a verdict on the commit it cannot be merged."""
        name = self.task_at(index)
        earlier = self.state.task(name)
        if earlier is None or earlier.reservation or earlier.status is Status.APPROVED:
            return
        typed = self.state.with_task(replace(earlier, status=Status.APPROVED))
        if merge_rules.status_obstacle(typed, replace(earlier, status=Status.APPROVED)) is not None:
            merged = merge_rules.next_to_merge(typed, self.model.now)
            assert merged is None or merged.id != name, "a typed approval is merged"

    # What would happen next if nothing came in between: deep states are reached.

    @rule(agent=coders, reviewer=reviewers, index=st.integers(0, 10), well=mostly, steps=st.integers(1, 4))
    def carry_on(self, agent: str, reviewer: str, index: int, well: bool, steps: int) -> None:
        name = self.task_at(index)
        for number in range(steps):
            self.take_next_step(name, agent, reviewer, well or number + 1 < steps)

    def take_next_step(self, name: str, agent: str, reviewer: str, well: bool) -> None:
        task = self.get(name)
        match task.status:
            case Status.READY_FOR_REVIEW:
                self.review_whole(name, reviewer, "approve" if well else "reject")
            case Status.APPROVED:
                self.merge_whole(name, well)
            case Status.BLOCKED:
                self.play(
                    lambda model: model.unblock(name, ["so"], by_person=True),
                    backlog.unblock,
                    name,
                    ["so"],
                    self.by(PERSON),
                )
            case Status.CLAIMED if well:
                self.submit_work(name, task.run or "coder-1.99")
            case Status.CLAIMED:
                args = (name, task.run or "coder-1.99", "the spec says nothing", ("what?",), self.model.now)
                self.play(lambda model: model.block(name, args[1], ["what?"]), coding.block, *args)
            case Status.REJECTED | Status.INTEGRATION_FAILED if not well:
                limit = (name, "10 tries are used up", self.model.now)
                self.play(lambda model: model.block_by_supervisor(name), coding.block_by_supervisor, *limit)
            case _:
                self.claim(agent, name)

    def review_whole(self, name: str, reviewer: str, word: str) -> None:
        self.model.living -= {self.get(name).run or ""}
        args = (name, reviewer, self.model.now, self.evidence())
        self.play(lambda model: model.claim_review(name, reviewer), reviews.claim_review, *args)
        task = self.get(name)
        by = PERSON if task.review == "human" else task.review_run or "coder-1.99"
        self.judge(name, by, word, task.review_commit or BASE)

    def merge_whole(self, name: str, green: bool) -> None:
        if not green:
            said = self.by("liza", "tests/a.py is red after the merge")
            self.play(lambda model: model.merge_failed(name, "conflict"), merge_rules.fail_merge, name, said)
            return
        batch = self.chain([self.get(name)])
        self.play(lambda model: model.begin(batch.ids), merge_queue.begin_batch, batch)
        begun = next(begun for begun in merge_queue.find_batches(self.state) if name in begun.ids)
        self.play(lambda model: model.tested(begun.ids), merge_queue.record_tested, begun, (), HowTested(True))
        tested = next(tested for tested in merge_queue.find_batches(self.state) if name in tested.ids)
        self.play(lambda model: model.merge(tested.ids), merge_queue.record_merged, tested, self.by("liza"))


def describe_statistics() -> str:
    """Return a line for each rule: how often it was allowed, and refused."""
    names = sorted({name for name, _ in PLAYED})
    rows = [f"{name:40} {PLAYED[name, 'allowed']:8} allowed {PLAYED[name, 'refused']:8} refused" for name in names]
    return "\n".join([*rows, f"{len(names)} rules, {sum(PLAYED.values())} verbs"])
