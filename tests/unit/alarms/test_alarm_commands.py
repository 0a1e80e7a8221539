"""Which alarms a board has, what each is about, and which command it names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import liza
from liza.alarms.rules.alarm_checks import AlarmFacts, evaluate_alarms
from liza.config.rules.settings import UnconfirmedSetting
from liza.crew.crew import Crew
from liza.merging.rules.repository_drift import RepositoryDrift
from liza.model.agent_states import StoppedProcesses
from liza.model.alarm_table import Alarm, AlarmKind, LoggedKind, alarm_class, waits_for_person
from liza.model.configuration import Config, Delivery, TestProof
from liza.model.model import (
    Agent,
    Discovery,
    Event,
    MergeInProgress,
    PlanningClaim,
    State,
    Status,
    SupervisorExit,
    Task,
    Undo,
)
from liza.tasks.rules import claims
from liza.tasks.rules.picking import Evidence, MissingParts
from tests.unit.boards import BASE, HEAD, HERE, NOW, agents, board, later, task, with_config
from tests.unit.house.test_typed_commands import hint_complaint, texts
from tests.unit.sources import nodes_of, parse_module

ROOT = Path(liza.__file__).parent
S = Status
TESTED = Config(integration_command="make test")
LONG = "word " * 100
LONG_SHOWN = ("word " * 100)[:159] + "…"


def crew(*tasks: Task, **fields: Any) -> State:
    fields = {"config": TESTED, "agents": agents("coder-1", "coder-2", "code-reviewer-1", runs=9), **fields}
    return board(*tasks, **fields)


def shown(state: State, **facts: Any) -> list[tuple[str, str, str]]:
    alarms = evaluate_alarms(state, NOW, AlarmFacts(**facts))
    return [(alarm.kind, alarm.about, alarm.next) for alarm in alarms]


def held(**fields: Any) -> Task:
    base = {"assigned_to": "coder-1", "run": "coder-1.1", "worktree": "s1", "base_commit": BASE}
    return task(status=S.CLAIMED, **{**base, "lease_expires": later(60), **fields})


def work(status: Status, **fields: Any) -> Task:
    return task(
        status=status,
        **{"assigned_to": "coder-1", "worktree": "s1", "base_commit": BASE, "review_commit": HEAD, **fields},
    )


def event(name: str, detail: str | None = None) -> Event:
    return Event(time=NOW, event=name, agent="coder-1", detail=detail)


def merged(name: str = "task-1", **fields: Any) -> Task:
    base = {"review_commit": HEAD, "approved_by": "code-reviewer-1", "merge_commit": HEAD, "tested": False}
    return task(name, S.MERGED, **{**base, **fields})


DEAD = Evidence(offline=frozenset({"coder-1"}), dead=frozenset({"coder-1.1"}))
OFFLINE = Evidence(offline=frozenset({"coder-1"}))
ROWS: dict[str, tuple[State, dict[str, Any], list[tuple[str, str, str]]]] = {
    "a supervisor exited": (
        crew(task()),
        {"exits": {"coder-1": SupervisorExit(time=NOW, reason="x" * 400)}},
        [("supervisor_left", "coder-1", "liza up")],
    ),
    "a supervisor exited and named the command that helps": (
        crew(task()),
        {"exits": {"coder-1": SupervisorExit(time=NOW, reason="no login", next="liza programs accounts")}},
        [("supervisor_left", "coder-1", "liza programs accounts; liza up")],
    ),
    "a session without progress, and usage without a price": (
        crew(task()),
        {"no_progress": {"coder-1": f"no progress: {LONG}"}, "unpriced": "codex reports no cost"},
        [("no_progress", "coder-1", "liza logs coder-1"), ("budget_blind", "budget", "liza edit")],
    ),
    "a guard file that does not count": (
        crew(task()),
        {"guard_notices": (("guards.toml was changed", "liza programs trust"),)},
        [("guards_untrusted", "guards", "liza programs trust")],
    ),
    "a task that every coder failed": (
        crew(task(failed_by=("coder-1", "coder-2"))),
        {},
        [("needs_another_coder", "task-1", "liza up --coders 3")],
    ),
    "a dependency that is lost beside one that is not": (
        crew(task("a", S.ABANDONED), task("b"), task("c", depends_on=("b", "a"))),
        {},
        [("never_claimable", "c", "liza task edit c --depends b")],
    ),
    "an undone dependency of work in progress": (
        crew(
            task("a", S.ABANDONED, merge_commit=HEAD, undo=Undo(commit=BASE, tested=True)),
            held(depends_on=("a",)),
        ),
        {},
        [("never_claimable", "task-1", 'liza task supersede a --by "…" --because "…"')],
    ),
    "a killed supervisor": (
        crew(held()),
        {"unsupervised": frozenset({"coder-1"})},
        [("supervisor_gone", "coder-1", "liza up")],
    ),
    "a stopped up": (
        crew(),
        {"stopped": StoppedProcesses(keepers=(7,))},
        [("up_stopped", "up", "kill -CONT 7")],
    ),
    "a stopped crew": (
        crew(),
        {"stopped": StoppedProcesses({"coder-1": 9}, (7,))},
        [("supervisor_stopped", "coder-1", "kill -CONT 7 9"), ("up_stopped", "up", "kill -CONT 7 9")],
    ),
    "a status that nothing led to": (
        crew(work(S.APPROVED, approved_by="code-reviewer-1", history=(event("add"),))),
        {},
        [("unexplained_status", "task-1", "liza edit")],
    ),
    "a draft that was asked for, without a date": (
        crew(task(status=S.DRAFT, created=None)),
        {},
        [("stale_draft", "task-1", "liza task edit task-1")],
    ),
    "a draft that was asked for and lacks two things": (
        crew(task(status=S.DRAFT)),
        {"missing_parts": {"task-1": MissingParts(("no scope", "no spec"), 'liza task edit task-1 --scope "…"')}},
        [("stale_draft", "task-1", 'liza task edit task-1 --scope "…"')],
    ),
    "six drafts that lack the same": (
        crew(*(task(name, S.DRAFT, history=(event("add", "no spec"),)) for name in "abcdef")),
        {"missing_parts": dict.fromkeys("abcdef", MissingParts(("no spec",), "git add spec.md"))},
        [("incomplete_draft", "a", "git add spec.md")],
    ),
    "two drafts that lack nothing any more": (
        crew(*(task(name, S.DRAFT, history=(event("add", "no spec"),)) for name in "ab")),
        {"missing_parts": dict.fromkeys("ab", MissingParts((), "liza up"))},
        [("incomplete_draft", "a", "liza up")],
    ),
    "one draft that lacks two things": (
        crew(task(status=S.DRAFT, history=(event("add", "no spec"),))),
        {"missing_parts": {"task-1": MissingParts(("no scope", "no spec"), "liza task edit task-1")}},
        [("incomplete_draft", "task-1", "liza task edit task-1")],
    ),
    "a lease that ran out while its supervisor runs": (
        crew(held(lease_expires=NOW)),
        {},
        [("expired_lease", "task-1", "liza logs coder-1")],
    ),
    "a lease that ran out of a session that was stopped": (
        crew(held(lease_expires=NOW, history=(event("claim"), event("stop")))),
        {"evidence": OFFLINE},
        [],
    ),
    "the lease of a claim that is only reserved": (
        claims.reserve(crew(held(lease_expires=NOW)), "task-1", claims.Claimant("coder-2", HERE), "s2", NOW, DEAD)[0],
        {},
        [],
    ),
    "a review lease that ran out": (
        crew(
            work(
                S.READY_FOR_REVIEW,
                reviewing_by="code-reviewer-1",
                review_run="code-reviewer-1.2",
                review_lease_expires=NOW,
            )
        ),
        {},
        [("expired_review_lease", "task-1", "liza logs code-reviewer-1")],
    ),
    "a review that is within its lease": (
        crew(
            work(
                S.READY_FOR_REVIEW,
                reviewing_by="code-reviewer-1",
                review_run="code-reviewer-1.2",
                review_lease_expires=later(1),
            )
        ),
        {},
        [],
    ),
    "a question": (
        crew(task(status=S.BLOCKED, blocked_reason="two\nspecs", blocked_questions=("Which?", "When?"))),
        {},
        [("blocked", "task-1", 'liza answer task-1 "…"')],
    ),
    "a task that two coders failed": (
        crew(task(status=S.BLOCKED, failed_by=("coder-1", "coder-2"), blocked_reason="r", blocked_questions=("q",))),
        {},
        [("hypothesis_exhaustion", "task-1", 'liza answer task-1 "…"')],
    ),
    "a merge that waits for files, and is held": (
        crew(
            work(
                S.APPROVED,
                approved_by="code-reviewer-1",
                merging=MergeInProgress(candidate=HEAD, expected=BASE, waiting=("a.py", "b.py")),
                merge_hold="not on\nFriday",
                history=(Event(time=NOW, event="approve", agent="code-reviewer-1", commit=HEAD),),
            )
        ),
        {},
        [("waiting_for_files", "task-1", "liza merge task-1"), ("merge_held", "task-1", "liza queue release task-1")],
    ),
    "a failed merge without a reason": (
        crew(work(S.INTEGRATION_FAILED)),
        {},
        [("integration_failed", "task-1", "liza task show task-1")],
    ),
    "a failed merge whose coder is offline": (
        crew(work(S.INTEGRATION_FAILED, history=(event("merge failed", "conflict (log: /l/a.log)\nmore"),))),
        {"evidence": OFFLINE},
        [("orphaned_integration_failed", "task-1", "liza up"), ("integration_failed", "task-1", "less /l/a.log")],
    ),
    "rejected work whose coder is offline": (
        crew(work(S.REJECTED, rejection_reason="r")),
        {"evidence": OFFLINE},
        [("orphaned_rejected", "task-1", "liza up")],
    ),
    "a task near the limit of tries and of rejections": (
        crew(task(iteration=8, review_cycles_current=5)),
        {},
        [
            ("approaching_limits", "task-1", "liza task show task-1"),
            ("approaching_limits", "task-1", "liza task show task-1"),
        ],
    ),
    "a task that a coder failed after rejections": (
        crew(task(failed_by=("coder-1",), review_cycles_total=3)),
        {},
        [("approaching_limits", "task-1", "liza task show task-1")],
    ),
    "a task that a coder failed after two rejections": (
        crew(task(failed_by=("coder-1",), review_cycles_total=2)),
        {},
        [],
    ),
    "a task that was merged at its last try": (
        crew(merged(iteration=10, tested=True)),
        {},
        [],
    ),
    "a forgotten signal": (
        crew(task()),
        {"signals": {"ABORT": NOW - timedelta(minutes=31, seconds=59), "PAUSE": None}},
        [("stale_abort", "ABORT", "liza resume")],
    ),
    "a misspelt setting": (
        crew(task()),
        {"unknown_config": ("integration_comand",)},
        [("unknown_config", "config", "liza edit")],
    ),
    "numbers outside of their limits": (
        crew(task()),
        {"written": Config(lease_duration=10**15, delivery=Delivery(retry_backoffs=(-1.0, -2.0)))},
        [
            ("unusable_setting", "lease_duration", "liza config set lease_duration --default"),
            ("unusable_setting", "delivery.retry_backoffs", "liza config set delivery.retry_backoffs --default"),
        ],
    ),
    "a planning lease that ran out": (
        crew(task(), planning=PlanningClaim(run="planner-1.2", trigger="INITIAL_PLANNING", lease_expires=NOW, count=1)),
        {},
        [("expired_planning_lease", "planning", "liza logs planner-1")],
    ),
    "an urgent discovery without an author": (
        crew(task(), discovered=(Discovery(id="d1", urgency="immediate", description=LONG),)),
        {},
        [("immediate_discovery", "d1", "liza task add --from-discovery d1 --id fix-d1")],
    ),
    "six merges without a test": (
        crew(*(merged(name) for name in "abcdef")),
        {},
        [("untested_merges", "config", "liza edit")],
    ),
    "a merge without a test, and no test command": (
        crew(merged(), config=Config()),
        {},
        [
            (
                "untested_merges",
                "config",
                'liza config set integration_command "make test"',
            )
        ],
    ),
    "no test command": (
        crew(task(), config=Config()),
        {},
        [
            (
                "untested_merges",
                "config",
                'liza config set integration_command "make test"',
            )
        ],
    ),
    "changes outside of Liza": (
        crew(task()),
        {
            "repository": RepositoryDrift(moved="integration was moved by bob"),
            "unconfirmed": (UnconfirmedSetting("push", "never", "auto"),),
        },
        [
            ("unconfirmed_setting", "push", "liza doctor --accept push"),
            ("integration_moved", "integration", "git log --first-parent refs/heads/integration"),
        ],
    ),
    "a moved integration with commands to continue, and settings that nobody confirmed": (
        crew(task()),
        {"repository": RepositoryDrift(moved="moved", ways="git reset"), "unconfirmed": None},
        [
            ("unconfirmed_setting", "settings", "liza doctor --accept settings"),
            ("integration_moved", "integration", "git reset"),
        ],
    ),
}


@pytest.mark.parametrize(("state", "facts", "expected"), ROWS.values(), ids=ROWS)
def test_an_alarm_names_its_subject_and_one_command(
    state: State, facts: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    assert shown(state, **facts) == expected


def test_a_question_has_its_time_or_its_reason() -> None:
    asked = task(
        status=S.BLOCKED,
        blocked_reason=LONG,
        blocked_questions=(),
        history=(event("add"), Event(time=later(-9), event="block")),
    )
    alarms = evaluate_alarms(crew(asked), NOW, AlarmFacts())
    (alarm,) = (alarm for alarm in alarms if alarm.kind == "blocked")
    cause, _, question = alarm.message.removeprefix("task-1 is blocked (").partition(") and asks: ")
    assert LONG.startswith(cause.removesuffix("…"))
    assert len(cause) > len(question)
    assert question == LONG_SHOWN
    assert alarm.waiting_since == later(-9)


@pytest.mark.parametrize(("minutes", "told"), [(29, False), (30, True)])
def test_drafts_and_signals_are_forgotten_after_half_an_hour(minutes: int, told: bool) -> None:
    since = NOW - timedelta(minutes=minutes)
    assert bool(shown(crew(task()), signals={"PAUSE": since})) is told
    plan = PlanningClaim(run="planner-1.2", trigger="INITIAL_PLANNING", lease_expires=later(60), count=1)
    assert bool(shown(crew(task(status=S.DRAFT, created=since), planning=plan))) is told


@pytest.mark.parametrize(("rejections", "told"), [(2, False), (3, True)])
def test_rejections_are_announced_two_before_their_limit(rejections: int, told: bool) -> None:
    assert bool(shown(crew(task(review_cycles_current=rejections)))) is told
    assert shown(with_config(crew(task(review_cycles_current=rejections)), max_review_cycles=2)) == []


def test_tests_of_another_checkout_stop_merges() -> None:
    state = crew(task())
    command = state.config.integration_command
    proof = TestProof(outcome="elsewhere", why="/shop/src", command=command)
    (alarm,) = shown(with_config(state, proof=proof))
    assert alarm == ("tests_elsewhere", "config", "liza edit && liza doctor --tests")


def test_only_some_alarms_stop_work_until_a_person_acts() -> None:
    both = crew(task(iteration=8), task("b", S.BLOCKED, blocked_reason="r", blocked_questions=("q",)))
    alarms = evaluate_alarms(both, NOW, AlarmFacts())
    assert [(alarm.kind, waits_for_person(alarm.kind)) for alarm in alarms] == [
        ("approaching_limits", False),
        ("blocked", True),
    ]


def test_alarms_that_ask_to_start_agents_name_one_command() -> None:
    ran = {f"coder-{number}": Agent(role="coder", status="OFFLINE", runs=1, program="codex") for number in (1, 2)}
    state = crew(task(failed_by=("coder-1", "coder-2")), held(), agents={**ran, **agents("code-reviewer-1")})
    left = {name: SupervisorExit(time=NOW, reason="3 sessions crashed") for name in ran}
    for offline in (frozenset[str](), frozenset(ran)):
        facts: dict[str, Any] = {"exits": left, "evidence": Evidence(offline=offline)}
        commands = {row[0]: row[2] for row in shown(state, **facts) if "liza up" in row[2]}
        assert commands.keys() == {"supervisor_left", "needs_another_coder"}
        assert set(commands.values()) == {"liza up --planners 0 --coders 3 --reviewers 0 --program codex"}
    (alone,) = {row[2] for row in shown(crew(agents=ran), exits=left)}
    assert alone == "liza up --planners 0 --coders 2 --reviewers 0 --program codex"


@pytest.mark.parametrize("case", ROWS)
def test_the_command_of_an_alarm_can_be_typed_unchanged(case: str) -> None:
    state, facts, _ = ROWS[case]
    assert [hint_complaint(step) for _, _, step in shown(state, **facts)] == [None] * len(ROWS[case][2])


def test_an_alarm_needs_an_answer_or_a_step_or_informs() -> None:
    kinds = ("blocked", "stale_pause", "integration_failed", "account", "model", "board-unreadable")
    assert [str(alarm_class(kind)) for kind in kinds] == ["answer", "step", "news", "step", "news", "step"]


def literal_kinds() -> Iterator[str]:
    """Kinds that the source gives to alarms and to lines of the alert log as text."""
    for path in sorted(ROOT.rglob("*.py")):
        tree = parse_module(path)
        for node in nodes_of(tree):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            first = node.args[0] if isinstance(node, ast.Call) and node.args else None
            if name == Alarm.__name__ and isinstance(first, ast.Constant):
                yield str(first.value)
            if name == Crew.append_alert_log.__name__ and first is not None:
                lines = (text for part in ast.walk(first) for text in strings_of(part))
                yield from (line[1] for text in lines if (line := re.match(r"(\w+)  ", text)))
        yield from (line[1] for _, text in texts(tree) if (line := re.match(r"(\w+)  .*\. Next: ", text)))


def strings_of(node: ast.AST) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_every_kind_of_alarm_and_log_entry_has_a_class() -> None:
    kinds = set(literal_kinds())
    assert len(kinds) > 20
    assert kinds - {*AlarmKind, *LoggedKind} == {"VALUE", "test"}  # computed; a trial notice


def test_a_killed_reviewer_is_an_alarm_after_the_coders_lease() -> None:
    review = {
        "reviewing_by": "code-reviewer-1",
        "review_run": "code-reviewer-1.2",
        "review_lease_expires": later(60),
        "lease_expires": NOW,
    }
    found = shown(crew(work(S.READY_FOR_REVIEW, **review)), unsupervised=frozenset({"code-reviewer-1"}))
    assert [(kind, about) for kind, about, _ in found] == [("supervisor_gone", "code-reviewer-1")]
