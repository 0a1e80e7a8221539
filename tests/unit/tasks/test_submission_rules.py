"""Work that Liza did not start: its task, its texts, its next commits, what waits for its author."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.merging.rules import merge_queue, merge_rules
from liza.model.alarm_table import AlarmKind
from liza.model.errors import Refused, UsageError
from liza.model.model import MergeInProgress, Reservation, State, Status, Submission, Task
from liza.model.transitions import Invocation, find_illegal_changes
from liza.tasks.rules import backlog, claims, picking, planning, reviews, submissions
from liza.tasks.rules.backlog import RequestContext, TaskFields
from liza.tasks.rules.picking import Evidence
from liza.tasks.rules.submissions import BranchCommit, OutsideWork, SubmissionWishes
from tests.unit.boards import BASE, HEAD, NOW, OTHER, board

S = Status
ADA = "Ada <ada@example.org>"
ME = Invocation(now=NOW, by="human:ann", commit=HEAD)
SPECS = frozenset(map(backlog.sentence_spec_path, ("fix", "top", "other")))
CONTEXT = RequestContext(Invocation(now=NOW, by="human:ann"), SPECS)
FIX = Submission(branch="fix", author=ADA)


def work(commit: str = HEAD, **fields: Any) -> OutsideWork:
    commits = (BranchCommit(commit, ADA, "Round half up", "Because of tax."),)
    return OutsideWork(
        **{"commit": commit, "base": BASE, "submission": FIX, "commits": commits, "paths": ("a.py",), **fields}
    )


def added(
    state: State, task_id: str = "fix", of: OutsideWork | None = None, wishes: SubmissionWishes | None = None
) -> State:
    source, wish = of or work(), wishes or SubmissionWishes()
    grown = backlog.add(state, (submissions.make_fields(task_id, source, wish),), CONTEXT)
    return submissions.add_submitted(grown, task_id, source, wish, ME)


def again(state: State, of: OutsideWork, **wishes: Any) -> State:
    return submissions.resubmit(state, "fix", of, SubmissionWishes(**wishes), ME)


def rejected(state: State, task_id: str = "fix") -> State:
    commit = get(state, task_id).review_commit or ""
    return reviews.reject(state, task_id, "human:ann", commit, NOW, "no test\nand more")


def approved(state: State, task_id: str = "fix") -> State:
    commit = get(state, task_id).review_commit or ""
    return reviews.approve(state, task_id, "human:ann", commit, NOW, "read")


def get(state: State, task_id: str = "fix") -> Task:
    return claims.get_task(state, task_id)


def stack() -> State:
    """A board with ``fix`` at HEAD, and ``top``, which contains it."""
    top = work(OTHER, submission=Submission(branch="top", author=ADA), contained=("fix",), base=HEAD)
    return added(added(board()), "top", top)


def test_a_submission_is_a_task_in_review_without_a_coder() -> None:
    before = board()
    state = added(before)
    task = get(state)
    assert (task.status, task.review_commit, task.base_commit) == (S.READY_FOR_REVIEW, HEAD, BASE)
    assert (task.description, task.scope) == ("Round half up\n\nBecause of tax.", "a.py")
    assert (task.assigned_to, task.worktree, task.submission) == (None, None, FIX)
    assert find_illegal_changes(before, state) == ()
    assert [event.event for event in task.history] == ["add", "submit work"]


def test_foreign_work_is_always_reviewed_by_a_person() -> None:
    foreign = work(submission=replace(FIX, is_foreign=True))
    state = added(board(), of=foreign, wishes=SubmissionWishes(review="agent"))
    assert get(state).review == "human"
    state = again(state, replace(foreign, commit=OTHER), review="agent")
    assert get(state).review == "human"


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (Submission(branch="a"), Submission(branch="a", worktree="/w"), True),
        (Submission(branch="a"), Submission(branch="b"), False),
        (Submission(request=1), Submission(request=1, author="x"), True),
        (Submission(request=1), Submission(branch="a"), False),
        (Submission(worktree="/w"), Submission(worktree="/w"), True),
        (Submission(worktree="/w"), Submission(worktree="/v"), False),
        (Submission(branch="a", worktree="/w"), Submission(worktree="/w"), False),
    ],
)
def test_the_same_branch_request_or_worktree_is_the_same_task(
    first: Submission, second: Submission, is_same: bool
) -> None:
    state = added(board(), of=work(submission=first))
    assert (submissions.find_task(state, second) is not None) is is_same


def test_the_same_commit_again_changes_nothing() -> None:
    state = added(board())
    assert again(state, work()) == state
    assert again(approved(state), work()) == approved(state)


def test_the_next_commit_ends_review_approval_and_rejection() -> None:
    state = added(board())
    reviewed, _ = reviews.claim_review(state, "fix", "code-reviewer-1", NOW, Evidence())
    for before in (state, reviewed, approved(state), rejected(state)):
        after = again(before, work(OTHER, paths=("b.py",)))
        task = get(after)
        assert (task.status, task.review_commit, task.scope) == (S.READY_FOR_REVIEW, OTHER, "b.py")
        assert (task.reviewing_by, task.approved_by, task.rejection_reason) == (None, None, None)
        assert find_illegal_changes(before, after) == ()


def test_a_returned_commit_is_refused_unless_a_person_reviews() -> None:
    state = rejected(added(board()))
    with pytest.raises(Refused, match="was sent back") as refused:
        again(state, work())
    assert refused.value.hint == "liza submit fix --review human"
    assert get(again(state, work(), review="human")).review == "human"


def test_a_red_commit_needs_another_or_a_persons_word() -> None:
    red = Invocation(now=NOW, by="you", detail="make test: exit 1 (log: .liza/logs/merge-fix.log)")
    state = merge_rules.fail_merge(approved(added(board())), "fix", red)
    with pytest.raises(
        Refused, match="a verdict of yours tests it once more: liza submit fix --review human"
    ) as refused:
        again(state, work())
    assert refused.value.hint == "less .liza/logs/merge-fix.log"


def test_one_task_is_decided_with_those_below_it() -> None:
    state = added(stack(), "other", work("3" * 40, submission=Submission(branch="other")))
    assert planning.find_others(state, "top") == {"other"}
    assert [task.id for task in planning.without_others(state, "fix").tasks] == ["fix"]
    assert planning.without_others(state, None) == state


def test_submitted_work_alone_needs_one_command() -> None:
    assert submissions.merge_command(stack()) == "liza submit fix --merge"
    back = rejected(added(board()))
    assert submissions.merge_command(back) is None
    assert [submissions.needs_crew(state) for state in (back, again(back, work(), fix="crew"))] == [False, True]


def test_the_mender_and_the_words_change_without_a_commit() -> None:
    for state in (added(board()), approved(added(board()))):
        task = get(again(state, work(), fix="crew", description="Round half up"))
        assert task.submission is not None
        assert (task.submission.fix, task.description, task.status) == ("crew", "Round half up", get(state).status)


def test_a_task_of_a_merger_or_coder_is_refused() -> None:
    state = approved(added(board()))
    merging = state.with_task(replace(get(state), merging=MergeInProgress(candidate=OTHER, expected=BASE)))
    with pytest.raises(Refused, match="being merged right now"):
        again(merging, work(OTHER))
    assert again(merging, work()) == merging
    reservation = Reservation(
        agent="coder-1", run="coder-1.1", slot="s1", host="h", boot="b", pid=1, start="1", expires=NOW
    )
    taken = rejected(added(board(), wishes=SubmissionWishes(fix="crew")))
    taken = taken.with_task(replace(get(taken), reservation=reservation))
    with pytest.raises(Refused, match="coder-1 mends fix"):
        again(taken, work(OTHER))


def test_returned_work_waits_for_its_author_or_for_the_crew() -> None:
    state = rejected(added(board()))
    task = get(state)
    assert picking.waits_for_author(task)
    assert not planning.can_continue(state, frozenset({"coder", "code-reviewer"}))
    (alarm,) = submissions.submission_alarms(state, {})
    assert (alarm.kind, alarm.next) == (AlarmKind.BACK_WITH_AUTHOR, "liza submit fix")
    assert alarm.message == "fix needs another commit (no test); it is back with Ada: branch fix"
    given = again(state, work(), fix="crew")
    assert get(given).status is S.REJECTED
    assert tuple(submissions.submission_alarms(given, {})) == ()
    assert planning.can_continue(given, frozenset({"coder"}))


def test_an_edit_of_submitted_work_names_what_its_author_can_do() -> None:
    with pytest.raises(Refused, match="another commit or --desc, or is dropped") as refusal:
        backlog.edit(added(board()), TaskFields("fix", priority=1), CONTEXT)
    assert refusal.value.hint == "liza submit fix"


def test_branches_that_moved_or_went_have_alarms() -> None:
    state = added(board())
    assert tuple(submissions.submission_alarms(state, {"fix": HEAD})) == ()
    (moved,) = submissions.submission_alarms(state, {"fix": OTHER})
    assert (moved.kind, moved.next) == (AlarmKind.BRANCH_MOVED, "liza submit fix")
    (gone,) = submissions.submission_alarms(state, {"fix": None})
    assert (gone.kind, gone.next) == (AlarmKind.BRANCH_GONE, 'liza task drop fix "…"')
    (gone,) = submissions.submission_alarms(rejected(state), {"fix": None})
    assert gone.next == f"git branch fix {HEAD[:12]}"


def test_a_mending_commit_has_one_alarm() -> None:
    (alarm,) = submissions.submission_alarms(rejected(added(board())), {"fix": OTHER})
    assert (alarm.kind, alarm.next) == (AlarmKind.BRANCH_MOVED, "liza submit fix")
    assert alarm.message.endswith("; fix came back: no test")


def test_a_stack_is_one_batch() -> None:
    state = approved(approved(stack(), "top"))
    assert [task.id for task in merge_queue.choose_batch(state, get(state), NOW)] == ["fix", "top"]
    with pytest.raises(Refused, match="top is built on fix, which is not merged"):
        merge_queue.refuse_stacked(state, get(state, "top"))
    waiting = approved(stack(), "top")
    assert merge_queue.queue_rows(waiting, NOW)[0].why == "depends on fix"


def test_a_lower_branch_that_is_submitted_later_is_a_dependency() -> None:
    top = work(OTHER, submission=Submission(branch="top", author=ADA))
    state = added(added(board(), "top", top), of=work(containing=("top",)))
    assert get(state, "top").depends_on == ("fix",)


def test_a_rewritten_branch_holds_the_upper_one() -> None:
    state = again(approved(stack(), "top"), work("e" * 40, rewritten=("top",)))
    held = get(state, "top").merge_hold or ""
    assert held.startswith("built on an earlier state of fix")
    assert f"git rebase --onto {'e' * 12} {HEAD[:12]} top && liza submit top" in held
    top = work("f" * 40, submission=Submission(branch="top", author=ADA), contained=("fix",))
    state = submissions.resubmit(state, "top", top, SubmissionWishes(), ME)
    assert get(state, "top").merge_hold is None
    # A hold of a person stays.
    state = state.with_task(replace(get(state, "top"), merge_hold="wait for me"))
    state = submissions.resubmit(state, "top", replace(top, commit="1" * 40), SubmissionWishes(), ME)
    assert get(state, "top").merge_hold == "wait for me"


def test_a_branch_that_left_its_stack_depends_on_nothing() -> None:
    alone = work("f" * 40, submission=Submission(branch="top", author=ADA))
    state = submissions.resubmit(stack(), "top", alone, SubmissionWishes(), ME)
    assert get(state, "top").depends_on == ()


def test_dropping_the_lower_branch_holds_the_upper() -> None:
    state = backlog.drop(stack(), "fix", ME, "unlink")
    assert "which was dropped" in (get(state, "top").merge_hold or "")


@pytest.mark.parametrize(
    ("body", "program"),
    [
        ("Co-Authored-By: Claude Opus 4.8 (1M context) <noreply@anthropic.com>", "claude"),
        ("Co-authored-by: aider (gpt-5) <aider@aider.chat>", "aider"),
        ("Co-authored-by: Copilot <223556219+Copilot@users.noreply.github.com>", "copilot"),
        ("text\n\nAssisted-by: Codex:gpt-5.2", "codex"),
        ("Co-Authored-By: Claude Monet <claude@example.org>", ""),
        ("Co-Authored-By: Claude Monet <1+claude@users.noreply.github.com>", ""),
        ("Co-Authored-By: Bob <bob@example.org>", ""),
    ],
)
def test_the_program_is_that_of_a_trailer(body: str, program: str) -> None:
    programs = {"aider", "claude", "codex", "copilot"}
    assert submissions.find_program((BranchCommit(HEAD, ADA, "x", body),), programs) == program


def test_texts_come_from_commits_and_files() -> None:
    many = tuple(BranchCommit(HEAD, ADA, f"Step {number}") for number in range(40))
    text = submissions.describe_commits(work(commits=many)).splitlines()
    assert (text[0], text[1], text[-1]) == ("fix: 40 commits", "- Step 0", "- and 10 more")
    trailers = "Why.\n\nCo-Authored-By: Claude <noreply@anthropic.com>\nSigned-off-by: Ada"
    one = work(commits=(BranchCommit(HEAD, ADA, "Subject", trailers),))
    assert submissions.describe_commits(one) == "Subject\n\nWhy."
    assert submissions.describe_scope([f"src/{name}/a.py" for name in "abc"]) == "src/a/a.py, src/b/a.py, src/c/a.py"
    assert submissions.describe_scope([f"src/x/y/{number}.py" for number in range(50)]) == "src/x/y/"
    assert "and 30 more places" in submissions.describe_scope([f"{number}.py" for number in range(50)])
    assert submissions.compose_spec(work(), "# Rules\nobey").count("> ") == 2


@pytest.mark.parametrize("branch", ["integration", "task/x", "epic/x", "liza/x", "refs/liza/x"])
def test_branches_of_liza_are_refused(branch: str) -> None:
    with pytest.raises(Refused):
        submissions.refuse_reserved(branch, "integration")


def test_wrong_words_of_options_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="expected author or crew"):
        submissions.check_wish("fix", "me", ("author", "crew"))
