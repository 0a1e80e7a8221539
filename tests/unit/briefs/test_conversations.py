"""Which conversation the next session of a task continues, and why it begins a new one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.model.model import Event, Task
from liza.tasks.rules.conversations import (
    ContinueConversation,
    EarlierSession,
    NewConversation,
    choose_conversation,
    earlier_runs,
)
from tests.unit.boards import NOW, task

CONTINUED = ("submit", "crash", "unanswered", "stop", "quota", "held up", "unusable")
NEW = {
    "handoff": "coder-1.1: it handed off",
    "context full": "coder-1.1: its context window was full",
    "too old": "coder-1.1: it was older than config.session_max",
    "ended": "coder-1.1: it ended without a closing command",
    "block": "coder-1.1: it blocked the task",
}


def history(*events: tuple[str, str]) -> Task:
    """A task with events, each with its run."""
    rows = (Event(time=NOW, event=event, agent=run.partition(".")[0], run=run) for event, run in events)
    return replace(task(), history=tuple(rows))


def session(run: str, **facts: object) -> EarlierSession:
    return EarlierSession(**{"run": run, "program": "claude", "worktree": "/w/s1", **facts})  # type: ignore[arg-type]


def choose(task: Task, run: str, *earlier: EarlierSession) -> ContinueConversation | NewConversation:
    return choose_conversation(task, session(run), earlier)


@pytest.mark.parametrize("end", CONTINUED)
def test_a_session_ended_from_outside_or_submitted_is_continued(end: str) -> None:
    after = history(("claim", "coder-1.1"), (end, "coder-1.1"), ("resume", "coder-1.2"))
    assert choose(after, "coder-1.2", session("coder-1.1")) == ContinueConversation("coder-1.1")


@pytest.mark.parametrize(("end", "reason"), NEW.items())
def test_a_session_that_wanted_a_fresh_context_is_not_continued(end: str, reason: str) -> None:
    after = history(("claim", "coder-1.1"), (end, "coder-1.1"), ("stop", "coder-1.1"), ("resume", "coder-1.2"))
    assert choose(after, "coder-1.2", session("coder-1.1")) == NewConversation(reason)


def test_after_a_rejection_the_coder_continues_its_own_conversation() -> None:
    after = history(
        ("claim", "coder-1.1"),
        ("submit", "coder-1.1"),
        ("claim review", "code-reviewer-1.1"),
        ("reject", "code-reviewer-1.1"),
        ("claim", "coder-1.4"),
    )
    assert earlier_runs(after, "coder-1.4") == ("coder-1.1",)
    assert choose(after, "coder-1.4", session("coder-1.1")) == ContinueConversation("coder-1.1")


def test_a_session_of_another_agent_or_program_is_not_continued() -> None:
    after = history(("claim", "coder-1.1"), ("submit", "coder-1.1"), ("claim", "coder-1.2"))
    first = session("coder-1.1")
    assert choose(after, "coder-1.2") == NewConversation("there is no record of coder-1.1")
    assert choose(after, "coder-1.2", session("coder-1.1", program="codex")) == NewConversation(
        "coder-1.1 ran with codex"
    )
    moved = choose(after, "coder-1.2", session("coder-1.1", worktree="/w/s2"))
    assert moved == NewConversation("coder-1.1 worked in another directory")
    between = history(
        ("claim", "coder-1.1"),
        ("crash", "coder-1.1"),
        ("claim", "coder-2.1"),
        ("crash", "coder-2.1"),
        ("claim", "coder-1.2"),
    )
    other = choose(between, "coder-1.2", session("coder-2.1"), first)
    assert other == NewConversation("the last session was coder-2.1")
    assert choose(history(("claim", "coder-1.1")), "coder-1.1") == NewConversation()
    unknown = history(("claim", "coder-1.1"), ("claim", "coder-1.2"))
    assert choose(unknown, "coder-1.2", first) == NewConversation("the end of coder-1.1 is not on record")


def test_after_two_resumed_failures_a_new_conversation_begins() -> None:
    crashes = [(event, f"coder-1.{number}") for number in range(1, 6) for event in ("resume", "crash")]

    def after(count: int) -> Task:
        return history(*crashes[: 2 * count])

    first, second, third = (
        session("coder-1.1"),
        session("coder-1.2", is_resumed=True),
        session("coder-1.3", is_resumed=True),
    )
    assert choose(after(1), "coder-1.2", first) == ContinueConversation("coder-1.1")
    assert choose(after(2), "coder-1.3", second, first) == ContinueConversation("coder-1.2")
    new = choose(after(3), "coder-1.4", third, second)
    assert new == NewConversation("2 sessions in a row resumed it and failed")
    assert choose(after(4), "coder-1.5", session("coder-1.4"), third) == ContinueConversation("coder-1.4")


def test_after_two_unanswered_sessions_each_one_begins_a_new_conversation() -> None:
    ends = [(event, f"coder-1.{number}") for number in (1, 2) for event in ("claim", "unanswered")]
    resumed = session("coder-1.2", is_resumed=True)
    new = choose(history(*ends), "coder-1.3", resumed, session("coder-1.1"))
    assert new == NewConversation("the model did not answer two sessions in a row")


@pytest.mark.parametrize("end", ["crash", "held up"])
def test_a_conversation_that_the_program_refused_is_not_tried_again(end: str) -> None:
    after = history(("claim", "coder-1.1"), ("stop", "coder-1.1"), ("resume", "coder-1.2"), (end, "coder-1.2"))
    refused = session("coder-1.2", is_resumed=True, has_worked=False)
    new = choose(after, "coder-1.3", refused, session("coder-1.1"))
    assert new == NewConversation("coder-1.2 could not resume its conversation")
    worked = session("coder-1.2", is_resumed=True)
    assert choose(after, "coder-1.3", worked, session("coder-1.1")) == ContinueConversation("coder-1.2")
