"""Merge a batch: build its chain, test its tip, bisect a red one, publish the green prefix, return the culprit.

The board and the tested refs are written before the branch moves, so that `merge_recovery.py` can complete or undo the
batch after a crash at any point.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from liza.board.contract import Board
from liza.config.rules import test_proof
from liza.crew.crew import Crew
from liza.git import branch_moves, candidates, checkout_files, git_refs
from liza.git.checkout_moves import MoveOutcome
from liza.merging import candidate_tests as candidate
from liza.merging import gate_log, merge_outcomes, publication, remaking
from liza.merging.candidate_tests import CandidateResult, CandidateRun
from liza.merging.remaking import Remaking
from liza.merging.rules import merge_queue, merge_rules
from liza.merging.rules.merge_queue import Batch, Member, PrefixResult, PublishPrefix, next_batch_step
from liza.merging.rules.merge_rules import MergeFailure, MergeFailureKind
from liza.model import gates, history_events, targets
from liza.model.errors import MergeConflict, Refused
from liza.model.history_events import HistoryEvent
from liza.model.model import MergeInProgress, Status, Task
from liza.model.paths import is_person
from liza.model.tested import NO_GATE_APPLIED, HowTested
from liza.model.transitions import Invocation
from liza.model.value_classes import Value, replace
from liza.project import commands, listeners
from liza.project.rules.output_causes import BoxNeeds
from liza.system import crash_points
from liza.tasks import shared_code
from liza.tasks.rules import strangers
from liza.tasks.rules.picking import unmet_dependencies


class BatchResult(Value):
    """What the tests of a batch showed: ``passed`` may be published, which is None if nothing passed. ``culprit`` is
    red on top of it, with this ``failure``. ``how``: what its tip may be called."""

    passed: Batch | None
    how: HowTested
    culprit: Task | None = None
    failure: str = ""


def merge_batch(crew: Crew, by: str, tasks: Sequence[Task], *, untested: bool = False) -> None:
    """Merge tasks with one target branch together, and return to its coder the one that makes the tests fail. Tasks
    that are neither merged nor returned stay APPROVED. ``untested``: a person merges them even if the tests say nothing
    about the commit. Raises LizaError, OSError."""
    branch = targets.target_branch(crew.board.read(), tasks[0])
    publication.fetch_for_merge(crew, branch, tasks)
    red_branch = retest_red_branch(crew, by, branch)
    if red_branch is not None:
        tasks = [_choose_task_for_red_branch(by, tasks, red_branch)]
    tips = []
    for _ in range(merge_rules.MAX_CANDIDATES):
        tips.append(merge_outcomes.require_tip(crew, branch))
        batch = build_batch(crew, by, _still_approved(crew.board, tasks), branch, tips[-1])
        if batch is None:
            return
        crash_points.point("merge", "candidate")
        with crew.change(merge_outcomes.merge_actor(by), "candidate made", batch.ids[0]) as tx:
            tx.state = merge_queue.begin_batch(tx.state, batch)
        crash_points.point("merge", "begun")
        try:
            verdict = search_batch(crew, by, batch, red_branch, untested=untested)
        except merge_outcomes.SharedFailure:
            # It is recorded once, on the first task.
            _drop_candidates(crew, by, batch.ids[1:])
            raise
        if _carry_out(crew, by, batch, verdict):
            if red_branch is not None and verdict.passed is not None:
                clear_red_branch(crew, by, branch)
            return
    raise moving_branch_error(tasks[0].id, branch, [*tips, merge_outcomes.require_tip(crew, branch)])


def _still_approved(board: Board, tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks of a batch that can be merged: in an earlier round one may have gone back to its coder."""
    state = board.read()
    current = [state.task(task.id) for task in tasks]
    return [task for task in current if task is not None and task.status is Status.APPROVED]


def search_batch(
    crew: Crew, by: str, batch: Batch, red_branch: MergeFailure | None, *, untested: bool = False
) -> BatchResult:
    """Test the batch, and find what may be published. If that fails, its branch does not stay at a candidate to which
    its tests moved it. ``red_branch``: why the branch alone is red, if that is known. ``untested`` as for
    ``merge_batch``. Raises LizaError, OSError."""
    try:
        return _Search(crew, by, batch, red_branch, untested=untested).run()
    except BaseException:
        with suppress(*merge_outcomes.CAUGHT_ERRORS):
            merge_outcomes.undo_untested_move(crew, batch)
        raise


