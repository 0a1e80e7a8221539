"""Which tasks share files, which of them is taken first, and which one waits."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from liza.model.configuration import OverlapRule
from liza.model.model import Reservation, State, Status, Submission, Task
from liza.tasks.rules import overlap, picking
from liza.tasks.rules.overlap import Footprint, Overlap, can_meet
from liza.tasks.rules.picking import Evidence, Pick
from tests.unit.boards import BASE, HEAD, NOW, agents, board, claimed, later, submitted, task, with_config

S = Status
PATHS = ["".join(letters) for length in range(1, 7) for letters in itertools.product("ab/", repeat=length)]
names = st.text("ab/*?", min_size=1, max_size=3).filter(lambda name: name.strip("/") == name)


def reservation(agent: str = "coder-1") -> Reservation:
    return Reservation(agent=agent, run=f"{agent}.1", slot="s1", host="box", boot="b", pid=1, start="1", expires=NOW)


@pytest.mark.parametrize(
    ("name", "other", "expected"),
    [
        ("src/a.py", "src/a.py", True),
        ("src/a.py", "src/b.py", False),
        ("src", "src/a.py", True),
        ("src/a", "src/a.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a.ts", False),
        ("src/*.py", "src", True),
        ("src/*.py", "srcs", False),
        ("src/**/test_*.py", "src/shop", True),
        ("src/*.py", "*.py", True),
        ("src/*.py", "src/*.ts", False),
        ("src/a*", "src/*b", True),
        ("src/[ab].py", "src/b.py", True),
        ("src/?.py", "src/bb.py", False),
        ("docs/*", "docs/a/b.md", True),
        ("*.md", "docs", True),
        ("*.py", "src/a.ts", False),
        ("*.py", ".github", True),
        ("packages/*/src", "packages/web/src/a.ts", True),
        ("v1.2", "v1.2/a.py", True),
    ],
)
def test_names_meet_if_one_path_can_belong_to_both(name: str, other: str, expected: bool) -> None:
    assert can_meet(name, other) is expected
    assert can_meet(other, name) is expected


@settings(max_examples=60, deadline=None)
@given(names, names)
def test_names_meet_exactly_if_there_is_such_a_path(name: str, other: str) -> None:
    patterns = [(each, f"{each}/*") for each in (name, other)]
    both = [path for path in PATHS if all(any(fnmatchcase(path, part) for part in each) for each in patterns)]
    assert can_meet(name, other) is bool(both)


@pytest.mark.parametrize(
    ("scope", "other", "changed", "expected"),
    [
        ("shop/a.py, tests/test_a.py", "`shop/a.py`.", {}, "shop/a.py"),
        ("shop/", "shop/a.py", {}, "shop/a.py"),
        ("the button", "the button", {}, None),
        ("what the sentence needs, and its tests", "shop/", {}, None),
        ("shop/a.py", "shop/b.py", {}, None),
        ("shop/a.py", "docs/x.md", {"task-2": {"shop/a.py"}}, "shop/a.py"),
        ("shop/a.py", "docs/x.md", {"task-1": {"z", "lib/b"}, "task-2": {"lib/b", "lib/c"}}, "lib/b"),
        ("shop/a.py and the Makefile", "docs/x.md", {"task-2": {"Makefile"}}, "Makefile"),
        ("shop/*.py", "docs/x.md", {"task-2": {"shop/sub/a.py"}}, "shop/sub/a.py"),
    ],
)
def test_the_shared_path_is_a_changed_file_or_the_longer_name(
    scope: str, other: str, changed: dict[str, set[str]], expected: str | None
) -> None:
    tasks = task("task-1", scope=scope), task("task-2", S.CLAIMED, scope=other, assigned_to="coder-2")
    files = {name: frozenset(paths) for name, paths in changed.items()}
    found = overlap.find_overlaps(board(*tasks), tasks[:1], files, overlap.is_in_work)
    assert found == ({"task-1": (Overlap("task-2", expected, "coder-2"),)} if expected else {})


def test_of_submitted_work_only_what_it_changed_counts() -> None:
    done = task("task-2", S.APPROVED, scope="shop/")
    changed = {"task-2": frozenset({"shop/b.py"})}
    assert overlap.footprint(done, changed).common_path(Footprint(("shop/a.py",))) is None
    assert overlap.footprint(done, {}).common_path(Footprint(("shop/a.py",))) == "shop/a.py"


@pytest.mark.parametrize(
    ("first", "second", "third"),
    [
        ({}, {"depends_on": ("task-1",)}, {}),
        ({"depends_on": ("task-2",)}, {}, {}),
        ({}, {"depends_on": ("task-3",)}, {"depends_on": ("task-1",)}),
        ({"status": S.MERGED}, {}, {}),
    ],
)
def test_tasks_that_a_dependency_orders_do_not_overlap(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    tasks = (task("task-1", **first), task("task-2", **second), task("task-3", scope="docs/x.md", **third))
    assert overlap.find_overlaps(board(*tasks), tasks[1:], {}, lambda _: True) == {}


def test_a_message_names_the_tasks_in_work_first_and_only_five() -> None:
    tasks = [task(f"task-{number}") for number in range(1, 8)]
    tasks.append(task("late", S.CLAIMED, assigned_to="coder-1"))
    others = overlap.find_overlaps(board(*tasks), tasks[:1], {}, lambda _: True)["task-1"]
    assert overlap.describe("task-1", others) == (
        "task-1 shares files with late (coder-1), src; task-2, src; task-3, src; task-4, src; task-5, src; and 2 more"
    )
    assert overlap.describe("task-1", ()) == ""


footprints = st.builds(
    Footprint,
    st.lists(st.sampled_from(["a", "a/b", "a/b/c", "a/*", "*.py", "b/x.py", "b"]), max_size=2).map(tuple),
    st.lists(st.sampled_from(["Makefile", "a", "the"]), max_size=1).map(tuple),
    st.frozensets(st.sampled_from(["a/b/c", "b/x.py", "b/y", "Makefile"]), max_size=2),
)


@given(st.lists(footprints, min_size=1, max_size=6))
def test_the_index_finds_what_comparing_all_pairs_finds(each: list[Footprint]) -> None:
    index = overlap.FootprintIndex({str(number): footprint for number, footprint in enumerate(each)})
    for number, own in enumerate(each):
        paths = {str(at): own.common_path(other) for at, other in enumerate(each) if at != number}
        assert index.find(str(number), own) == {name: path for name, path in paths.items() if path is not None}


def crew(*tasks: Task, **config: Any) -> State:
    return with_config(board(*tasks, agents=agents("coder-1", "coder-2")), **config)


def taken(state: State, **changed: frozenset[str]) -> str:
    evidence = Evidence(changed={name.replace("_", "-"): files for name, files in changed.items()})
    pick = picking.pick_task(state, "coder-2", NOW, evidence)
    return pick.task.id if isinstance(pick, Pick) else pick.why


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "task-3"),
        ({"priority": 1}, "task-2"),
        ({"scope": "docs/"}, "task-2"),
        ({"base_commit": BASE}, "task-2"),
        ({"depends_on": ("task-1",)}, "task-3"),
    ],
)
def test_a_coder_takes_a_task_without_shared_files_first(fields: dict[str, Any], expected: str) -> None:
    state = crew(task(), task("task-2", **fields), task("task-3", scope="lib/", created=later(1)))
    state, _ = claimed(state)
    assert taken(state) == expected


def test_a_task_with_shared_files_is_taken_if_there_is_no_other() -> None:
    state, _ = claimed(crew(task(), task("task-2"), task("task-3", scope="lib/", priority=4)))
    assert taken(state) == "task-2"
    state, _ = claimed(crew(task(scope="lib/"), task("task-2"), task("task-3", created=later(1))))
    assert taken(state, task_1=frozenset({"src/a.py"})) == "task-2"


HELD = "task-2: it waits for task-1: both have src (config.overlap is hold: liza config set overlap warn)"


def test_hold_keeps_a_task_until_the_other_is_merged_or_closed() -> None:
    state = crew(task(), task("task-2"), overlap=OverlapRule.HOLD)
    for step in (claimed(state)[0], submitted(state)[0]):
        assert taken(step).endswith(HELD)
    for status, why in ((S.APPROVED, HELD), (S.REJECTED, HELD), (S.MERGED, "task-2"), (S.ABANDONED, "task-2")):
        step = replace(state, tasks=(task(status=status, review_commit=HEAD, failed_by=("coder-2",)), state.tasks[1]))
        assert taken(step).rpartition("; ")[2] == why
    assert taken(replace(state, tasks=(task(status=S.BLOCKED), state.tasks[1]))) == "task-2"
    assert taken(replace(state, tasks=(task(reservation=reservation()), state.tasks[1]))).endswith(HELD)


def test_work_that_goes_back_to_its_author_holds_no_task() -> None:
    back = task(status=S.REJECTED, submission=Submission(branch="mine"))
    assert taken(crew(back, task("task-2"), overlap=OverlapRule.HOLD)) == "task-2"
    back = replace(back, submission=Submission(branch="mine", fix="crew"), failed_by=("coder-2",))
    assert taken(crew(back, task("task-2"), overlap=OverlapRule.HOLD)).endswith(HELD)


def test_shown_are_tasks_in_work_with_the_same_files_and_held_ones() -> None:
    tasks = [task(), task("task-2"), task("task-3", scope="src/a.py"), task("task-4", scope="lib/")]
    state = crew(*tasks, task("task-5", scope="src/", depends_on=("task-4",)))
    for name, agent in (("task-1", "coder-1"), ("task-2", "coder-2")):
        state, _ = claimed(state, name, agent)
    both = {"task-1": (Overlap("task-2", "src", "coder-2"),), "task-2": (Overlap("task-1", "src", "coder-1"),)}
    assert picking.find_shared_files(state, {}) == both
    state = with_config(state, overlap=OverlapRule.HOLD)
    assert picking.find_shared_files(state, {}) == {**both, "task-3": (Overlap("task-1", "src/a.py", "coder-1"),)}


STATUSES = (S.UNCLAIMED, S.UNCLAIMED, S.CLAIMED, S.READY_FOR_REVIEW, S.APPROVED, S.REJECTED, S.BLOCKED, S.MERGED)


@st.composite
def boards_with_hold(draw: st.DrawFn) -> State:
    tasks: list[Task] = []
    for number in range(draw(st.integers(2, 6))):
        before = draw(st.lists(st.sampled_from([each.id for each in tasks]), max_size=2)) if tasks else []
        status = draw(st.sampled_from(STATUSES))
        base = BASE if status is not S.UNCLAIMED or draw(st.booleans()) else None
        scope = draw(st.sampled_from(["a/b", "a/", "b/", "a/*, b/x.py"]))
        tasks.append(task(f"task-{number}", status, scope=scope, depends_on=tuple(before), base_commit=base))
    return crew(*draw(st.permutations(tasks)), overlap=OverlapRule.HOLD)


@given(boards_with_hold())
def test_held_tasks_and_dependencies_never_wait_in_a_circle(state: State) -> None:
    open_tasks = [each for each in state.tasks if each.status is not S.MERGED]
    waits = {each.id: set(picking.unmet_dependencies(state, each)) for each in open_tasks}
    for each in state.tasks:
        holder = picking.find_holder(state, each, {}) if each.status is S.UNCLAIMED else None
        if holder is not None:
            assert not waits[holder.task]
            waits[each.id].add(holder.task)
    while free := {name for name, others in waits.items() if not others & waits.keys()}:
        waits = {name: others for name, others in waits.items() if name not in free}
    assert waits == {}
