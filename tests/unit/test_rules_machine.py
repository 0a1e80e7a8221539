"""Any order of anything that anyone may say, with leases that lapse: what always holds."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from liza.rules import invariants
from liza.rules.derived import update_derived_fields
from liza.rules.errors import LizaError
from liza.rules.merging import merge_rules
from liza.rules.model import FINAL_STATUSES, Handoff, MergeInProgress, ProcessIdentity, State, Status
from liza.rules.sessions.session_ends import SessionOutcome
from liza.rules.tasks import backlog, claims, coding, reviews
from liza.rules.tasks.backlog import RequestContext, TaskFields
from liza.rules.tasks.coding import SubmittedWork
from liza.rules.tasks.picking import Evidence, authors
from liza.rules.transitions import Invocation, find_illegal_changes, find_unexplained_step
from tests.unit.boards import BASE, NOW, board

CODERS = st.sampled_from(["coder-1", "coder-2", "coder-3"])
REVIEWERS = st.sampled_from(["code-reviewer-1", "code-reviewer-2"])
TASKS = st.sampled_from(["a", "b", "c"])
RECORDED = (SessionOutcome.CRASHED, SessionOutcome.FINISHED, SessionOutcome.HELD_UP)
HERE = ProcessIdentity(host="box", boot="boot", pid=1, start="1")


class Crew(RuleBasedStateMachine):
    """Every rule is tried; a refusal must leave the board as it was, which being frozen it does by itself."""

    @initialize()
    def begin(self) -> None:
        self.now: datetime = NOW
        self.heads = 0
        self.runs: list[str] = []
        self.refusals: list[LizaError] = []
        self.offline: set[str] = set()
        self.state: State = backlog.add(
            board(),
            [
                TaskFields("a", description="d", done_when="w", scope="s", spec_ref="x"),
                TaskFields("b", description="d", done_when="w", scope="s", spec_ref="x", depends_on=("a",)),
                TaskFields("c", description="d", done_when="w", scope="s", spec_ref="x"),
            ],
            RequestContext(Invocation(now=NOW, by="planner-1"), frozenset({"x"})),
        )

    def attempt(self, make: object) -> None:
        before = self.state
        try:
            result = make()  # type: ignore[operator]
        except LizaError as refusal:
            self.refusals.append(refusal)
            return
        after, run = result if isinstance(result, tuple) else (result, None)
        if run:
            assert run not in self.runs
            self.runs.append(run)
        assert find_illegal_changes(before, after) == ()
        self.state = update_derived_fields(after)

    def evidence(self) -> Evidence:
        return Evidence(offline=frozenset(self.offline), dead=frozenset(self.runs))

    def some_run(self, data: st.DataObject, task: str) -> str:
        """Mostly the run that holds the task, so that deep states are reached; else any run that ever was."""
        known = claims.get_task(self.state, task)
        holders = [run for run in (known.run, known.review_run) if run]
        return data.draw(st.sampled_from(holders * 6 + self.runs[-6:] or ["coder-1.99"]))

    @rule(seconds=st.sampled_from([1, 100, 301, 1000]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(agent=CODERS)
    def goes_offline_or_comes_back(self, agent: str) -> None:
        self.offline ^= {agent}

    @rule(agent=CODERS, task=TASKS)
    def reserve(self, agent: str, task: str) -> None:
        taker = claims.Claimant(agent, HERE)
        found = self.state.task(task)
        slot = (found.worktree if found else None) or f"s-{task}"
        self.attempt(lambda: claims.reserve(self.state, task, taker, slot, self.now, self.evidence()))

    @rule(task=TASKS)
    def confirm(self, task: str) -> None:
        held = claims.get_task(self.state, task).reservation
        run = held.run if held else "coder-1.99"
        self.attempt(lambda: claims.confirm(self.state, task, run, BASE, self.now, self.evidence()))

    @rule(agent=CODERS, task=TASKS)
    def claim_whole(self, agent: str, task: str) -> None:
        self.reserve(agent, task)
        self.confirm(task)

    @rule(agent=CODERS, task=TASKS)
    def claim_and_submit(self, agent: str, task: str) -> None:
        self.claim_whole(agent, task)
        run = claims.get_task(self.state, task).run or "coder-1.99"
        self.heads += 1
        work = SubmittedWork(head=f"{self.heads:040x}", ahead=True, branch=f"task/{task}")
        self.attempt(lambda: coding.submit(self.state, task, run, work, self.now))

    @rule(agent=REVIEWERS, task=TASKS, rejecting=st.booleans())
    def review_whole(self, agent: str, task: str, rejecting: bool) -> None:
        self.claim_review(agent, task)
        found = claims.get_task(self.state, task)
        run, commit = found.review_run or "coder-1.99", found.review_commit or BASE
        if rejecting:
            self.attempt(lambda: reviews.reject(self.state, task, run, commit, self.now, "no"))
        else:
            self.attempt(lambda: reviews.approve(self.state, task, run, commit, self.now))

    @rule(agent=CODERS, reviewer=REVIEWERS, task=TASKS, well=st.booleans())
    def carry_on(self, agent: str, reviewer: str, task: str, well: bool) -> None:
        """What would happen next if nobody came in between."""
        match claims.get_task(self.state, task).status:
            case Status.READY_FOR_REVIEW:
                self.review_whole(reviewer, task, not well)
            case Status.APPROVED:
                self.merge(task, len(self.runs) % 3 == 0)
            case Status.BLOCKED:
                self.unblock(task)
            case _ if well:
                self.claim_and_submit(agent, task)
            case _:
                self.claim_whole(agent, task)
                run = claims.get_task(self.state, task).run or "coder-1.99"
                self.attempt(lambda: coding.block(self.state, task, run, "why", ("what?",), self.now))

    @rule(task=TASKS, data=st.data())
    def undo(self, task: str, data: st.DataObject) -> None:
        run = self.some_run(data, task)
        self.attempt(lambda: claims.undo_reservation(self.state, task, run))

    @rule(task=TASKS, data=st.data())
    def resume(self, task: str, data: st.DataObject) -> None:
        run = self.some_run(data, task)
        self.attempt(lambda: claims.resume(self.state, task, run, self.now))

    @rule(task=TASKS, data=st.data())
    def stop(self, task: str, data: st.DataObject) -> None:
        run = self.some_run(data, task)
        self.attempt(lambda: claims.stop(self.state, task, run, self.now))

    @rule(task=TASKS, data=st.data())
    def submit(self, task: str, data: st.DataObject) -> None:
        run = self.some_run(data, task)
        self.heads += 1
        work = SubmittedWork(head=f"{self.heads:040x}", ahead=True, branch=f"task/{task}")
        self.attempt(lambda: coding.submit(self.state, task, run, work, self.now))

    @rule(task=TASKS, data=st.data())
    def block(self, task: str, data: st.DataObject) -> None:
        run = self.some_run(data, task)
        self.attempt(lambda: coding.block(self.state, task, run, "why", ("what?",), self.now))

    @rule(task=TASKS, data=st.data())
    def handoff(self, task: str, data: st.DataObject) -> None:
        run = self.some_run(data, task)
        note = Handoff(agent="coder-1", summary="s", next_action="n")
        self.attempt(lambda: coding.handoff(self.state, task, run, note, self.now))

    @rule(task=TASKS, data=st.data(), ended=st.sampled_from(RECORDED), moved=st.booleans())
    def session_over(self, task: str, data: st.DataObject, ended: SessionOutcome, moved: bool) -> None:
        run = self.some_run(data, task)
        self.attempt(
            lambda: coding.record_session_end(
                self.state, task, run, outcome=ended, detail="x", moved=moved, now=self.now
            )
        )

    @rule(agent=REVIEWERS, task=TASKS)
    def claim_review(self, agent: str, task: str) -> None:
        self.attempt(lambda: reviews.claim_review(self.state, task, agent, self.now, self.evidence()))

    @rule(task=TASKS, data=st.data(), reject=st.booleans())
    def verdict(self, task: str, data: st.DataObject, reject: bool) -> None:
        run = self.some_run(data, task)
        commit = claims.get_task(self.state, task).review_commit or BASE
        if reject:
            self.attempt(lambda: reviews.reject(self.state, task, run, commit, self.now, "no"))
        else:
            self.attempt(lambda: reviews.approve(self.state, task, run, commit, self.now))

    @rule(task=TASKS, data=st.data())
    def review_ends(self, task: str, data: st.DataObject) -> None:
        run = self.some_run(data, task)
        self.attempt(lambda: reviews.end_review_without_verdict(self.state, task, run, self.now, "ended"))

    @rule(task=TASKS, green=st.booleans())
    def merge(self, task: str, green: bool) -> None:
        said = Invocation(now=self.now, by="coder-1", commit="e" * 40)
        if green:
            begun = MergeInProgress(candidate="e" * 40, expected=BASE)
            self.attempt(
                lambda: merge_rules.record_merge(
                    merge_rules.begin_merge(self.state, task, begun), task, said, tested=True
                )
            )
        else:
            self.attempt(lambda: merge_rules.fail_merge(self.state, task, said))

    @rule(task=TASKS)
    def unblock(self, task: str) -> None:
        self.attempt(lambda: backlog.unblock(self.state, task, ["so"], Invocation(now=self.now, by="human:ann")))

    @invariant()
    def every_refusal_is_a_refusal_and_names_a_command(self) -> None:
        assert all(one.exit_code in (1, 2) and one.hint for one in getattr(self, "refusals", []))

    @invariant()
    def no_invariant_is_broken(self) -> None:
        if hasattr(self, "state"):
            assert [str(one) for one in invariants.check_board(self.state)] == []

    @invariant()
    def nobody_approved_their_own_work_and_final_tasks_hold_nothing(self) -> None:
        for task in getattr(self, "state", board()).tasks:
            assert task.approved_by is None or task.approved_by not in authors(task)
            assert find_unexplained_step(task) is None
            if task.status in FINAL_STATUSES:
                assert task.worktree is None
                assert task.reservation is None
            REACHED.add(task.status)
            if task.status is Status.MERGED:
                assert any(event.event == "approve" for event in task.history)


REACHED: set[Status] = set()


class TestCrew(Crew.TestCase):
    """The machine, and a look whether it came anywhere: one that is always refused proves nothing."""

    @classmethod
    def tearDownClass(cls) -> None:
        assert set(Status) - {Status.DRAFT, Status.SUPERSEDED, Status.ABANDONED} <= REACHED


TestCrew.settings = settings(max_examples=20, stateful_step_count=80, deadline=None)
