from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.merging.rules import merge_rules
from liza.model.history_events import HistoryEvent
from liza.model.model import AlignmentNote, Event, Handoff, MergeInProgress, State, Status, Task
from liza.model.narration import find_news
from liza.model.session_ends import SessionOutcome
from liza.model.transitions import Invocation
from liza.tasks.rules import backlog, coding, edits, reviews
from liza.tasks.rules.backlog import RequestContext, TaskFields
from tests.unit.boards import BASE, HEAD, NOW, OTHER, board, claimed, later, submitted, task, under_review

E = HistoryEvent
FULL = {"description": "d", "done_when": "w", "scope": "s", "spec_ref": "x"}


def told(before: State, after: State) -> list[tuple[str, str]]:
    return [(one.who, one.text) for one in find_news(before, after)]


def details(before: State, after: State) -> list[bool]:
    return [item.is_detail for item in find_news(before, after)]


def test_tasks_added_together_are_one_line_with_their_needs() -> None:
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


def test_claims_submissions_verdicts_and_merges_name_their_actor() -> None:
    start = board(task())
    state, _, review = under_review(start)
    assert [who for who, _ in told(start, state)] == ["coder-1", "coder-1", "code-reviewer-1"]
    rejected = reviews.reject(state, "task-1", review, HEAD, NOW, "rounding\nis untested")
    assert told(state, rejected) == [("code-reviewer-1", "task-1 to fix: rounding is untested (liza diff task-1)")]
    approved = reviews.approve(state, "task-1", review, HEAD, NOW, "ran it")
    begun = merge_rules.begin_merge(approved, "task-1", MergeInProgress(candidate=OTHER, expected=BASE))
    done = merge_rules.record_merge(
        begun,
        "task-1",
        Invocation(now=NOW, by="coder-2", commit=OTHER),
        MergeInProgress(candidate=OTHER, expected=BASE, tested=True),
    )
    assert told(approved, done) == [("coder-2", "task-1 merged as dddddddddd, tested")]


def test_a_question_comes_with_the_command_that_answers_it() -> None:
    state, run = claimed(board(task()))
    blocked = coding.block(state, "task-1", run, "unclear", ("Which address?",), NOW)
    ((who, text),) = told(state, blocked)
    assert who == "coder-1"
    assert 'asks: unclear. "Which address?" Answer: liza answer task-1 "…"' in text


def test_nothing_is_printed_twice_and_no_heartbeat() -> None:
    state, _ = submitted(board(task()))
    assert told(state, state) == []
    assert told(state, state.with_task(replace(state.tasks[0], lease_expires=NOW))) == []


def test_planners_decision_and_the_end_of_the_goal_are_news() -> None:
    note = AlignmentNote(timestamp=NOW, event="planner-1.3", summary="enough")
    before = board()
    after = replace(before, goal=replace(before.goal, status="COMPLETED", alignment_history=(note,)))
    assert told(before, after) == [
        ("planner-1", "decided: enough"),
        ("planner-1", "the goal is completed: liza land --merge brings it into your branch"),
    ]


def test_what_moves_nothing_is_printed_only_with_details() -> None:
    note = AlignmentNote(timestamp=later(60), event="planner-1.2", summary="a person has to answer")
    state, _, _ = under_review(board(task()))
    decided = replace(state, goal=replace(state.goal, alignment_history=(note,)))
    assert details(board(task()), decided) == [False, False, True, True]
    added = backlog.add(
        board(), [TaskFields("a", **FULL)], RequestContext(Invocation(now=NOW, by="planner-1"), frozenset({"x"}))
    )
    planned = replace(added, goal=replace(added.goal, alignment_history=(note,)))
    assert details(board(), planned) == [False, False]
    again = replace(note, timestamp=later(90))
    nothing_new = replace(planned, goal=replace(planned.goal, alignment_history=(note, again)))
    assert details(planned, nothing_new) == [True]
    reached = replace(nothing_new, goal=replace(nothing_new.goal, status="COMPLETED"))
    assert details(planned, reached) == [False, True]


