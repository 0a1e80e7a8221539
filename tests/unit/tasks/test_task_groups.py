"""The tasks that an agent holds, the next merge, and what changed, on boards of any tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from liza.merging.rules import merge_rules
from liza.model.derived import changed_tasks, find_current_work
from liza.model.model import Event, Reservation, Status, Task
from liza.tasks.rules import picking
from liza.text.redaction import redact_changes
from tests.unit.boards import BASE, HEAD, NOW, board, later, task

AGENTS = ("coder-1", "coder-2", "code-reviewer-1")
HELD = Reservation(
    agent="coder-2", run="coder-2.1", slot="s1", host="box", boot="boot", pid=1, start="1", expires=later(300)
)
EVENTS = st.lists(
    st.builds(
        Event,
        time=st.just(NOW),
        event=st.sampled_from(["claim", "submit", "approve", "x"]),
        run=st.sampled_from(["coder-1.1", "coder-2.1", None]),
        agent=st.sampled_from([*AGENTS, None]),
        commit=st.sampled_from([HEAD, None]),
    ),
    max_size=3,
).map(tuple)
TASKS = st.lists(
    st.builds(
        task,
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from(Status),
        assigned_to=st.sampled_from([*AGENTS, None]),
        run=st.sampled_from(["coder-1.1", None]),
        reviewing_by=st.sampled_from(["code-reviewer-1", "coder-1", None, None]),
        review_run=st.sampled_from(["code-reviewer-1.1", None]),
        reservation=st.sampled_from([HELD, None, None]),
        priority=st.integers(1, 3),
        review_commit=st.sampled_from([HEAD, None]),
        approved_by=st.sampled_from(["code-reviewer-1", None]),
        history=EVENTS,
    ),
    max_size=6,
)


def holder_of(one: Task) -> set[str | None]:
    """Agents that hold the task in some way."""
    claimer = one.assigned_to if one.status is Status.CLAIMED else None
    return {claimer, one.reviewing_by, one.reservation.agent if one.reservation else None}


@given(TASKS)
def test_an_agent_that_holds_a_task_is_busy_with_it(tasks: list[Task]) -> None:
    state = board(*tasks)
    for agent in AGENTS:
        is_busy = any(agent in holder_of(one) for one in tasks)
        assert (picking.occupation(state, agent) is not None) is is_busy
        work = find_current_work(state, agent)
        assert work is None or any(work.task == one.id and agent in holder_of(one) for one in tasks)


def approved(name: str, minutes: float, **fields: object) -> Task:
    verdict = Event(time=later(60 * minutes), event="approve", agent="code-reviewer-1", commit=HEAD)
    usual = {"assigned_to": "coder-1", "base_commit": BASE, "review_commit": HEAD, "approved_by": "code-reviewer-1"}
    return task(name, Status.APPROVED, history=(verdict,), **{**usual, **fields})


def test_merges_follow_priority_and_age() -> None:
    tasks = [
        approved("forged", 0, priority=1, approved_by="code-reviewer-2"),
        task("bare", Status.APPROVED, priority=1),
        approved("waits", 1, priority=1, depends_on=("late",)),
        approved("late", 3),
        approved("early", 2),
        approved("low", 0, priority=4),
    ]
    state, order = board(*tasks), []
    while (chosen := merge_rules.next_to_merge(state, NOW)) is not None:
        order.append(chosen.id)
        state = state.with_task(replace(chosen, status=Status.MERGED))
    assert order == ["early", "late", "waits", "low"]


@given(TASKS, TASKS)
def test_news_and_secrets_are_searched_in_what_changed(before: list[Task], added: list[Task]) -> None:
    secret = "key AKIAABCDEFGHIJKLMNOP"
    kept = [replace(one, description=secret) for one in before]
    was, now = board(*kept), board(*added, *kept, task("new", description=secret))
    assert [one.id for one in changed_tasks(was, now)] == [*(one.id for one in added), "new"]
    redacted = redact_changes(was, now).tasks
    assert redacted[len(added) : -1] == tuple(kept)
    assert secret not in redacted[-1].description
    assert redact_changes(was, board(*kept)).tasks == tuple(kept)