def moving_branch_error(title: str, branch: str, tips: list[str]) -> merge_outcomes.SharedFailure:
    """Build the error for a branch that moved during each test run."""
    path = " → ".join(tip[:10] for tip in tips)
    message = f"{branch} moved {len(tips) - 1} times while the tests of {title} ran ({path})"
    return merge_outcomes.SharedFailure(title, MergeFailure(MergeFailureKind.MOVING, message))


def _carry_out(crew: Crew, by: str, batch: Batch, verdict: BatchResult) -> bool:
    """Publish what passed and return the culprit; False if the branch has moved and a new batch is needed."""
    if verdict.passed is not None:
        config = crew.board.read().config
        record = replace(verdict.how, gates=gates.gates_digest(config, batch.branch))
        recorded = _record_tested(crew, by, batch, verdict.passed, record)
        if not publish_batch(crew, by, recorded):
            return False
    if verdict.culprit is not None:
        if verdict.passed is None:
            _drop_candidates(crew, by, [task_id for task_id in batch.ids if task_id != verdict.culprit.id])
        try:
            merge_outcomes.return_to_coder(crew, by, verdict.culprit, verdict.failure)
        except Exception as error:
            if not merge_outcomes.record_errors(crew, by, [verdict.culprit], error):
                raise
    return True


def _record_tested(crew: Crew, by: str, batch: Batch, passed: Batch, record: HowTested) -> Batch:
    """Record the green prefix, as refs and on the board, before the branch moves: recovery requires both."""
    git_refs.write_tested_refs(crew.git, passed.ids, passed.tip)
    crash_points.point("merge", "noted")
    event = "tests passed" if record.was_run else "no tests to run"
    dropped = [task_id for task_id in batch.ids if task_id not in passed.ids]
    with crew.change(merge_outcomes.merge_actor(by), event, passed.ids[0]) as tx:
        tx.state = merge_queue.record_tested(tx.state, passed, dropped, record)
    crash_points.point("merge", "passed")
    for task_id in dropped:
        candidates.delete_candidate(crew.git, task_id)
    return next(batch for batch in merge_queue.find_batches(tx.state) if batch.ids == passed.ids)


def _drop_candidates(crew: Crew, by: str, tasks: Sequence[str]) -> None:
    if not tasks:
        return
    with crew.change(merge_outcomes.merge_actor(by), "candidate dropped", tasks[0]) as tx:
        tx.state = merge_queue.drop_candidates(tx.state, tasks)
    for task_id in tasks:
        candidates.delete_candidate(crew.git, task_id)


def drop_batch(crew: Crew, by: str, tasks: Sequence[str]) -> None:
    """Remove the candidates of a merger that is stopped on purpose: it must not count as a crash. Errors are left to
    recovery."""
    with suppress(*merge_outcomes.CAUGHT_ERRORS):
        _drop_candidates(crew, by, tasks)


def publish_batch(crew: Crew, by: str, batch: Batch) -> bool:
    """Advance the branch to a tested batch; return False if a new batch is needed: the branch has moved, or the gates
    that it passed have changed.

    If a person's changed files block a batch of several, its tasks are merged alone: only those that need these files
    wait. Raises LizaError, OSError.
    """
    if batch.members[0].merging.gates != gates.gates_digest(crew.board.read().config, batch.branch):
        _drop_candidates(crew, by, batch.ids)
        return False
    advance = publication.advance(crew, batch.branch, batch.tip, batch.expected, batch.ids)
    crash_points.point("merge", "advanced")
    if advance.outcome is MoveOutcome.MOVED:
        merge_outcomes.finish_batch(crew, by, batch)
        return True
    waiting = advance.outcome is MoveOutcome.WAITING
    if waiting and len(batch.members) > 1:
        files, step = branch_moves.describe_blocking(advance)
        raise Refused(f"a batch of {batch.title} cannot be published: {files}", step)
    event = "waits for files" if waiting else "candidate dropped"
    with crew.change(merge_outcomes.merge_actor(by), event, batch.ids[0]) as tx:
        if waiting:
            tx.state = merge_queue.wait_for_files(tx.state, batch, advance.files)
        else:
            tx.state = merge_queue.drop_candidates(tx.state, batch.ids)
    return waiting


