"""Epics: which branch a task goes to, which work it waits for, and when the branch of an epic lands or is updated."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from liza.alarms.rules.alarm_checks import AlarmFacts, evaluate_alarms
from liza.board.rules import archiving
from liza.merging.rules import epic_rules, merge_queue
from liza.merging.rules.epic_rules import EpicJob
from liza.merging.rules.merge_rules import MAX_RETRY_DELAY, MergeFailure, MergeFailureKind
from liza.model import invariants, targets
from liza.model.errors import Refused, UsageError
from liza.model.model import Epic, EpicStep, State, Status, Task
from liza.model.transitions import Invocation
from liza.tasks.rules import backlog, picking, planning
from liza.tasks.rules.backlog import RequestContext, TaskFields
from tests.unit.merging.test_merging import NOW, TIP, approved, board

LAND, UPDATE = EpicJob("shop", EpicStep.LAND), EpicJob("shop", EpicStep.UPDATE)
BY = Invocation(now=NOW, by="human:ann")
FAILED = MergeFailure(MergeFailureKind.FAILED, "disk full", "df -h")


def task(name: str, status: Status = Status.UNCLAIMED, **fields: object) -> Task:
    texts = {"description": "d", "done_when": "w", "scope": "s", "spec_ref": "p"}
    return Task(id=name, status=status, **texts, **fields)  # type: ignore[arg-type]


def merged(name: str, **fields: object) -> Task:
    return replace(approved(name), status=Status.MERGED, worktree=None, merge_commit=TIP, **fields)


@pytest.mark.parametrize(
    ("fields", "branch"),
    [({}, "integration"), ({"epic": "shop"}, "epic/shop"), ({"target": "release/1"}, "release/1")],
)
def test_a_task_is_merged_into_its_epic_target_or_integration(fields: dict[str, str], branch: str) -> None:
    state = board(task("t", **fields))
    assert targets.target_branch(state, state.tasks[0]) == branch
    assert set(targets.target_branches(state)) == {"integration", branch}


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("release/1", True),
        ("main", True),
        ("task/x", False),
        ("epic/x", False),
        ("", False),
        ("a//b", False),
        ("a b", False),
    ],
)
def test_a_target_is_no_branch_that_agents_or_epics_write(name: str, allowed: bool) -> None:
    assert targets.is_target_name(name) is allowed
    found = invariants.check_entry("tasks", "t", task("t", target=name), board())
    assert (found == ()) is allowed


def test_an_epic_with_a_target_or_bad_name_breaks_rules() -> None:
    both = invariants.check_entry("tasks", "t", task("t", epic="shop", target="main"), board())
    assert [violation.field for violation in both] == ["target"]
    odd = invariants.check_entry("tasks", "t", task("t", epic="a/b"), board())
    assert [violation.field for violation in odd] == ["epic"]


DEPENDENCIES = [
    # asking task, merged task, what the epic contains, whether the dependency is met
    ({}, {}, (), True),
    ({}, {"epic": "shop"}, (), False),
    ({}, {"epic": "shop", "landed": TIP}, (), True),
    ({}, {"target": "main"}, (), False),
    ({"epic": "shop"}, {"epic": "shop"}, (), True),
    ({"epic": "shop"}, {"epic": "other"}, (), False),
    ({"epic": "shop"}, {}, (), False),
    ({"epic": "shop"}, {}, ("dep",), True),
    ({"epic": "shop"}, {"epic": "other"}, ("dep",), False),
    ({"epic": "shop"}, {"epic": "other", "landed": TIP}, ("dep",), True),
    ({"target": "main"}, {}, (), False),
    ({"target": "main"}, {"target": "main"}, (), True),
]


@pytest.mark.parametrize(("asking", "other", "contains", "met"), DEPENDENCIES)
@pytest.mark.parametrize("superseded", [False, True])
def test_a_dependency_is_met_once_the_tasks_branch_has_it(
    asking: dict[str, str], other: dict[str, str], contains: tuple[str, ...], met: bool, superseded: bool
) -> None:
    wanted = "old" if superseded else "dep"
    tasks = [task("t", depends_on=(wanted,), **asking), merged("dep", **other)]
    if superseded:
        tasks.append(task("old", Status.SUPERSEDED, superseded_by=("dep",), rescope_reason="r"))
    state = replace(board(*tasks), epics={"shop": Epic(contains=contains)})
    assert (picking.unmet_dependencies(state, tasks[0]) == ()) is met


@pytest.mark.parametrize(
    ("tasks", "job"),
    [
        ([merged("a", epic="shop")], LAND),
        ([merged("a", epic="shop"), task("b", Status.ABANDONED, epic="shop")], LAND),
        ([merged("a", epic="shop"), task("b", epic="shop")], None),
        ([merged("a", epic="shop", landed=TIP)], None),
        ([task("a", Status.ABANDONED, epic="shop")], None),
        ([task("a", epic="shop", depends_on=("b",)), merged("b")], UPDATE),
        ([task("a", epic="shop", depends_on=("b",)), merged("b", epic="other")], None),
        ([task("a", epic="shop", depends_on=("b",)), task("b")], None),
        ([merged("a")], None),
    ],
)
def test_an_epic_lands_when_closed_and_is_updated_when_needed(tasks: list[Task], job: EpicJob | None) -> None:
    state = board(*tasks)
    assert epic_rules.find_job(state, "shop") == job
    due = epic_rules.due_job(state, NOW)
    assert due == job or (due is not None and due.epic == "other")


def test_an_epic_is_merged_before_tasks_are() -> None:
    state = board(approved("x"), merged("a", epic="shop"))
    assert epic_rules.next_subject(state, NOW) == "epic/shop"
    assert epic_rules.next_subject(board(approved("x")), NOW) == "x"


def test_a_failed_landing_is_retried_after_growing_pauses_with_alarms() -> None:
    state, pauses = board(merged("a", epic="shop"), approved("x")), []
    for _ in range(20):
        state = epic_rules.schedule_retry(state, "shop", FAILED, NOW)
        pauses.append(epic_rules.seconds_to_next_try(state, NOW))
    assert (pauses[:3], pauses[-1]) == ([10.0, 20.0, 40.0], MAX_RETRY_DELAY)
    assert epic_rules.next_subject(state, NOW) == "x"
    assert epic_rules.next_subject(state, NOW + timedelta(seconds=MAX_RETRY_DELAY)) == "epic/shop"
    (alarm,) = [one for one in evaluate_alarms(state, NOW, AlarmFacts()) if one.kind == "epic_not_landed"]
    assert (alarm.about, alarm.next) == ("epic/shop", "df -h && liza merge epic/shop")
    assert "20 times): disk full" in alarm.message


def test_a_batch_has_tasks_of_one_branch_only() -> None:
    state = board(approved("a"), approved("b", epic="shop"), approved("c"), approved("d", epic="shop"))
    chosen = [[one.id for one in merge_queue.choose_batch(state, head, NOW)] for head in state.tasks[:2]]
    assert chosen == [["a", "c"], ["b", "d"]]


def test_the_batches_of_a_queue_are_planned_for_each_branch() -> None:
    tasks = [approved(name, epic=epic) for name, epic in zip("abcde", (None, "shop", None, "shop", None), strict=True)]
    assert [[one.id for one in batch] for batch in merge_queue.plan_batches(tasks, 2)] == [
        ["a", "c"],
        ["b", "d"],
        ["e"],
    ]


def test_a_landing_is_recorded_once_and_frees_waiting_tasks() -> None:
    state = board(merged("a", epic="shop"), merged("b", epic="shop"), task("t", depends_on=("a",)))
    assert not planning.is_crew_done(board(*state.tasks[:2]), has_planner=False)
    for _ in range(2):
        state = epic_rules.finish_landing(state, "shop", TIP, ["a", "b"], BY)
    events = [[event.event for event in one.history].count("land") for one in state.tasks]
    assert (events, state.epics["shop"]) == ([1, 1, 0], Epic(landed=(TIP,)))
    assert picking.unmet_dependencies(state, state.tasks[2]) == ()
    assert planning.is_crew_done(replace(state, tasks=state.tasks[:2]), has_planner=False)


def test_tasks_of_an_epic_stay_on_the_board_until_landed() -> None:
    state = board(merged("a", epic="shop"), merged("b"), merged("c", epic="shop", landed=TIP))
    assert [one.id for one in archiving.find_archivable(state, frozenset())] == ["b", "c"]


def test_an_epic_is_merged_only_while_that_is_due() -> None:
    state = board(merged("a", epic="shop"))
    begun = epic_rules.begin_merge(state, LAND, TIP, TIP)
    assert begun.epics["shop"].merging is not None
    tested = epic_rules.record_tested(begun, "shop", True).epics["shop"].merging
    assert (tested is not None and tested.tested, epic_rules.drop_candidate(begun, "shop").epics["shop"].merging) == (
        True,
        None,
    )
    grown = replace(state, tasks=(*state.tasks, task("b", epic="shop")))
    with pytest.raises(Refused, match="is not to land any more"):
        epic_rules.begin_merge(grown, LAND, TIP, TIP)
    with pytest.raises(Refused, match="has no candidate"):
        epic_rules.record_tested(state, "shop", True)


@pytest.mark.parametrize(
    ("subject", "allowed"), [("a", True), ("b", False), ("nothing", False), ("epic/shop", True), ("epic/other", False)]
)
def test_a_merger_is_started_for_what_can_be_merged(subject: str, allowed: bool) -> None:
    state = board(approved("a"), merged("b", epic="shop"))
    assert epic_rules.may_merge(state, subject) is allowed


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([], "there is no epic 'shop'"),
        ([merged("a", epic="shop", landed=TIP)], "has nothing to land"),
        ([task("a", epic="shop"), task("b", epic="shop")], "has 2 open tasks: a, b"),
    ],
)
def test_an_epic_that_is_not_landed_gives_the_reason(tasks: list[Task], words: str) -> None:
    assert words in epic_rules.no_job_reason(board(*tasks), "shop")[0]


def request(name: str, **fields: object) -> TaskFields:
    return TaskFields(name, "d", "w", "s", "p", **fields)  # type: ignore[arg-type]


def add(state: State, *wanted: TaskFields, **context: object) -> State:
    return backlog.add(state, wanted, RequestContext(BY, frozenset({"p"}), **context))  # type: ignore[arg-type]


def test_a_new_branch_contains_everything_merged_when_it_was_created() -> None:
    state = board(merged("early"), merged("late"))
    new = {"new_epics": frozenset({"shop"}), "delivered": frozenset({"early"})}
    grown = add(state, request("t", epic="shop", depends_on=("early", "late")), **new)
    assert grown.epics["shop"].contains == ("early",)
    later = add(grown, request("u", epic="shop", depends_on=("late",)))
    assert later.epics["shop"].contains == ("early",)
    assert epic_rules.find_job(later, "shop") == UPDATE
    assert epic_rules.finish_update(later, "shop").epics["shop"].contains == ("early", "late")


@pytest.mark.parametrize("fields", [{"epic": "a/b"}, {"epic": "shop", "target": "main"}, {"target": "task/x"}])
def test_a_request_with_a_bad_branch_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        add(board(), request("t", **fields))


def test_a_successor_is_merged_where_its_predecessor_would_have_been() -> None:
    state = add(board(), request("old", epic="shop"), request("release", target="main"))
    context = RequestContext(Invocation(now=NOW, by="human:ann", detail="it is too large"), frozenset({"p"}))
    state = backlog.supersede(state, "old", [request("new"), request("own", target="main")], (), context)
    state = backlog.supersede(state, "release", [request("next")], (), context)
    assert [(one.id, one.epic, one.target) for one in state.tasks[2:]] == [
        ("new", "shop", None),
        ("own", None, "main"),
        ("next", None, "main"),
    ]


NAMES = [f"t{number}" for number in range(6)]


@given(
    st.lists(
        st.tuples(st.sampled_from([None, "one", "two"]), st.sets(st.sampled_from(NAMES), max_size=3)),
        min_size=2,
        max_size=6,
    )
)
def test_tasks_of_any_accepted_epics_can_be_merged_and_landed(
    wanted: list[tuple[str | None, set[str]]],
) -> None:
    state = board()
    for name, (epic, needs) in zip(NAMES, wanted, strict=False):
        known = tuple(sorted(needs & {one.id for one in state.tasks}))
        with suppress(Refused):  # it would wait for itself
            state = add(state, request(name, epic=epic, depends_on=known))
    assert invariants.check_relations(state) == ()
    for _ in range(3 * len(NAMES)):
        state = _one_step(state)
    assert [one.status for one in state.tasks] == [Status.MERGED] * len(state.tasks)
    assert targets.open_epics(state) == ()


def _one_step(state: State) -> State:
    """Merge a task that can be claimed, or do what is due for an epic."""
    job = epic_rules.due_job(state, NOW)
    if job is not None and job.step is EpicStep.UPDATE:
        return epic_rules.finish_update(state, job.epic)
    if job is not None:
        return epic_rules.finish_landing(
            state, job.epic, TIP, [one.id for one in targets.tasks_of(state, job.epic)], BY
        )
    ready = [
        one for one in state.tasks if one.status is Status.UNCLAIMED and not picking.unmet_dependencies(state, one)
    ]
    if not ready:
        return state
    return state.with_task(replace(ready[0], status=Status.MERGED, merge_commit=TIP))


def test_a_successor_making_its_epic_wait_for_itself_is_refused() -> None:
    """``outside`` would wait until the epic lands, and the epic for ``inside``, which waits for ``outside``."""
    inside = task("inside", epic="shop", depends_on=("outside",))
    state = board(task("old"), task("outside", depends_on=("old",)), inside)
    new = TaskFields("new", "d", "w", "s", "p", epic="shop")
    context = RequestContext(replace(BY, detail="too large"), frozenset({"p"}))
    with pytest.raises(Refused, match="outside would wait for itself: outside → inside → outside"):
        backlog.supersede(state, "old", [new], (), context)
    between = backlog.supersede(state, "old", [replace(new, id="between", epic=None)], (), context)
    with pytest.raises(Refused, match="outside would wait for itself"):
        backlog.supersede(between, "between", [new], (), context)
    assert invariants.check_board(backlog.supersede(state, "old", [replace(new, epic=None)], (), context)) == ()


def test_a_merged_dependency_creates_no_cycle_for_later_epic_tasks() -> None:
    landed, outside = merged("model", epic="shop", landed=TIP), merged("report", depends_on=("model",))
    state = board(landed, outside)
    fields = TaskFields("export", "d", "w", "s", "p", epic="shop", depends_on=("report",))
    added = backlog.add(state, [fields], RequestContext(BY, frozenset({"p"})))
    assert invariants.check_board(added) == ()
    assert epic_rules.find_job(added, "shop") == UPDATE


def test_a_task_is_not_replaced_across_branches_of_its_dependents() -> None:
    state = board(task("old"), task("hotfix", target="release"), task("waiting", depends_on=("old",)))
    context = RequestContext(replace(BY, detail="too large"), frozenset({"p"}))
    with pytest.raises(Refused, match="waiting depends on old, and hotfix is merged into a different branch"):
        backlog.supersede(state, "old", [], ("hotfix",), context)
    free = board(*state.tasks[:2])
    replaced = backlog.supersede(free, "old", [], ("hotfix",), context)
    late = TaskFields("late", "d", "w", "s", "p", depends_on=("old",))
    with pytest.raises(Refused, match="late cannot depend on hotfix: they are merged into different branches"):
        backlog.add(replaced, [late], context)


def test_dependencies_on_a_target_branch_are_archived_after_their_dependents() -> None:
    first, second = merged("first", target="release"), task("second", target="release", depends_on=("first",))
    state = board(first, second, merged("other"))
    assert [moved.id for moved in archiving.find_archivable(state, frozenset())] == ["other"]
    assert picking.unmet_dependencies(state, second) == ()
    closed = board(first, replace(second, status=Status.ABANDONED))
    assert {moved.id for moved in archiving.find_archivable(closed, frozenset())} == {"first", "second"}


def test_a_task_is_archived_as_merged_once_its_successor_landed() -> None:
    """Its dependents outside of the epic would start without the work."""
    old = task("old", Status.SUPERSEDED, superseded_by=("new",), rescope_reason="too large")
    state = board(old, merged("new", epic="shop"), task("waiting", depends_on=("old",)))
    assert archiving.find_archivable(state, frozenset()) == ()
    assert picking.unmet_dependencies(state, state.tasks[2]) == ("old",)
    landed = state.with_task(replace(state.tasks[1], landed=TIP))
    assert {moved.id for moved in archiving.find_archivable(landed, frozenset())} == {"old", "new"}
