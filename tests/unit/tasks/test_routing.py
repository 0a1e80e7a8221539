"""`config.routing: record`: which idle coder a task is kept for, for how long, and who is never waited for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.model.model import Event, State, Status, Task
from liza.tasks.rules import picking, work_record
from liza.tasks.rules.picking import Evidence, NoTask, Pick
from liza.tasks.rules.work_record import TaskOutcome, TaskRecord
from tests.unit.boards import agents, board, claimed, later, task, with_config

S = Status
ADDED = (Event(time=later(0), event="add", agent="planner-1"),)


def record(*paths: str, outcome: TaskOutcome = TaskOutcome.MERGED, rejections: int = 0) -> TaskRecord:
    return TaskRecord(task="t", outcome=outcome, rejections=rejections, paths=paths)


EXPERT = {"coder-2": (record("src/a.py"),)}
ONLINE = Evidence(online=frozenset({"coder-1", "coder-2", "coder-3"}), records=EXPERT)


def crew(*tasks: Task, routing: str = "record") -> State:
    state = board(*(tasks or (task(history=ADDED),)), agents=agents("coder-1", "coder-2", "coder-3"))
    return with_config(state, routing=routing)


@pytest.mark.parametrize(
    ("records", "scope", "expected"),
    [
        ((), "src/", 0.0),
        ((record("src/a.py"),), "src/, tests/", 1.0),
        ((record("src/a.py"),), "src", 0.0),
        ((record("srcs/a.py"),), "src/", 0.0),
        ((record("src/a/b.py"),), "change `src/a/*.py`.", 1.0),
        ((record("README.md"),), "Only README.md.", 1.0),
        ((record("src/a.py", "src/b.py", rejections=1),), "./src/", 0.5),
        ((record("src/a.py"), record(outcome=TaskOutcome.FAILED)), "src/", 0.5),
        ((record("src/a.py"), record(outcome=TaskOutcome.OPEN)), "src/", 1.0),
    ],
)
def test_the_fit_counts_merges_in_the_scope_and_success(
    records: tuple[TaskRecord, ...], scope: str, expected: float
) -> None:
    assert work_record.fit(records, scope) == expected


def test_task_is_reserved_for_the_best_coder_for_a_time() -> None:
    state = crew()
    none = picking.pick_task(state, "coder-1", later(5), ONLINE)
    assert none == NoTask("task-1: the record of coder-2 fits best: 1 (beside coder-1 0, coder-3 0)", 15.0)
    assert isinstance(picking.pick_task(state, "coder-2", later(5), ONLINE), Pick)
    assert isinstance(picking.pick_task(state, "coder-1", later(work_record.PREFERENCE_SECONDS), ONLINE), Pick)


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ({"routing": "first"}, ONLINE),
        ({"offline": True}, ONLINE),
        ({"failed_by": ("coder-2",)}, ONLINE),
        ({"history": ()}, ONLINE),
        ({"busy": True}, ONLINE),
        ({}, replace(ONLINE, online=frozenset({"coder-1"}))),
        ({}, replace(ONLINE, online=frozenset({"coder-2"}))),
        ({}, replace(ONLINE, records={})),
        ({}, replace(ONLINE, records={"coder-1": EXPERT["coder-2"], **EXPERT})),
    ],
)
def test_no_task_waits_for_a_coder_who_is_not_better(change: dict[str, Any], evidence: Evidence) -> None:
    fields = {name: value for name, value in change.items() if name in ("failed_by", "history")}
    state = crew(task(**{"history": ADDED, **fields}), routing=change.get("routing", "record"))
    if "busy" in change:
        state = with_config(replace(state, tasks=(*state.tasks, task("task-2"))), routing="record")
        state, _ = claimed(state, "task-2", "coder-2")
    if "offline" in change:
        state = state.with_agent("coder-2", replace(state.agents["coder-2"], status="OFFLINE"))
    pick = picking.pick_task(state, "coder-1", later(5), evidence)
    assert isinstance(pick, Pick)
    assert pick.task.id == "task-1"


def test_preference_time_begins_once_the_last_dependency_is_met() -> None:
    merged = task("task-0", S.MERGED, history=(Event(time=later(100), event="merge"),))
    waiting = task(depends_on=("task-0",), history=ADDED)
    state = crew(merged, waiting)
    assert work_record.preference_seconds(state, waiting, later(110)) == 10.0
    assert work_record.preference_seconds(state, waiting, later(90)) == 0.0


def test_under_the_lock_no_record_is_read() -> None:
    class Unreadable(dict[str, Any]):
        def get(self, *_: object) -> Any:
            raise AssertionError("read under the lock")

    state, _ = claimed(crew(task(history=ADDED), task("task-2", history=ADDED)), "task-1", "coder-3")
    evidence = replace(ONLINE, records=Unreadable())
    assert picking.claimable_now(state, "task-1", "coder-1", later(5), evidence) == "task-2"


def test_failed_merges_count_as_rejections_in_a_rounded_fit() -> None:
    failed = TaskRecord(task="t", outcome=TaskOutcome.MERGED, failed_merges=1, rejections=1, paths=("src/a.py",))
    assert work_record.fit((failed,), "src/") == 0.333
    assert work_record.fit((record("src/a.py"), failed), "src/") == 1.333


@pytest.mark.parametrize(
    ("scope", "areas"),
    [
        ("", set()),
        ("all files", set()),
        ("./src/, (tests/unit);\nREADME.md.", {"src", "tests/unit", "README.md"}),
        ("`src/*/a.py` and 'lib/[ab].py', \"x/?\":", {"src", "lib", "x"}),
        ("src/a.py...", {"src/a.py"}),
        ("and/or", {"and/or"}),
        ("/", set()),
    ],
)
def test_a_scope_names_paths_up_to_the_first_wildcard(scope: str, areas: set[str]) -> None:
    assert work_record.scope_areas(scope) == areas


@pytest.mark.parametrize(
    ("fits", "agent", "why"),
    [
        ({}, None, ""),
        ({"coder-1": 0.0}, None, ""),
        ({"coder-1": 0.5}, "coder-1", "the record of coder-1 fits best: 0.5"),
        ({"a": 1.0, "b": 2.0, "c": 2.0}, "b", "the record of b fits best: 2 (beside a 1, c 2)"),
    ],
)
def test_the_first_of_equal_fits_is_chosen_and_others_named(
    fits: dict[str, float], agent: str | None, why: str
) -> None:
    choice = work_record.choose(fits, 5.0)
    assert (choice.agent if choice else None) == agent
    assert choice is None or (choice.why, choice.seconds) == (why, 5.0)


@pytest.mark.parametrize(("passed", "left"), [(0.0, 20.0), (19.5, 0.5), (20.0, 0.0), (21.0, 0.0), (-1.0, 0.0)])
def test_a_task_is_kept_for_20_seconds(passed: float, left: float) -> None:
    state = crew()
    assert work_record.preference_seconds(state, state.tasks[0], later(passed)) == left
    assert work_record.preference_seconds(state, task(), later(0)) == 0.0
