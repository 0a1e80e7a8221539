from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.rules.history_events import HistoryEvent
from liza.rules.merging import merge_rules
from liza.rules.model import AlignmentNote, Handoff, MergeInProgress, State
from liza.rules.reports import goal_text
from liza.rules.reports.narration import find_news
from liza.rules.sessions.session_ends import SessionOutcome
from liza.rules.tasks import backlog, coding, reviews
from liza.rules.tasks.backlog import RequestContext, TaskFields
from liza.rules.transitions import Invocation
from tests.unit.boards import BASE, HEAD, NOW, OTHER, board, claimed, submitted, task, under_review

E = HistoryEvent
FULL = {"description": "d", "done_when": "w", "scope": "s", "spec_ref": "x"}


def told(before: State, after: State) -> list[tuple[str, str]]:
    return [(one.who, one.text) for one in find_news(before, after)]


def test_tasks_that_came_together_are_told_together_with_what_they_need() -> None:
    wanted = [
        TaskFields("a", **FULL),
        TaskFields("b", **FULL, depends_on=("a",)),
        TaskFields("c", **{**FULL, "spec_ref": "y"}),
    ]
    wanted.append(TaskFields("d", **FULL, draft=True))
    after = backlog.add(board(), wanted, RequestContext(Invocation(now=NOW, by="planner-1"), frozenset({"x"})))
    assert told(board(), after) == [
        ("planner-1", "4 tasks: a, b (needs a), c (draft: spec y is not committed on integration), d (draft)")
    ]


def test_a_claim_a_submission_a_verdict_and_a_merge_are_told_by_whom_they_were_done() -> None:
    start = board(task())
    state, _, review = under_review(start)
    assert [who for who, _ in told(start, state)] == ["coder-1", "coder-1", "code-reviewer-1"]
    rejected = reviews.reject(state, "task-1", review, HEAD, NOW, "rounding\nis untested")
    assert told(state, rejected) == [("code-reviewer-1", "task-1 rejected: rounding is untested (liza diff task-1)")]
    approved = reviews.approve(state, "task-1", review, HEAD, NOW, "ran it")
    begun = merge_rules.begin_merge(approved, "task-1", MergeInProgress(candidate=OTHER, expected=BASE))
    done = merge_rules.record_merge(begun, "task-1", Invocation(now=NOW, by="coder-2", commit=OTHER), tested=True)
    assert told(approved, done) == [("coder-2", "task-1 merged as dddddddddd, its tests pass")]


def test_a_question_comes_with_the_command_that_answers_it() -> None:
    state, run = claimed(board(task()))
    blocked = coding.block(state, "task-1", run, "unclear", ("Which address?",), NOW)
    ((who, text),) = told(state, blocked)
    assert who == "coder-1"
    assert 'It asks: "Which address?" Answer: liza answer task-1 "…"' in text


def test_nothing_is_told_twice_and_nothing_of_a_heartbeat() -> None:
    state, _ = submitted(board(task()))
    assert told(state, state) == []
    assert told(state, state.with_task(replace(state.tasks[0], lease_expires=NOW))) == []


def test_a_planners_decision_and_the_end_of_the_goal_are_told() -> None:
    note = AlignmentNote(timestamp=NOW, event="planner-1.3", summary="enough")
    before = board()
    after = replace(before, goal=replace(before.goal, status="COMPLETED", alignment_history=(note,)))
    assert told(before, after) == [
        ("planner-1", "decided: enough"),
        ("planner-1", "the goal is COMPLETED: liza land --merge brings it into your branch"),
    ]


def test_an_edit_of_the_goal_is_told_as_a_persons_and_ends_no_goal() -> None:
    before = board()
    edited = goal_text.note_edit(
        before.goal, replace(before.goal, description="more", spec_ref="b.md"), "human:ann.lee", NOW
    )
    decided = AlignmentNote(timestamp=NOW, event="planner-1.3", summary="enough")
    assert told(before, replace(before, goal=edited)) == [
        ("human:ann.lee", "edited the goal: the document is b.md; the goal is: more")
    ]
    notes = (decided, *edited.alignment_history)
    done = replace(edited, status="COMPLETED", alignment_history=notes)
    assert told(replace(before, goal=replace(edited, alignment_history=notes)), replace(before, goal=done)) == [
        ("planner-1", "the goal is COMPLETED: liza land --merge brings it into your branch")
    ]


@pytest.mark.parametrize("verb", sorted(set(HistoryEvent) - {E.ADD, E.EDIT, E.READY, E.MERGING, E.RESTORE}))
def test_every_event_that_a_person_should_hear_of_has_its_sentence(verb: HistoryEvent) -> None:
    from liza.rules.transitions import add_event

    before = board(task())
    said = Invocation(now=NOW, by="coder-1", run="coder-1.1", commit=HEAD, detail="why")
    after = before.with_task(add_event(before.tasks[0], verb, said))
    assert len(told(before, after)) == 1


def test_the_end_of_a_session_that_handed_over_is_no_news() -> None:
    state, run = claimed(board(task()))
    note = Handoff(agent="coder-1", summary="half", next_action="the rest")
    handed = coding.handoff(state, "task-1", run, note, NOW)
    ended = coding.record_session_end(
        handed, "task-1", run, outcome=SessionOutcome.FINISHED, detail="bye", moved=True, now=NOW
    )
    assert told(handed, ended) == []
    silent = coding.record_session_end(
        state, "task-1", run, outcome=SessionOutcome.FINISHED, detail="bye", moved=True, now=NOW
    )
    assert told(state, silent) == [("coder-1", "task-1 session ended without a closing command: bye")]


def test_a_session_that_was_held_up_and_a_draft_that_stays_one_are_told_with_what_was_in_the_way() -> None:
    state, run = claimed(board(task()))
    held = coding.record_session_end(
        state, "task-1", run, outcome=SessionOutcome.HELD_UP, detail="liza submit: x", moved=False, now=NOW
    )
    assert told(state, held) == [("coder-1", "task-1 held up, and tried again later: liza submit: x")]
    asked = RequestContext(Invocation(now=NOW, by="ann"), frozenset({"x"}))
    draft = backlog.add(board(), [TaskFields("a")], asked)
    edited = backlog.edit(draft, TaskFields("a", **{**FULL, "scope": None}), asked)
    assert told(draft, edited) == [("ann", "a stays a draft: scope is missing (--scope)")]
    ready = backlog.edit(edited, TaskFields("a", scope="s"), asked)
    assert told(edited, ready) == []
