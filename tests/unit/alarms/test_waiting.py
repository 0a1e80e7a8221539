"""What a crew waits for when only a person can continue it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.alarms.rules.alarm_checks import AlarmFacts, evaluate_alarms
from liza.alarms.rules.waiting_alarms import waiting_alarms
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.model import (
    Agent,
    Event,
    MergeInProgress,
    MergeRetry,
    PlanningClaim,
    State,
    Status,
    Submission,
    SupervisorExit,
    Task,
)
from liza.tasks.rules.picking import Evidence, MissingParts
from liza.tasks.rules.planning import find_triggers
from tests.unit.boards import HEAD, NOW, agents, board, later, task

S = Status
ALL = frozenset({"planner", "coder", "code-reviewer"})
WORKERS = ALL - {"planner"}


def blocked(task_id: str = "t") -> Task:
    return task(task_id, S.BLOCKED, blocked_reason="no address", blocked_questions=("which?",))


def planned_twice(state: State) -> State:
    return replace(state, planning=PlanningClaim(fingerprint=find_triggers(state)[0].fingerprint, count=2))


def waits(state: State, roles: frozenset[str] = ALL, **lacks: MissingParts) -> list[str]:
    return [alarm.next for alarm in waiting_alarms(state, NOW, lacks, roles)]


def for_person() -> Task:
    return task("t", S.READY_FOR_REVIEW, review_commit=HEAD, review="human")


FILES: dict[str, Any] = {
    "review_commit": HEAD,
    "approved_by": "code-reviewer-1",
    "merging": MergeInProgress(candidate=HEAD, expected=HEAD, waiting=("a.txt",)),
}


APPROVAL: dict[str, Any] = {"review_commit": HEAD, "approved_by": "code-reviewer-1"}
STRANGERS: dict[str, Any] = {**APPROVAL, "submission": Submission(request=1, is_foreign=True)}


def failed(tries: int) -> dict[str, Any]:
    return {**APPROVAL, "set_aside": MergeRetry(kind="failed", reason="no space", tries=tries, until=later(60))}


@pytest.mark.parametrize(
    ("state", "roles", "steps"),
    [
        (board(blocked()), ALL, []),  # the planner can answer
        (planned_twice(board(blocked())), ALL, ['liza answer t "…"']),
        (board(task(status=S.MERGED), planning=PlanningClaim(rounds=3)), ALL, ["liza resume"]),
        (board(task(status=S.MERGED), planning=PlanningClaim(rounds=2)), ALL, []),
        (board(blocked()), WORKERS, ['liza answer t "…"']),
        (board(blocked(), task("next", depends_on=("t",))), WORKERS, ['liza answer t "…"']),
        (board(blocked(), task("other")), WORKERS, []),
        (board(blocked(), task("u", S.READY_FOR_REVIEW, review_commit=HEAD)), WORKERS, []),
        (board(blocked("a"), blocked("b")), WORKERS, ['liza answer a "…"', 'liza answer b "…"']),
        (board(task(failed_by=("coder-1",)), agents=agents("coder-1")), WORKERS, ["liza up --coders 2"]),
        (board(task("t", S.APPROVED, **FILES)), WORKERS, ["liza merge t"]),
        (board(task("t", S.APPROVED, **failed(1))), WORKERS, []),  # the merger tries it again
        (board(task("t", S.APPROVED, **failed(2))), WORKERS, ["liza merge t"]),
        (board(task("t", S.APPROVED, **failed(2)), task("other")), WORKERS, []),
        (board(task("t", S.APPROVED, **STRANGERS)), WORKERS, [f"liza task permit t {HEAD}"]),
        (board(), WORKERS, ["liza task add --help"]),
        (board(), ALL, []),
        (board(task("t", S.READY_FOR_REVIEW, review_commit=HEAD)), frozenset({"coder"}), ["liza up"]),
        (board(for_person()), ALL, ['liza verdict approve --task t "…"']),
        (board(for_person(), task("other")), ALL, []),
        (board(task(), agents=agents("code-reviewer-1")), frozenset({"code-reviewer"}), ["liza up"]),
        (board(task("t", S.MERGED)), WORKERS, []),
        (planned_twice(board(task("t", S.MERGED))), ALL, ["liza task list"]),
    ],
)
def test_a_crew_that_needs_a_person_names_the_commands(state: State, roles: frozenset[str], steps: list[str]) -> None:
    assert waits(state, roles) == steps


def test_a_draft_waiting_for_its_document_names_the_commit_command() -> None:
    state = board(task("t", S.DRAFT))
    assert waits(state, t=MissingParts(("spec a.md is not committed",), "git add a.md")) == ["git add a.md"]


def test_a_person_reviews_in_a_crew_without_a_reviewer() -> None:
    state = board(task("t", S.READY_FOR_REVIEW, review_commit=HEAD), agents=crewed("coder-1"))
    (alarm,) = waiting_alarms(state, NOW, {}, frozenset({"coder"}))
    assert alarm.next == 'liza verdict approve --task t "…"'
    assert "because the crew has no reviewer (liza up --planners 0 --program codex)" in alarm.message
    assert "liza diff t" in alarm.message


def crewed(*names: str) -> dict[str, Agent]:
    return {name: replace(agent, program="codex") for name, agent in agents(*names).items()}


def missing_reviewer(state: State, offline: set[str], **exits: SupervisorExit) -> list[tuple[str, str]]:
    named = {name.replace("_", "-"): left for name, left in exits.items()}
    facts = AlarmFacts(evidence=Evidence(offline=frozenset(offline)), exits=named)
    alarms = evaluate_alarms(state, NOW, facts)
    kinds = (AlarmKind.NEEDS_REVIEWER, AlarmKind.NEEDS_VERDICT)
    return [(alarm.kind, alarm.next) for alarm in alarms if alarm.kind in kinds]


def test_status_reports_a_missing_reviewer_only_of_a_running_crew() -> None:
    waiting = task("t", S.READY_FOR_REVIEW, review_commit=HEAD)
    told = [("needs_reviewer", "liza up --planners 0 --program codex")]
    judge = [("needs_verdict", 'liza verdict approve --task t "…"')]
    never_had_one = board(waiting, agents=crewed("coder-1"))
    assert missing_reviewer(never_had_one, set()) == judge
    assert missing_reviewer(never_had_one, {"coder-1"}) == judge
    stopped_it = never_had_one.with_agent(
        "code-reviewer-1", Agent(role="code-reviewer", status="OFFLINE", program="codex")
    )
    assert missing_reviewer(stopped_it, {"code-reviewer-1"}) == judge
    stopped = board(waiting, agents=crewed("coder-1", "code-reviewer-1"))
    assert missing_reviewer(stopped, {"code-reviewer-1"}) == told
    assert missing_reviewer(stopped, {"coder-1", "code-reviewer-1"}) == []
    assert missing_reviewer(stopped, set()) == []
    # Why it left is an alarm already, with the same command.
    left = SupervisorExit(time=NOW, reason="3 sessions crashed")
    assert missing_reviewer(stopped, {"code-reviewer-1"}, code_reviewer_1=left) == []
    # Persons who claim and review by hand have no crew.
    assert missing_reviewer(board(waiting, agents=agents("coder-1")), {"coder-1"}) == []
    under_review = task("t", S.READY_FOR_REVIEW, review_commit=HEAD, reviewing_by="code-reviewer-1")
    assert missing_reviewer(board(under_review, agents=crewed("coder-1")), set()) == []


def test_a_task_a_person_reviews_is_always_an_alarm() -> None:
    state = board(for_person(), agents=crewed("coder-1", "code-reviewer-1"))
    assert missing_reviewer(state, set()) == [("needs_verdict", 'liza verdict approve --task t "…"')]
    assert missing_reviewer(board(for_person()), set()) == [("needs_verdict", 'liza verdict approve --task t "…"')]


def test_a_crew_without_agents_names_tasks_and_their_roles() -> None:
    waiting = [task(f"t{number}", S.READY_FOR_REVIEW, review_commit=HEAD) for number in range(6)]
    (alarm,) = waiting_alarms(board(*waiting), NOW, {}, frozenset({"coder"}))
    assert alarm == Alarm(
        "no_agent",
        "goal",
        "no agent of this crew can continue the open tasks: t0, t1, t2, t3, t4 and 1 more (no reviewer runs)",
        "liza up",
    )
    (fewer,) = waiting_alarms(board(*waiting[:5]), NOW, {}, frozenset({"coder"}))
    assert fewer.message.endswith(": t0, t1, t2, t3, t4 (no reviewer runs)")
    (coder,) = waiting_alarms(board(task(), agents=agents("code-reviewer-1")), NOW, {}, frozenset({"code-reviewer"}))
    assert coder.message.endswith(": task-1 (no coder runs)")
    (both,) = waiting_alarms(board(task(), waiting[0]), NOW, {}, frozenset())
    assert both.message.endswith(": task-1 (no coder runs); t0 (no reviewer runs)")
    (none,) = waiting_alarms(board(), NOW, {}, WORKERS)
    assert (none.kind, none.about, none.next) == ("no_tasks", "goal", "liza task add --help")


def test_a_killed_reviewer_is_shown_with_at_most_five_tasks() -> None:
    def alarms(count: int, *names: str) -> list[Alarm]:
        submitted = Event(time=later(-9), event="submit")
        waiting = [
            task(f"t{number}", S.READY_FOR_REVIEW, review_commit=HEAD, history=(submitted,)) for number in range(count)
        ]
        facts = AlarmFacts(evidence=Evidence(offline=frozenset({"code-reviewer-1"})))
        kinds = (AlarmKind.NEEDS_REVIEWER, AlarmKind.NEEDS_VERDICT)
        found = evaluate_alarms(board(*waiting, agents=crewed(*names)), NOW, facts)
        return [alarm for alarm in found if alarm.kind in kinds]

    crew = ("coder-1", "code-reviewer-1")
    told = [(alarm.about, alarm.message) for count in (1, 5, 6) for alarm in alarms(count, *crew)]
    assert told == [
        ("t0", "t0 waits for a review, and no reviewer runs"),
        ("t0", "t0, t1, t2, t3, t4 wait for a review, and no reviewer runs"),
        ("t0", "t0, t1, t2, t3, t4 and 1 more wait for a review, and no reviewer runs"),
    ]
    (verdict,) = alarms(1, "coder-1")
    assert (verdict.about, verdict.waiting_since) == ("t0", later(-9))
    assert verdict.message == (
        "t0 waits for your verdict, because the crew has no reviewer (liza up --planners 0 --program codex); "
        "its changes: liza diff t0"
    )


def test_without_any_supervisor_an_approved_task_waits_for_no_role() -> None:
    approved = task("t", S.APPROVED, review_commit=HEAD, approved_by="code-reviewer-1")
    (alarm,) = waiting_alarms(board(approved), NOW, {}, frozenset())
    assert (alarm.kind, alarm.about, alarm.next) == ("no_agent", "goal", "liza status")
    assert alarm.message == "no agent of this crew can continue the open tasks"