class _RedPrefix(Value):
    """A red prefix: the message for the coder of its last task, and the gates that failed."""

    failure: str
    gates: tuple[str, ...]


class _Search:
    """Test prefixes of a batch until it is known what can be published."""

    def __init__(self, crew: Crew, by: str, batch: Batch, red_branch: MergeFailure | None, *, untested: bool) -> None:
        self.crew, self.by, self.batch, self.red_branch = crew, by, batch, red_branch
        self.may_be_untested = untested
        self.config = crew.board.read().config
        self.past_runs = gate_log.read_or_report(crew)
        self.results: list[PrefixResult] = []
        self.red: dict[int, _RedPrefix] = {}
        self.how: dict[int, HowTested] = {}

    def run(self) -> BatchResult:
        """Return what may be published, and the culprit. Raises LizaError, OSError."""
        while True:
            step = next_batch_step(len(self.batch.members), self.results, self._retries())
            if isinstance(step, PublishPrefix):
                return self._conclude(step)
            if self.results:
                # Tests that moved integration to their own candidate published it early.
                merge_outcomes.undo_untested_move(self.crew, self.batch)
            self._run_prefix(step.length)

    def _retries(self) -> int:
        return gates.allowed_retries(
            self.config, self.past_runs, {gate for red in self.red.values() for gate in red.gates}
        )

    def _run_prefix(self, length: int) -> None:
        prefix = self.batch.prefix(length)
        task = prefix.members[-1].task
        again = self.red[length].gates if length in self.red else ()
        run = CandidateRun(
            task.id,
            prefix.tip,
            self.batch.expected,
            self.batch.branch,
            length,
            again or None,
            always=self.may_be_untested,
            is_foreign=any(strangers.is_foreign(member.task) for member in prefix.members),
        )
        result = candidate.run_candidate_tests(self.crew, run)
        crash_points.point("merge", "tested")
        merge_outcomes.report_moved_refs(self.crew, self.by, task, result)
        self.past_runs = gate_log.record(self.crew, self.past_runs, result.runs)
        self._require_test(task, result)
        self.how[length] = result.how.with_remarks_of(self.how.get(length))
        if result.rewound_from is not None:
            restored = merge_outcomes.restore_branch(self.crew.git, self.batch.branch, result.rewound_from)
            message = f"{result.told(task.id)}; {restored} (if you moved it, move it again while nothing is merged)"
            failure = message if result.failure is None else f"{message}\n{result.failure}"
            self.red[length] = _RedPrefix(failure, result.red_gates)
        elif result.failure is not None:
            merge_outcomes.undo_untested_move(self.crew, prefix)
            if not self.red:
                self._refuse_red_branch(result.red_gates)
            self.red[length] = _RedPrefix(result.failure, result.red_gates)
        is_red = result.failure is not None or result.rewound_from is not None
        self.results.append(PrefixResult(length, not is_red, certain=result.rewound_from is not None))

    def _require_test(self, task: Task, result: CandidateResult) -> None:
        """Raise SharedFailure if the run says nothing about the commit, unless a person merges it untested."""
        why = result.how.untested
        if why is None:
            return
        if self.may_be_untested:
            line = f"{task.id} is merged by {self.by} although {why.text}"
            self.crew.append_alert_log([f"merged_untested  {line}. Next: liza task show {task.id}"])
            return
        merge_outcomes.undo_untested_move(self.crew, self.batch)
        raise merge_outcomes.untested_failure(self.batch.members[0].task.id, why)

    def _refuse_red_branch(self, red_gates: tuple[str, ...]) -> None:
        """Raise SharedFailure if the branch alone is red. It is tested if the cause may be outside of the tasks."""
        title, size = self.batch.members[0].task.id, len(self.batch.members)
        failure = self.red_branch
        if failure is None and _may_be_red_alone(self.crew, self.batch):
            retries = gates.allowed_retries(self.config, self.past_runs, red_gates)
            failure = _test_branch(self.crew, self.batch.branch, red_gates, retries)
        if failure is None:
            return

        with self.crew.change(merge_outcomes.merge_actor(self.by), HistoryEvent.MERGE_CLEARED) as tx:
            invocation = Invocation(now=self.crew.clock.now(), by=self.by, detail=failure.message)
            tx.state = merge_queue.clear_blame(tx.state, self.batch.branch, invocation)
        kind = MergeFailureKind.BASE_RED if size == 1 else MergeFailureKind.BATCH
        raise merge_outcomes.SharedFailure(title, replace(failure, kind=kind))

    def _conclude(self, step: PublishPrefix) -> BatchResult:
        passed = self.batch.prefix(step.length) if step.length else None
        how = self.how.get(step.length, NO_GATE_APPLIED)
        if step.culprit is None:
            return BatchResult(passed, how)
        if self.results[-1] != PrefixResult(step.length, True):
            merge_outcomes.undo_untested_move(self.crew, self.batch)
        culprit = self.batch.members[step.culprit].task
        return BatchResult(passed, how, culprit, self.red[step.culprit + 1].failure)


