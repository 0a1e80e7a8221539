"""Work of strangers: what a person permits, what a program may write about it, and what its author is told."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.merging.rules import merge_queue, merge_rules
from liza.model.errors import Refused, UsageError
from liza.model.model import MergeInProgress, State, Status, Submission, Task
from liza.model.transitions import Invocation
from liza.tasks.rules import claims, picking, planning, reviews, strangers, submissions
from liza.tasks.rules.picking import Evidence
from liza.tasks.rules.submissions import SubmissionWishes
from tests.unit.boards import BASE, HEAD, NOW, OTHER, board
from tests.unit.tasks.test_submission_rules import FIX, added, again, approved, get, rejected, work

FOREIGN = work(submission=replace(FIX, is_foreign=True))
REVIEWER = "code-reviewer-1"
ONLINE = Evidence(online=frozenset({REVIEWER}))


def foreign() -> State:
    return added(board(), of=FOREIGN)


def permitted(state: State) -> State:
    task = get(state)
    return state.with_task(strangers.permit(task, task.review_commit or ""))


def test_an_approved_commit_waits_for_its_permission() -> None:
    state = approved(foreign())
    (entry,) = merge_queue.ordered_queue(state, NOW)
    assert entry.obstacle is not None
    assert entry.obstacle[1] == f"liza task permit fix {HEAD}"
    assert merge_rules.next_to_merge(state, NOW) is None
    with pytest.raises(Refused, match="no person permitted"):
        merge_rules.begin_merge(state, "fix", MergeInProgress(candidate=OTHER, expected=BASE))
    state = permitted(state)
    assert merge_queue.ordered_queue(state, NOW)[0].obstacle is None
    assert merge_rules.next_to_merge(state, NOW) == get(state)
    assert merge_queue.is_alone(get(state))


@pytest.mark.parametrize(
    ("commit", "error"), [(HEAD[:12], UsageError), (HEAD.upper() + "G", UsageError), (OTHER, Refused), ("", UsageError)]
)
def test_only_the_whole_submitted_commit_is_permitted(commit: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        strangers.permit(get(foreign()), commit)


@pytest.mark.parametrize(("base", "request_of_a_fork"), [(OTHER, 0), (HEAD, 7)])
def test_work_on_other_commits_of_a_stranger_stays_foreign(base: str, request_of_a_fork: int) -> None:
    own = Submission(branch="mine", is_foreign=True, request=request_of_a_fork)
    upper = Task(id="mine", status=Status.READY_FOR_REVIEW, submission=own, depends_on=("fix",), base_commit=base)
    state = replace(foreign(), tasks=(*foreign().tasks, upper))
    landed = replace(get(state), status=Status.MERGED)
    assert strangers.is_foreign(claims.get_task(strangers.clear_foreign(state.with_task(landed), landed), "mine"))


def test_work_of_the_team_needs_no_permission() -> None:
    task = get(added(board()))
    assert not strangers.lacks_permission(task)
    with pytest.raises(Refused, match="needs no permission"):
        strangers.permit(task, HEAD)


def test_the_next_commit_needs_another_permission() -> None:
    state = again(permitted(foreign()), replace(FOREIGN, commit=OTHER))
    assert strangers.lacks_permission(get(state))
    assert strangers.lacks_permission(get(again(state, FOREIGN)))


def test_no_coder_of_the_crew_mends_a_strangers_work() -> None:
    with pytest.raises(Refused, match="no coder of the crew runs it") as new:
        added(board(), of=FOREIGN, wishes=SubmissionWishes(fix="crew"))
    assert "drop" not in str(new.value.hint), "there is no task yet"
    with pytest.raises(Refused, match="no coder of the crew runs it") as open_task:
        again(rejected(foreign()), FOREIGN, fix="crew")
    assert "liza task drop fix" in str(open_task.value.hint)


def reviewed(state: State) -> tuple[State, str]:
    return reviews.claim_review(claims.ensure_agent(state, REVIEWER), "fix", REVIEWER, NOW, ONLINE)


def test_a_program_writes_one_opinion_and_gives_no_verdict() -> None:
    assert planning.can_continue(foreign(), frozenset({reviews.REVIEWER}))
    state, run = reviewed(foreign())
    with pytest.raises(Refused, match="a person reviews fix"):
        reviews.approve(state, "fix", run, HEAD, NOW)
    state = strangers.record_opinion(state, "fix", run, "x" * 5000, NOW)
    task = get(state)
    assert task.submission is not None
    assert len(task.submission.opinion) == strangers.MAX_OPINION + 2
    assert (task.status, task.reviewing_by) == (Status.READY_FOR_REVIEW, None)
    assert picking.review_obstacle(task, REVIEWER, ONLINE) == "a person reviews it"
    assert not planning.can_continue(state, frozenset({reviews.REVIEWER}))
    assert get(again(state, replace(FOREIGN, commit=OTHER))).submission == replace(FOREIGN.submission, fix="author")


def test_a_session_without_an_opinion_is_not_repeated() -> None:
    state, run = reviewed(foreign())
    state = strangers.end_without_opinion(state, "fix", run, "it crashed\nwith a long text", NOW)
    assert "no program reviewed it: it crashed" in strangers.describe_review(get(state))
    assert picking.review_obstacle(get(state), REVIEWER, ONLINE) == "a person reviews it"
    assert get(state).reviews_without_verdict == 0


def test_only_a_supervised_reviewer_claims_a_strangers_work() -> None:
    assert picking.review_obstacle(get(foreign()), REVIEWER, Evidence()) == "a person reviews it"


def failed(state: State, detail: str) -> Task:
    invocation = Invocation(now=NOW, by="human:ann", detail=detail)
    return get(merge_rules.fail_merge(approved(state), "fix", invocation))


def test_a_comment_has_nothing_that_the_tests_returned() -> None:
    detail = "sh test.sh: exit 77 on the merge with integration; it changed secret.txt"
    assert "exit 77" in submissions.compose_comment(failed(added(board()), detail))
    said = submissions.compose_comment(failed(foreign(), detail))
    assert said == f"Liza did not merge {HEAD[:12]}: its tests did not pass here"
    assert "no test" in submissions.compose_comment(get(rejected(foreign())))


@pytest.mark.parametrize(
    ("path", "is_instructing"),
    [
        ("AGENTS.md", True),
        ("docs/agents.md", True),
        ("src/.claude/settings.json", True),
        (".mcp.json", True),
        ("vendor/.gitattributes", True),
        (".gitmodules", True),
        (".githooks/pre-commit", True),
        (".husky/pre-push", True),
        ("src/agents.py", False),
        ("docs/hooks.md", False),
        ("mcp.json.txt", False),
    ],
)
def test_files_that_agents_obey_are_named(path: str, *, is_instructing: bool) -> None:
    assert strangers.select_instructing((path,), ("AGENTS.md", "CLAUDE.md")) == ((path,) if is_instructing else ())
