"""The lease of work that is done by hand: extended with a reason, renewed and submitted after it has expired."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import chdir
from datetime import timedelta
from functools import partial

import pytest

from liza.briefs.ready import ready
from liza.crew.crew import Crew
from liza.model.errors import NotOwner, Refused, UsageError
from liza.model.model import Status, Task
from liza.model.statuses import StartupCheck, WorkKind
from liza.model.value_classes import replace
from liza.printing.render_task import format_task
from liza.programs.session.run_directory import RunRecord
from liza.system.locks import Lock
from liza.tasks.claim import HeartbeatRequest, claim, claim_review, heartbeat
from liza.tasks.rules import claims
from liza.tasks.submit import submit
from liza.view.task_rows import show_task
from tests.conftest import git
from tests.edges.merging.test_integration import claimed, crew, made  # noqa: F401  # one preparation serves both files

REVIEWER = "code-reviewer-1"


@pytest.fixture
def by_hand(crew: Crew) -> Iterator[Crew]:  # noqa: F811
    """A crew, called from the worktree of its task c, which coder-1 has claimed by hand and which has a commit."""
    with chdir(claimed(crew)):
        yield crew


def _task(in_crew: Crew) -> Task:
    task = in_crew.board.read().task("c")
    assert task is not None
    return task


def _expire(in_crew: Crew) -> None:
    """Let the lease of the task end an hour ago."""
    with in_crew.board.heartbeat("coder-1") as tx:
        tx.state = tx.state.with_task(replace(_task(in_crew), lease_expires=in_crew.clock.now() - timedelta(hours=1)))


@pytest.mark.campaign
def test_an_extension_is_in_the_history_that_task_show_prints(by_hand: Crew) -> None:
    heartbeat(by_hand, HeartbeatRequest(extend_seconds=3600, reason="the build takes an hour"))
    (line,) = (line for line in show_task(by_hand, "c")["history"] if line.event == "extend lease")
    assert (line.agent, line.run) == ("coder-1", "coder-1.3")
    assert (line.detail or "").endswith(": the build takes an hour")
    before = _task(by_hand).lease_expires
    heartbeat(by_hand, HeartbeatRequest())
    assert _task(by_hand).lease_expires == before


@pytest.mark.campaign
def test_a_reviewer_extends_the_lease_of_the_review(by_hand: Crew) -> None:
    submit(by_hand)
    claim_review(by_hand, REVIEWER, "c")
    with chdir(by_hand.paths.slot(REVIEWER)):
        heartbeat(by_hand, HeartbeatRequest(extend_seconds=3600, reason="the suite is slow"))
    task = _task(by_hand)
    assert task.review_lease_expires is not None
    assert task.review_lease_expires >= by_hand.clock.now() + timedelta(minutes=55)
    assert (task.history[-1].agent, task.history[-1].event) == (REVIEWER, "extend lease")


def test_an_extension_needs_a_reason_and_a_reason_an_extension(by_hand: Crew) -> None:
    with pytest.raises(UsageError, match="--reason"):
        heartbeat(by_hand, HeartbeatRequest(extend_seconds=3600))
    with pytest.raises(UsageError, match="--extend"):
        heartbeat(by_hand, HeartbeatRequest(reason="why"))
    assert [event.event for event in _task(by_hand).history].count("extend lease") == 0


def test_ready_prints_the_brief_by_hand_and_starts_no_session(by_hand: Crew) -> None:
    brief = ready(by_hand).details["brief"]
    assert "assigned:c" in brief
    assert "DONE WHEN  it is there" in brief
    assert "task show c has all of it" in brief
    assert not by_hand.run_dir("coder-1.3").exists()


def test_an_expired_lease_alone_ends_no_claim(by_hand: Crew) -> None:
    _expire(by_hand)
    ready(by_hand)
    lease = _task(by_hand).lease_expires
    assert lease is not None
    assert lease > by_hand.clock.now()
    _expire(by_hand)
    submit(by_hand)
    task = _task(by_hand)
    assert task.status is Status.READY_FOR_REVIEW
    assert "its lease expired at" in (task.history[-1].detail or "")


def test_a_run_whose_task_was_taken_over_cannot_submit(
    by_hand: Crew,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _expire(by_hand)
    claim(by_hand, "coder-2", "c")
    monkeypatch.setenv("LIZA_RUN", "coder-1.3")
    monkeypatch.setenv("LIZA_TASK", "c")
    for verb in (submit, ready, partial(heartbeat, request=HeartbeatRequest())):
        with pytest.raises(NotOwner):
            verb(by_hand)
    assert (_task(by_hand).status, _task(by_hand).assigned_to) == (Status.CLAIMED, "coder-2")


def test_only_a_check_failed_by_a_session_enters_the_handoff(by_hand: Crew) -> None:
    run, slot = _task(by_hand).run or "", by_hand.paths.slot("s1")
    os.chdir(by_hand.paths.root)
    slot.rename(slot.with_name("away"))
    environ = {"LIZA_RUN": run, "LIZA_TASK": "c"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        with pytest.raises(Refused, match="is not ready"):
            ready(by_hand)
        assert "c" not in by_hand.board.read().handoff
        record = RunRecord(agent="coder-1", run=run, kind=WorkKind.WORK, started=by_hand.clock.now(), task="c")
        by_hand.run_dir(run).create(record)
        with pytest.raises(Refused, match="is not ready"):
            ready(by_hand)
    failed = by_hand.board.read().handoff["c"].failed_check
    assert failed is not None
    assert (failed.run, failed.check) == (run, StartupCheck.WORKTREE)
    assert "the worktree s1 of c is not ready" in failed.actual
    shown = format_task(show_task(by_hand, "c"), colour=False)
    assert "start-up failed" in shown
    assert not by_hand.run_dir(run).is_ready()


def test_a_session_with_an_expired_lease_is_not_ready(by_hand: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(by_hand)
    claim_review(by_hand, REVIEWER, "c")
    past = by_hand.clock.now() - timedelta(hours=1)
    with by_hand.board.heartbeat("planner-1") as tx:
        state = claims.ensure_agent(tx.state, "planner-1").with_task(replace(_task(by_hand), review_lease_expires=past))
        tx.state = replace(state, planning=replace(state.planning, run="planner-1.1", lease_expires=past))
    review = _task(by_hand).review_run or ""
    for run, task, kind in ((review, "c", WorkKind.REVIEW), ("planner-1.1", None, WorkKind.PLANNING)):
        monkeypatch.setenv("LIZA_RUN", run)
        monkeypatch.setenv("LIZA_TASK", task or "")
        directory = by_hand.run_dir(run)
        record = RunRecord(agent=directory.agent, run=run, kind=kind, started=by_hand.clock.now(), task=task)
        directory.create(record)
        with pytest.raises(NotOwner, match=f"the lease of {run} on {task or 'planning'} has expired"):
            ready(by_hand)
        assert not directory.is_ready()
        with Lock(by_hand.paths.supervisor_lock(directory.agent)):
            ready(by_hand)
        assert directory.is_ready()
    failed = by_hand.board.read().handoff["c"].failed_check
    assert failed is not None
    assert (failed.run, failed.check) == (review, StartupCheck.LEASE)


def test_a_review_at_another_commit_is_not_ready_and_noted(by_hand: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(by_hand)
    run = claim_review(by_hand, REVIEWER, "c").details["run"]
    slot, commit = by_hand.paths.slot(REVIEWER), _task(by_hand).review_commit or ""
    record = RunRecord(agent=REVIEWER, run=run, kind=WorkKind.REVIEW, started=by_hand.clock.now(), task="c")
    by_hand.run_dir(run).create(record)
    monkeypatch.setenv("LIZA_RUN", run)
    monkeypatch.setenv("LIZA_TASK", "c")
    git(slot, "checkout", "-q", "--detach", f"{commit}~1")
    with pytest.raises(Refused, match=f"expected {commit}"):
        ready(by_hand)
    failed = by_hand.board.read().handoff["c"].failed_check
    assert failed is not None
    assert (failed.run, failed.check) == (run, StartupCheck.COMMIT)
    assert not by_hand.run_dir(run).is_ready()
    git(slot, "checkout", "-q", "--detach", commit)
    ready(by_hand)
    assert by_hand.run_dir(run).is_ready()
