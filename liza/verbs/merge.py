"""merge: bring an approved and tested commit into integration. Only supervisors and people say this."""

from __future__ import annotations

from dataclasses import dataclass

from liza import faults
from liza.board.lock import Lock
from liza.repo import merges, sandbox
from liza.rules import merging, taking
from liza.rules.errors import MergeConflict, Refused
from liza.rules.model import Merging, State, Status, Task
from liza.rules.paths import agent_id
from liza.rules.transitions import Said
from liza.verbs import commands, tampering
from liza.verbs.answer import Answer, answer
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew

SLOT = "merge"


@dataclass(frozen=True)
class Red:
    """The candidate does not stand: a conflict, or the tests. ``detail`` is what its coder must know."""

    detail: str


def merge(crew: Crew, task_id: str | None = None, supervisor: str | None = None) -> Answer:
    """Merge the named, or the best, APPROVED task, for a person or for the supervisor of that agent.

    Raises Refused, GitFailed.
    """
    person = human_or(crew, planner=False)
    by = agent_id(supervisor) if supervisor else person
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        raise Refused("another merge is under way", "liza status")
    try:
        return _merge(crew.holding(lock), by, task_id)
    finally:
        lock.release()


def _merge(crew: Crew, by: str, task_id: str | None) -> Answer:
    tampering.need_integration(crew, crew.board.read())
    settle_dead_merger(crew, by)
    start = crew.board.read()
    offer_again(crew, by)
    before = crew.board.read()
    if task_id is not None and taking.find(before, task_id).status is Status.MERGED:
        return _told(start, before, task_id)
    task = merging.approved(before, task_id) if task_id else merging.next_to_merge(before)
    if task is None:
        raise Refused("no task is approved and waits to be merged", "liza task list")
    _merge_one(crew, by, task)
    return _told(before, crew.board.read(), task.id)


def _told(before: State, after: State, task_id: str) -> Answer:
    task = taking.find(after, task_id)
    if task.merging and task.merging.waiting:
        step = f"commit or put away {task.merging.waiting} in your checkout; it is then merged by itself"
    elif task.merge_commit:
        step = f"git log --first-parent {after.config.integration_branch}"
    else:
        step = f"liza task show {task_id}"
    return answer(before, after, task_id, step, merge_commit=task.merge_commit, tested=task.tested)


def settle_dead_merger(crew: Crew, by: str) -> None:
    """What a merger left that died: its candidate is in integration, so the task is MERGED, or its attempt is dropped.

    The merge lock is held by the caller, and ``crew`` by ``holding``: whoever began those merges is gone, and so are
    its gits.
    """
    commands.end_leftovers(crew.paths.root)
    merges.settle(crew.git, _branch(crew))
    state = crew.board.read()
    for task in state.tasks:
        if task.merging is None:
            continue
        ours = _is_ours(crew, state, task, task.merging)
        if ours and merges.contains(crew.git, _branch(crew), task.merging.candidate):
            _merged(crew, by, task, task.merging)
        elif not (ours and task.merging.waiting):
            with crew.change(by, "merging", task.id) as tx:
                tx.state = merging.dropped(tx.state, task.id)
    _let_candidates_go(crew, by)


def _is_ours(crew: Crew, state: State, task: Task, made: Merging) -> bool:
    """Whether the candidate is what was approved, merged, and nothing else: everybody can write onto the board."""
    if task.status is not Status.APPROVED or merging.hindrance(state, task) or task.review_commit is None:
        return False
    return merges.joins(crew.git, made.candidate, made.expected, task.review_commit)


def _let_candidates_go(crew: Crew, by: str) -> None:
    """The candidates that nothing waits for: their ref is what a merger takes away last."""
    state = crew.board.read()
    for name in merges.candidates(crew.git):
        task = state.task(name)
        if task is not None and task.merging is not None:
            continue
        if task is not None and task.status is Status.MERGED:
            for slot in crew.worktrees.names():
                owner = crew.worktrees.owner(slot)
                if owner is not None and owner[0] == name:
                    crew.worktrees.clear(slot, name, task.run or by)
        merges.drop_candidate(crew.git, name)


def offer_again(crew: Crew, by: str) -> None:
    """Tested candidates that waited for a person's files: the same candidate, nothing tested again."""
    for task in crew.board.read().tasks:
        if task.merging is not None and task.merging.waiting:
            _advance(crew, by, task, task.merging)


