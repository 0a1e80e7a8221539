"""merge: bring an approved and tested commit into integration. Only supervisors and people say this."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from liza.crew.caller import human_or
from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.crew.merging import candidate, merge_marks
from liza.crew.merging.dead_mergers import settle_dead_merger
from liza.crew.project import proof_again
from liza.crew.result import Result, answer
from liza.repo.merge import merge_refs, merges
from liza.rules.errors import LizaError, MergeConflict, Refused
from liza.rules.merging import merge_failures, merge_rules
from liza.rules.merging.merge_rules import MergeFailure, MergeFailureKind
from liza.rules.model import Merging, State, Status, Task
from liza.rules.paths import agent_id
from liza.rules.project import test_proof
from liza.rules.tasks import claims
from liza.system import crash_points
from liza.system.file_lock import Lock


def merge(crew: Crew, task_id: str | None = None, supervisor: str | None = None) -> Result:
    """Merge the named, or the best, APPROVED task, for a person or for the supervisor of that agent.

    A failure leaves a mark on its task, which then goes back to its coder or is tried again later; others are merged
    meanwhile. Raises Refused, GitFailed, OSError.
    """
    person = human_or(crew, planner=False)
    by = agent_id(supervisor) if supervisor else person
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        raise Refused("another merge is under way", "liza status")
    try:
        done = _merge(crew.holding(lock), by, task_id)
    finally:
        lock.release()
    # What is merged stays merged, whatever fails now.
    _, failed = merge_marks.reconsidered(crew, "the merge")
    return replace(done, told="\n".join(filter(None, (done.told, *failed))))


def _merge(crew: Crew, by: str, task_id: str | None) -> Result:
    try:
        settle_dead_merger(crew, by)
    except merge_marks.FAILURES as error:
        if _mark_next(crew, by, task_id, error):
            raise _named(error) from error
        raise
    start = crew.board.read()
    offer_again(crew, by, task_id)
    before = crew.board.read()
    if task_id is not None and claims.find(before, task_id).status is Status.MERGED:
        return _told(start, before, task_id)
    task = merge_rules.approved(before, task_id) if task_id else merge_rules.next_to_merge(before, crew.clock.now())
    if task is None:
        raise Refused(*_nothing(before))
    if task.merging is not None:
        # It was offered just now, and waits for files of a person.
        return _told(start, before, task.id)
    try:
        proof_again.need(crew, by)
    except merge_marks.FAILURES as error:
        # Tests that are known to test another checkout stop every merge, and are told of by themselves.
        if test_proof.elsewhere(crew.board.read().config) is None and _mark_next(crew, by, task.id, error):
            raise _named(error) from error
        raise
    _attempt(crew, by, task)
    return _told(before, crew.board.read(), task.id)


def _nothing(state: State) -> tuple[str, str]:
    """Why nothing is merged now, and one command."""
    aside = [task.id for task in state.tasks if task.status is Status.APPROVED and task.set_aside is not None]
    if not aside:
        return "no task is approved and waits to be merged", "liza task list"
    return f"no task is approved and waits to be merged; set aside: {', '.join(aside)}", f"liza merge {aside[0]}"


def _told(before: State, after: State, task_id: str) -> Result:
    task = claims.find(after, task_id)
    if task.merging and task.merging.waiting:
        step = f"commit or put away {task.merging.waiting} in your checkout; it is then merged by itself"
    elif task.merge_commit:
        step = f"git log --first-parent {after.config.integration_branch}"
    elif task.status is Status.INTEGRATION_FAILED:
        step = merge_failures.look_at(task)
    else:
        step = f"liza task show {task_id}"
    return answer(before, after, task_id, step, merge_commit=task.merge_commit, tested=task.tested)


def _mark_next(crew: Crew, by: str, task_id: str | None, error: LizaError | OSError) -> bool:
    """No merge could even begin: mark that on the task that would have been merged; whether it was done."""
    state = crew.board.read()
    task = state.task(task_id) if task_id else merge_rules.next_to_merge(state, crew.clock.now())
    if task is not None and merge_marks.is_of_a_task(crew, error):
        with suppress(Refused):
            merge_marks.troubled(crew, by, task, merge_marks.trouble_of(crew, task, error))
            return True
    return False


def _named(error: LizaError | OSError) -> LizaError:
    return merge_marks.named(error, "liza status")


def offer_again(crew: Crew, by: str, task_id: str | None = None) -> None:
    """Candidates that were recorded as tested and not published: the same candidate, nothing tested again.

    One that fails is marked, and the others are offered all the same. One that is set aside is offered when its pause
    is over, or when it is the named one.
    """
    for task in crew.board.read().tasks:
        if task.merging is None or (task.id != task_id and merge_rules.is_paused(task, crew.clock.now())):
            continue
        try:
            _advance(crew, by, task, task.merging)
        except merge_marks.FAILURES as error:
            if not _is_marked(crew, by, task, error):
                raise
            if task.id == task_id:
                raise _named(error) from error


def _attempt(crew: Crew, by: str, task: Task) -> None:
    """Merge one task; a failure of it is marked. Raises what keeps the task from being merged by a later try."""
    try:
        _merge_one(crew, by, task)
    except merge_marks.FAILURES as error:
        if not _is_marked(crew, by, task, error):
            raise
        after = claims.find(crew.board.read(), task.id)
        if after.status is Status.APPROVED:
            raise _named(error) from error
    except (SystemExit, KeyboardInterrupt):
        # Stopped on purpose: that is no merger that died.
        with suppress(*merge_marks.FAILURES), crew.change(merge_marks.actor(by), "candidate dropped", task.id) as tx:
            tx.state = merge_rules.dropped(tx.state, task.id)
        raise


def _is_marked(crew: Crew, by: str, task: Task, error: LizaError | OSError) -> bool:
    """Mark the task whose merge failed; whether that was the thing to do, and it could be done."""
    if not merge_marks.is_of_a_task(crew, error):
        return False
    trouble = error.trouble if isinstance(error, _NotItsFault) else merge_marks.trouble_of(crew, task, error)
    with suppress(Refused):
        merge_marks.troubled(crew, by, task, trouble)
        return True
    return False


class _NotItsFault(Refused):
    """What others did to integration keeps the task from being merged now."""

    def __init__(self, task: Task, kind: MergeFailureKind, words: str) -> None:
        super().__init__(words, f"liza merge {task.id}")
        self.trouble = MergeFailure(kind, words)


def _moving(task: Task, branch: str, tips: list[str]) -> _NotItsFault:
    """Integration moved each time while tests ran."""
    way = " → ".join(tip[:10] for tip in tips)
    words = f"{branch} moved {len(tips) - 1} times while the tests of {task.id} ran ({way})"
    return _NotItsFault(task, MergeFailureKind.MOVING, words)


def _merge_one(crew: Crew, by: str, task: Task) -> None:
    tips = []
    for _ in range(merge_rules.MOST_ROUNDS):
        tips.append(_tip(crew))
        made = _tested(crew, by, task, tips[-1])
        if made is None or _advance(crew, by, task, made):
            return
    raise _moving(task, _branch(crew), [*tips, _tip(crew)])


def _tested(crew: Crew, by: str, task: Task, expected: str) -> Merging | None:
    """A candidate on top of ``expected`` that may be published, recorded as that; None where it failed."""
    try:
        made = _candidate(crew, task, expected)
    except MergeConflict as conflict:
        merge_marks.failed(crew, by, task, f"conflict with {_branch(crew)} in {', '.join(conflict.files)}")
        return None
    crash_points.point("merge", "candidate")
    with crew.change(merge_marks.actor(by), "candidate made", task.id) as tx:
        tx.state = merge_rules.begin(tx.state, task.id, made)
    crash_points.point("merge", "begun")
    result = candidate.test(crew, task.id, made.candidate, _branch(crew))
    crash_points.point("merge", "tested")
    merge_marks.report_moved(crew, by, task, result)
    if result.taken is not None:
        back = merge_marks.given_back(crew, result.taken)
        what = f"{result.told(task.id)}; {back} (if you moved it, move it again while nothing is merged)"
        merge_marks.failed(crew, by, task, what if result.red is None else f"{what}\n{result.red}")
        return None
    if result.red is not None:
        merge_marks.put_back(crew, task, made)
        _refuse_red_base(crew, task, expected)
        merge_marks.failed(crew, by, task, result.red)
        return None
    # Both records before the branch moves: whoever settles a dead merger believes nothing less.
    merge_refs.note_tested(crew.git, task.id, made.candidate)
    crash_points.point("merge", "noted")
    passed = "tests passed" if result.tested else "no tests to run"
    with crew.change(merge_marks.actor(by), passed, task.id) as tx:
        tx.state = merge_rules.passed(tx.state, task.id, result.tested)
    crash_points.point("merge", "passed")
    return claims.find(tx.state, task.id).merging


def _refuse_red_base(crew: Crew, task: Task, expected: str) -> None:
    """Where others have moved integration, test that alone: if it is red, no task is to blame. Raises _NotItsFault."""
    if drift.is_left_at(crew, expected):
        return
    branch = _branch(crew)
    result = candidate.test(crew, f"{branch}-alone", expected, branch)
    if result.moved:
        crew.write_down([f"tests_moved_refs  {result.told(f'{branch} alone')}. Next: git reflog"])
    if result.taken is not None:
        words = f"{result.told(f'{branch} without {task.id}')}; {merge_marks.given_back(crew, result.taken)}"
        raise _NotItsFault(task, MergeFailureKind.BASE_RED, words if result.red is None else f"{words}\n{result.red}")
    if result.red is not None:
        words = f"{branch} is red without {task.id}: others moved it to {expected[:10]}; {result.red}"
        raise _NotItsFault(task, MergeFailureKind.BASE_RED, words)


def _candidate(crew: Crew, task: Task, expected: str) -> Merging:
    assert task.review_commit is not None
    title = task.description.strip().splitlines()[0][:72] if task.description.strip() else task.id
    made = merges.candidate(crew.git, task.review_commit, expected, f"Merge {task.id}: {title}", task.id)
    return Merging(candidate=made, expected=expected)


def _advance(crew: Crew, by: str, task: Task, made: Merging) -> bool:
    """Offer a tested candidate to integration; whether this attempt is at its end."""
    done = merges.advance(crew.git, _branch(crew), made.candidate, made.expected)
    crash_points.point("merge", "advanced")
    if done.outcome == "moved":
        merge_marks.merged(crew, by, task, made)
        return True
    waiting = done.outcome == "waiting"
    event = "waits for files" if waiting else "candidate dropped"
    with crew.change(merge_marks.actor(by), event, task.id) as tx:
        if waiting:
            tx.state = merge_rules.waiting(tx.state, task.id, done.files)
        else:
            tx.state = merge_rules.dropped(tx.state, task.id)
    return waiting


def _tip(crew: Crew) -> str:
    return crew.git.out("rev-parse", "--verify", f"refs/heads/{_branch(crew)}")


def _branch(crew: Crew) -> str:
    return crew.board.read().config.integration_branch