def _may_be_red_alone(crew: Crew, batch: Batch) -> bool:
    """Return whether a red candidate may have a cause outside of its tasks: others moved the branch, the merge before
    was red, too, a person accepted red tests, or the box is the cause."""
    is_moved, config = not merge_outcomes.is_last_tip(crew, batch.branch, batch.expected), crew.board.read().config
    if is_moved or test_proof.may_be_red_alone(config, is_confined=commands.is_confined(config)):
        return True
    return merge_queue.last_blamed(crew.board.read(), batch.branch) is not None


def retest_red_branch(crew: Crew, by: str, branch: str) -> MergeFailure | None:
    """Test a branch alone if it was red when it was tested last. Return why it still is, None if it is green.

    Raises LizaError, OSError.
    """
    red = merge_rules.find_red_branches(crew.board.read()).get(branch)
    if red is None:
        return None
    failure = _test_branch(crew, branch, red.gates, retries=0)
    if failure is None:
        clear_red_branch(crew, by, branch)
    return failure


def clear_red_branch(crew: Crew, by: str, branch: str) -> None:
    """Record that the tests passed on a branch that was red."""
    with crew.change(merge_outcomes.merge_actor(by), "branch green") as tx:
        tx.state = merge_rules.clear_red_branch(tx.state, branch)


def _choose_task_for_red_branch(by: str, tasks: Sequence[Task], failure: MergeFailure) -> Task:
    """Return the task to merge alone into a red branch. Each is tried once, since it may make the branch green, and
    again if a person asks for it. Raises SharedFailure if no task can be tried."""
    if is_person(by):
        return tasks[0]
    untried = next((task for task in tasks if not merge_rules.was_red_alone(task)), None)
    if untried is None:
        raise merge_outcomes.SharedFailure(tasks[0].id, failure)
    return untried


def _test_branch(crew: Crew, branch: str, red_gates: tuple[str, ...], retries: int) -> MergeFailure | None:
    """Test the tip of a branch without any task; return why it is red, None if it is green.

    Only ``red_gates`` run, all if there are none: the set-up failed. Raises LizaError, OSError.
    """
    tip = merge_outcomes.require_tip(crew, branch)
    run = CandidateRun(f"{branch}-alone", tip, tip, branch, 0, red_gates or None, always=True)
    for _ in range(1 + retries):
        result = candidate.run_candidate_tests(crew, run)
        if result.moved_refs:
            crew.append_alert_log([f"tests_moved_refs  {result.told(f'{branch} alone')}. Next: git reflog"])
        message = result.failure or ""
        if result.rewound_from is not None:
            restored = merge_outcomes.restore_branch(crew.git, branch, result.rewound_from)
            message = f"{result.told(f'{branch} alone')}; {restored}" + (f"\n{message}" if message else "")
        elif result.failure is None:
            return None
    moved = "" if merge_outcomes.is_last_tip(crew, branch, tip) else f", and others moved it to {tip[:10]}"
    names = f" ({', '.join(result.red_gates)})" if result.red_gates else ""
    config = crew.board.read().config
    is_boxed = commands.is_confined(config)
    needs = listeners.find_needs(message, crew.paths) if is_boxed else BoxNeeds()
    lacks = f", and a box does not give what it needs: {needs.text}" if needs.text else ""
    text = f"{branch} is red without any task{moved}{names}{lacks}: {message}"
    hint = listeners.share_command(needs, config.shared)
    return MergeFailure(MergeFailureKind.BASE_RED, text, hint, branch=branch, gates=result.red_gates)


