"""Which closed tasks leave the board, and what the board keeps of them."""

from __future__ import annotations

from msgspec.structs import replace

from liza.board.rules import archiving
from liza.board.rules.archiving import ArchiveTotals
from liza.model import invariants
from liza.model.derived import sprint_metrics
from liza.model.model import Event, State, Status, Task
from liza.tasks.rules import planning
from tests.unit.boards import NOW, agents, board, later, task, with_config

S = Status


def closed(task_id: str, after: int = 0, status: Status = S.ABANDONED, **fields: object) -> Task:
    event = Event(time=later(after), event="drop", run=fields.pop("by", None))  # type: ignore[arg-type]
    return task(task_id, status, history=(event,), **fields)


def ids(tasks: tuple[Task, ...]) -> list[str]:
    return [one.id for one in tasks]


def moved(state: State, *names: str) -> State:
    tasks = [one for one in state.tasks if one.id in names]
    return archiving.move_to_archive(state, tasks, ArchiveTotals(state.archived.counts, state.archived.verdicts))


def test_the_first_closed_leave_and_the_newest_stay() -> None:
    state = board(closed("new", 50), task("open"), closed("old", 1), closed("middle", 20))
    assert ids(archiving.find_archivable(state, frozenset())) == ["old", "middle", "new"]
    assert ids(archiving.find_archivable(state, frozenset(), keep=1)) == ["old", "middle"]
    assert archiving.find_archivable(state, frozenset(), keep=9) == ()


def test_a_superseded_task_waits_for_its_last_successor() -> None:
    state = board(
        closed("a", status=S.SUPERSEDED, superseded_by=("b",)),
        closed("b", status=S.SUPERSEDED, superseded_by=("c",)),
        task("c"),
    )
    assert archiving.find_archivable(state, frozenset()) == ()
    done = state.with_task(closed("c", status=S.MERGED))
    assert ids(archiving.find_archivable(done, frozenset())) == ["a", "b", "c"]


def test_a_task_of_a_run_that_is_not_concluded_stays() -> None:
    state = board(closed("a", by="coder-1.3"), agents=agents("coder-1", runs=3))
    assert archiving.newest_runs(state) == ("coder-1.3",)
    assert archiving.find_archivable(state, frozenset({"coder-1.3"})) == ()
    assert ids(archiving.find_archivable(state, frozenset({"coder-1.2"}))) == ["a"]


def test_archiving_above_the_limit_leaves_half_of_it() -> None:
    state = with_config(board(*(closed(f"t{number}") for number in range(5)), task("open")), archive_after=4)
    assert archiving.count_to_keep(state) == 2
    assert archiving.count_to_keep(with_config(state, archive_after=5)) is None
    assert archiving.count_to_keep(with_config(state, archive_after=0)) is None


def test_the_board_keeps_only_outcomes_that_its_tasks_need() -> None:
    merged = {"merge_commit": "a", "review_commit": "b", "approved_by": "code-reviewer-1"}
    state = board(
        closed("a", status=S.SUPERSEDED, superseded_by=("b", "c"), rescope_reason="why"),
        closed("b", status=S.MERGED, **merged),
        closed("c", status=S.MERGED, **merged),
        closed("d"),
        closed("unnamed"),
        task("open", depends_on=("a", "d")),
    )
    after = moved(state, "a", "b", "c", "d", "unnamed")
    assert after.archived.outcomes == {"a": S.MERGED, "d": S.ABANDONED}
    assert after.archived.counts == {"ABANDONED": 2, "MERGED": 2, "SUPERSEDED": 1}
    assert invariants.check_board(after) == ()
    last = moved(after.with_task(replace(closed("open"), depends_on=("a", "d"))), "open")
    assert last.archived.outcomes == {}
    assert last.archived.total == 6


def test_archiving_changes_no_count_and_triggers_no_planning() -> None:
    done = (closed("a", status=S.MERGED), closed("b"))
    state = board(*done)
    after = moved(state, "a", "b")
    assert sprint_metrics(after) == sprint_metrics(state)
    assert planning.find_triggers(after) == planning.find_triggers(state)
    assert planning.is_crew_done(after, has_planner=False)


def test_a_lookup_returns_the_first_of_equal_ids_and_replacements() -> None:
    state = board(task("a", priority=1), task("a", priority=2), task("b", created=NOW))
    for _ in range(3):
        first = state.task("a")
        assert first is not None
        assert first.priority == 1
        assert state.task("none") is None
    changed = state.with_task(task("b", priority=9))
    for _ in range(3):
        second = changed.task("b")
        assert second is not None
        assert second.priority == 9