def test_edit_of_goal_is_a_persons_and_ends_no_goal() -> None:
    before = board()
    edited = edits.note_edit(
        before.goal, replace(before.goal, description="more", spec_ref="b.md"), "human:ann.lee", NOW
    )
    decided = AlignmentNote(timestamp=NOW, event="planner-1.3", summary="enough")
    assert told(before, replace(before, goal=edited)) == [
        ("human:ann.lee", "edited the goal: the document is b.md; the goal is: more")
    ]
    notes = (decided, *edited.alignment_history)
    done = replace(edited, status="COMPLETED", alignment_history=notes)
    assert told(replace(before, goal=replace(edited, alignment_history=notes)), replace(before, goal=done)) == [
        ("planner-1", "the goal is completed: liza land --merge brings it into your branch")
    ]


@pytest.mark.parametrize("verb", sorted(set(HistoryEvent) - {E.ADD, E.EDIT, E.READY, E.MERGING, E.RESTORE}))
def test_every_event_of_interest_to_a_person_has_a_sentence(verb: HistoryEvent) -> None:
    from liza.model.transitions import add_event

    before = board(task())
    said = Invocation(now=NOW, by="coder-1", run="coder-1.1", commit=HEAD, detail="why")
    after = before.with_task(add_event(before.tasks[0], verb, said))
    assert len(told(before, after)) == 1


def test_the_end_of_a_session_after_handing_over_is_silent() -> None:
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


def test_held_up_sessions_and_drafts_name_their_obstacle() -> None:
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


def news_of(task_before: Task, *events: Event, **fields: object) -> list[tuple[str, str, bool, str | None]]:
    before = board(task_before)
    after = before.with_task(replace(task_before, history=(*task_before.history, *events), **fields))
    return [(item.who, item.text, item.liza, item.merged) for item in find_news(before, after)]


def happened(event: HistoryEvent, detail: str | None = "two\nlines", agent: str | None = "coder-1") -> Event:
    return Event(time=NOW, event=event, agent=agent, run="coder-1.2", commit=HEAD, detail=detail)


SHOWN = HEAD[:10]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (E.CLAIM, "working as coder-1.2, try 3"),
        (E.RESUME, "working again as coder-1.2, try 3"),
        (E.EXTEND, "keeps its lease two lines"),
        (E.SUBMIT, f"in review at {SHOWN}"),
        (E.SUBMIT_AGAIN, f"in review again at {SHOWN}"),
        (E.CRASH, "crashed: two lines"),
        (E.QUOTA, "waits, and stays claimed: two lines"),
        (E.UNANSWERED, "got no answer, and is tried again: two lines"),
        (E.CONTEXT_FULL, "goes on in a fresh session: two lines"),
        (E.TOO_OLD, "goes on in a fresh session: two lines"),
        (E.UNUSABLE, "cannot go on until a person acts: two lines"),
        (E.RELEASE_REVIEW, "review given back: two lines"),
        (E.APPROVE, "approved: two lines"),
        (E.MERGE_FAILED, "to fix after a failed merge: two"),
        (E.MERGE_CLEARED, "is not to blame for its failed merge: two"),
        (E.LAND, f"landed with its epic invoices as {SHOWN}"),
        (E.SAVED, "has work of coder-1.2, which was replaced, at two lines"),
        (E.TESTS_MOVED_REFS, "refs moved while its tests ran: two lines"),
        (E.SUPERSEDE, "given up for x, y"),
        (E.DROP, "given up: two lines"),
    ],
)
def test_a_sentence_has_the_run_the_commit_and_the_reason(event: HistoryEvent, text: str) -> None:
    before = task("t", iteration=3, epic="invoices", superseded_by=("x", "y"))
    ((_, told_text, _, _),) = news_of(before, happened(event))
    assert told_text == f"t {text}"