def build_batch(crew: Crew, by: str, tasks: Sequence[Task], branch: str, base: str) -> Batch | None:
    """Build a candidate for each task on top of the one before, the first on ``base``, the tip of ``branch``. Return
    None if none is left.

    A task that conflicts with ``base`` goes back to its coder. One that only conflicts with another task of the batch
    is left out and stays APPROVED. Any failure is recorded on its task, and the others go on; with one task it is
    raised. Raises LizaError, OSError.
    """
    chain = _Chain(crew, branch, base, checks_files=len(tasks) > 1)
    state = crew.board.read()
    for task in tasks:
        if not chain.has(unmet_dependencies(state, task)):
            continue  # what it is built on was left out
        try:
            _add_or_return(crew, by, chain, task, (branch, base))
        except Exception as error:
            if len(tasks) == 1 or not merge_outcomes.record_errors(crew, by, [task], error):
                raise
        if chain.is_closed:
            break
    if not chain.members:
        return None
    return Batch(tuple(chain.members), branch).prefix(len(chain.members))


class _Chain:
    """The candidates so far. ``is_closed``: no other task may be added. ``checks_files``: whether changed files of a
    person's checkout decide who is in the batch; a single candidate waits for them when it is tested."""

    def __init__(self, crew: Crew, branch: str, base: str, *, checks_files: bool) -> None:
        self.members: list[Member] = []
        self.is_closed = False
        self._crew, self._git = crew, crew.git
        self._tip = base
        checkout = branch_moves.find_checkout(crew.git, branch) if checks_files else None
        self._checkout = None if checkout is None else crew.git.at(checkout)
        self._state = None if self._checkout is None else checkout_files.read_checkout(self._checkout, base)

    def has(self, tasks: Collection[str]) -> bool:
        """Return whether all these tasks are in the chain."""
        return {member.task.id for member in self.members}.issuperset(tasks)

    def add(self, task: Task) -> None:
        """Add the candidate of a task. One that a person's changed files block is left out, unless it is the first: it
        is alone then, so that it holds up no other. Raises MergeConflict, GitFailed."""
        assert task.review_commit is not None
        title = task.description.strip().splitlines()[0][:72] if task.description.strip() else task.id
        generated = Remaking(self._crew, task.id)
        # Package managers need the network, which what a stranger wrote does not get.
        resolve = None if task.submission is not None and task.submission.is_foreign else generated.resolve
        commit = candidates.build_candidate(
            self._git, task.review_commit, self._tip, f"Merge {task.id}: {title}", task.id, resolve=resolve
        )
        if self._is_blocked(commit):
            if self.members:
                candidates.delete_candidate(self._git, task.id)
                return
            self.is_closed = True
        self.members.append(Member(task, MergeInProgress(candidate=commit, expected=self._tip, remade=generated.text)))
        self._tip = commit

    def _is_blocked(self, commit: str) -> bool:
        if self._checkout is None or self._state is None:
            return False
        return bool(checkout_files.find_blocking_files(self._checkout, self._state, self._tip, commit))


def _add_or_return(crew: Crew, by: str, chain: _Chain, task: Task, onto: tuple[str, str]) -> None:
    """Add the candidate of a task, or handle its conflict. Raises LizaError, OSError."""
    try:
        shared_code.require_submitted(crew, task)
        chain.add(task)
    except MergeConflict as conflict:
        _resolve_conflict(crew, by, task, conflict, onto, is_first=not chain.members)


def _resolve_conflict(
    crew: Crew, by: str, task: Task, conflict: MergeConflict, onto: tuple[str, str], *, is_first: bool
) -> None:
    """Handle a conflict of a task in a chain onto a branch at a commit."""
    assert task.review_commit is not None
    branch, base = onto
    if not is_first:
        ours = crew.git.with_environment(GIT_ATTR_SOURCE=base)
        files = candidates.merge_trees(ours, base, task.review_commit)[1]
        if all(map(remaking.is_generated(crew.board.read().config), files)):
            return  # alone it merges, or its files are made again on what is merged then
        conflict = MergeConflict(conflict.message, files)
    details = remaking.describe_conflict(crew, base, task.review_commit, conflict)
    merge_outcomes.return_to_coder(crew, by, task, history_events.describe_conflict(branch, conflict.files, details))