def _merge_one(crew: Crew, by: str, task: Task) -> None:
    while True:
        expected = crew.git.out("rev-parse", "--verify", f"refs/heads/{_branch(crew)}")
        made = _candidate(crew, task, expected)
        if isinstance(made, Red):
            _failed(crew, by, task, made)
            return
        faults.point("merge", "candidate")
        with crew.change(by, "merging", task.id) as tx:
            tx.state = merging.begin(tx.state, task.id, made)
        faults.point("merge", "begun")
        red = _test(crew, task, made)
        faults.point("merge", "tested")
        if red is not None:
            _failed(crew, by, task, red)
            return
        if _advance(crew, by, task, made):
            return


def _candidate(crew: Crew, task: Task, expected: str) -> Merging | Red:
    assert task.review_commit is not None
    title = task.description.strip().splitlines()[0][:72] if task.description.strip() else task.id
    try:
        candidate = merges.candidate(crew.git, task.review_commit, expected, f"Merge {task.id}: {title}", task.id)
    except MergeConflict as conflict:
        return Red(f"conflict with {_branch(crew)} in {', '.join(conflict.files)}")
    return Merging(candidate=candidate, expected=expected)


def _test(crew: Crew, task: Task, made: Merging) -> Red | None:
    """None when the candidate is green, or no command is configured."""
    config = crew.board.read().config
    if not config.integration_command:
        return None
    crew.worktrees.detach(SLOT, made.candidate, f"merge-{task.id}")
    red = set_up(crew, SLOT)
    if red:
        return Red(red)
    log = crew.paths.logs / f"merge-{task.id}.log"
    done = commands.run(
        config.integration_command, crew.paths.slot(SLOT), log, config.integration_timeout, crew.paths.root
    )
    if done.green:
        return None
    how = "did not end in time" if done.code is None else f"exit {done.code}"
    return Red(f"{config.integration_command}: {how} on the merge with {_branch(crew)}\n{done.tail(12)}")


def set_up(crew: Crew, slot: str) -> str | None:
    """Bring a slot's sandbox up to date: copies, then the set-up command if it is due; what is wrong, or None."""
    config = crew.board.read().config
    place, there = crew.paths.slot(slot), crew.worktrees.slot_git(slot)
    sandbox.copy(crew.paths.root, there, config.sandbox_copy)
    if not config.sandbox_setup or not sandbox.setup_due(there, config.sandbox_setup, config.sandbox_setup_files):
        return None
    log = crew.paths.logs / f"setup-{slot}.log"
    done = commands.run(config.sandbox_setup, place, log, config.integration_timeout, crew.paths.root)
    if not done.green:
        return f"set-up failed: {config.sandbox_setup}: exit {done.code}\n{done.tail(12)}"
    sandbox.mark_setup_done(there, config.sandbox_setup, config.sandbox_setup_files)
    return None


def _advance(crew: Crew, by: str, task: Task, made: Merging) -> bool:
    """Offer the candidate to integration; whether this attempt is at its end."""
    done = merges.advance(crew.git, _branch(crew), made.candidate, made.expected)
    faults.point("merge", "advanced")
    if done.outcome == "moved":
        _merged(crew, by, task, made)
        return True
    waiting = done.outcome == "waiting"
    with crew.change(by, "merging", task.id) as tx:
        if waiting:
            tx.state = merging.waiting(tx.state, task.id, done.files)
        else:
            tx.state = merging.dropped(tx.state, task.id)
    return waiting


def _merged(crew: Crew, by: str, task: Task, made: Merging) -> None:
    tested = bool(crew.board.read().config.integration_command)
    with crew.change(by, "merge", task.id) as tx:
        tx.state = merging.merged(tx.state, task.id, Said(now=crew.clock.now(), by=by, commit=made.candidate), tested)
    faults.point("merge", "merged")
    told = tampering.note_merged(crew, task, made.expected, made.candidate)
    if told:
        crew.write_down([told])
    if task.worktree:
        crew.worktrees.clear(task.worktree, task.id, task.run or by)
    merges.drop_candidate(crew.git, task.id)


def _failed(crew: Crew, by: str, task: Task, red: Red) -> None:
    with crew.change(by, "merge failed", task.id) as tx:
        said = Said(now=crew.clock.now(), by=by, commit=task.review_commit, detail=red.detail)
        tx.state = merging.failed(tx.state, task.id, said)
    merges.drop_candidate(crew.git, task.id)


def _branch(crew: Crew) -> str:
    return crew.board.read().config.integration_branch