def test_a_drop_without_reason_and_an_untested_merge_add_nothing() -> None:
    assert news_of(task("t"), happened(E.DROP, None))[0][1] == "t given up"
    assert news_of(task("t"), happened(E.MERGE, None))[0][1] == f"t merged as {SHOWN}, untested"
    made = news_of(task("t"), happened(E.MERGE, "re-made: uv.lock by uv lock"))[0][1]
    assert made == f"t merged as {SHOWN}, untested; re-made: uv.lock by uv lock"


def test_news_distinguish_merges_by_supervisors_and_by_persons() -> None:
    assert news_of(task("t"), happened(E.MERGE, None), tested=True) == [
        ("coder-1", f"t merged as {SHOWN}, tested", True, "t")
    ]
    assert news_of(task("t"), happened(E.MERGE, agent="human:ann"))[0][2:] == (False, "t")
    assert news_of(task("t"), happened(E.CLAIM))[0][2:] == (False, None)
    assert news_of(task("t"), happened(E.CLAIM, agent=None))[0][0] == ""


@pytest.mark.parametrize("event", [E.SUBMIT, E.SUBMIT_AGAIN])
def test_a_submission_for_a_person_has_the_command_for_verdicts(event: HistoryEvent) -> None:
    ((_, text, _, _),) = news_of(task("t", review="human"), happened(event))
    assert text.endswith(f'at {SHOWN}. It waits for your verdict: liza verdict approve --task t "…"')


def test_a_question_that_was_answered_since_has_no_command() -> None:
    asked = {"blocked_questions": ("Which\none?", "When?")}
    ((_, text, _, _),) = news_of(task("t"), happened(E.BLOCK, "no spec."), **asked)
    assert text == 't asks: no spec. "Which one?" "When?"'


def test_a_long_reason_is_cut_to_one_line() -> None:
    assert news_of(task("t"), happened(E.CRASH, "x" * 160))[0][1] == f"t crashed: {'x' * 160}"
    assert news_of(task("t"), happened(E.CRASH, "x" * 161))[0][1] == f"t crashed: {'x' * 159}…"


def test_news_are_sorted_by_time_and_then_by_task() -> None:
    before = board(task("b", history=(happened(E.ADD),)), task("a"))
    late, early = replace(happened(E.STOP), time=later(2)), replace(happened(E.UNBLOCK), time=later(1))
    after = before.with_task(replace(before.tasks[0], history=(happened(E.ADD), early, late)))
    after = after.with_task(replace(after.tasks[1], history=(early,)))
    assert [text for _, text in told(before, after)] == [
        "a answered",
        "b answered",
        "b stopped; its work is kept",
    ]


def test_new_tasks_are_grouped_by_author() -> None:
    mine, other = happened(E.ADD, None), happened(E.ADD, None, agent=None)
    after = board(
        task("a", history=(mine,)),
        task("b", history=(other,)),
        task("c", Status.DRAFT, history=(replace(mine, detail="no spec"),), depends_on=("a", "b")),
        task("odd"),
    )
    assert told(board(), after) == [
        ("coder-1", "2 tasks: a, c (needs a, b) (draft: no spec)"),
        ("", "1 task: b"),
    ]


def test_an_ended_session_is_news_unless_its_run_handed_over() -> None:
    handed = replace(happened(E.HANDOFF), run="coder-1.1")
    before = task("t", history=(handed,))
    assert [text for _, text, _, _ in news_of(before, happened(E.ENDED))] == [
        "t session ended without a closing command: two lines"
    ]
    assert news_of(before, replace(happened(E.ENDED), run="coder-1.1")) == []


def test_a_goal_that_is_open_again_names_no_command() -> None:
    before = board()
    done = replace(before, goal=replace(before.goal, status="COMPLETED"))
    assert told(done, before) == [("", "the goal is in progress")]
