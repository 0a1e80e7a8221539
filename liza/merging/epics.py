"""Epics: list them, merge their branches with integration, and let a person restore or accept a branch that was moved.

A merge lands an epic or brings it up to date. It is a batch of one, so it is tested, retried and undone as that of a
task. A conflict or red tests become a new task of the epic. Its parts are recorded in the order of `batches.py`, and
`recover_epics` completes or undoes them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import branch_moves, candidates, git_refs
from liza.git.checkout_moves import MoveOutcome
from liza.git.runner import Git
from liza.merging import batches, merge_outcomes, publication, remaking
from liza.merging import candidate_tests as candidate
from liza.merging.candidate_tests import CandidateRun
from liza.merging.merge_lock import hold_merge_lock
from liza.merging.remaking import Remaking
from liza.merging.rules import epic_rules, merge_rules
from liza.merging.rules.epic_rules import EpicJob
from liza.merging.rules.merge_queue import Batch, Member
from liza.merging.rules.merge_rules import MergeFailure, MergeFailureKind
from liza.model import targets
from liza.model.errors import GitFailed, MergeConflict, Refused, UnknownId
from liza.model.model import FINAL_STATUSES, Epic, EpicMerge, EpicStep, MergeInProgress, State, Status, Task
from liza.model.narration import LIZA
from liza.model.paths import check_task_id, is_person
from liza.model.transitions import Invocation
from liza.model.value_classes import Value
from liza.system import atomic, crash_points
from liza.tasks import archive, task_branches
from liza.tasks.rules import backlog
from liza.tasks.rules.backlog import RequestContext
from liza.text.formats import count_noun
from liza.text.undecoded import list_names


class EpicReport(Value):
    """An epic: its branch, its ``state`` in words, why it waits with the next command, and its tasks."""

    name: str
    branch: str
    tip: str | None
    state: str
    why: str
    next: str
    open: tuple[str, ...]
    merged: tuple[str, ...]
    landed: tuple[str, ...]


def list_epics(crew: Crew) -> tuple[EpicReport, ...]:
    """Return every epic of the board with its branch, its tasks, and what it waits for. Raises GitFailed."""
    state = crew.board.read()
    names = dict.fromkeys([*state.epics, *(task.epic for task in state.tasks if task.epic is not None)])
    faults = task_branches.find_faults(crew) if names else {}
    return tuple(_report_epic(crew.git, state, name, faults.get(name)) for name in names)


def _report_epic(git: Git, state: State, name: str, fault: Refused | None) -> EpicReport:
    tasks, entry = targets.tasks_of(state, name), state.epics.get(name, Epic())
    waiting = [task.id for task in tasks if task.status not in FINAL_STATUSES]
    job = epic_rules.find_job(state, name)
    if fault is not None:
        status, why, step = "broken", fault.message, fault.hint
    elif entry.set_aside is not None:
        status, why, step = "set aside", " ".join(entry.set_aside.reason.split()), _retry_command(name, entry)
    elif waiting:
        status, why, step = "open", "", ""
    elif job is not None:
        status, why, step = "to land", "", f"liza merge {job.branch}"
    else:
        status, why, step = "landed" if entry.landed else "empty", "", ""
    branch = targets.epic_branch(name)
    return EpicReport(
        name=name,
        branch=branch,
        tip=branch_moves.branch_tip(git, branch),
        state=status,
        why=why,
        next=str(step or ""),
        open=tuple(waiting),
        merged=tuple(task.id for task in tasks if task.status is Status.MERGED),
        landed=tuple(entry.landed),
    )


def _retry_command(name: str, entry: Epic) -> str:
    hint = entry.set_aside.hint if entry.set_aside is not None else ""
    return hint or f"liza merge {targets.epic_branch(name)}"


def restore(crew: Crew, name: str) -> Result:
    """Put the branch of an epic back to where Liza left it; what it had since is saved. Raises Refused, GitFailed."""
    require_person(crew, planner=False)
    with hold_merge_lock(crew) as merging_crew:
        locked = publication.begin(merging_crew)
        message = publication.restore_shared(locked, check_task_id(name)) if crew.remote_name else ""
        message = message or task_branches.restore_branch(locked, check_task_id(name))
    return Result("changed", next="liza epics", details={"epic": name}, message=message)


def accept(crew: Crew, name: str) -> Result:
    """Accept the commits of a person on the branch of an epic. Raises UnknownId, Refused, GitFailed."""
    require_person(crew, planner=False)
    state = crew.board.read()
    if check_task_id(name) not in targets.open_epics(state):
        raise UnknownId(f"there is no open epic {name!r}", "liza epics")
    with hold_merge_lock(crew) as merging_crew:
        locked = publication.begin(merging_crew)
        message = task_branches.accept_branch(locked.git, name)
        branch = targets.epic_branch(name)
        publication.record_accepted(locked, branch, branch_moves.branch_tip(locked.git, branch) or "")
    return Result("changed", next="liza epics", details={"epic": name}, message=message)


def run_job(crew: Crew, by: str, job: EpicJob) -> None:
    """Land or update an epic. A failure is recorded on the epic, and raised. Raises LizaError, OSError."""
    try:
        _merge(crew, by, job)
    except Exception as error:
        _record_error(crew, by, job, error)
        raise
    except (SystemExit, KeyboardInterrupt):
        with suppress(*merge_outcomes.CAUGHT_ERRORS):
            _drop(crew, by, job.epic)
        raise


def _merge(crew: Crew, by: str, job: EpicJob) -> None:
    state = crew.board.read()
    into, tips = job.into(state), []
    for branch in (_source_branch(state, job), into):
        publication.fetch_for_merge(crew, branch, ())
    red_branch = batches.retest_red_branch(crew, by, into)
    is_tried = merge_rules.was_red_alone(state.epics.get(job.epic, Epic())) and not is_person(by)
    if red_branch is not None and is_tried:
        raise merge_outcomes.SharedFailure(job.branch, red_branch)
    for _ in range(merge_rules.MAX_CANDIDATES):
        tips.append(merge_outcomes.require_tip(crew, into))
        batch = _build(crew, by, job, tips[-1])
        if batch is None or _test_and_publish(crew, by, job, batch, red_branch):
            return
    raise batches.moving_branch_error(job.branch, into, [*tips, merge_outcomes.require_tip(crew, into)])


def _build(crew: Crew, by: str, job: EpicJob, expected: str) -> Batch | None:
    """Build the candidate. Return None if the branches are merged already, or conflict, which becomes a task."""
    state = crew.board.read()
    into, source = job.into(state), _source_branch(state, job)
    commit = merge_outcomes.require_tip(crew, source)
    if branch_moves.contains(crew.git, into, commit):
        merged = EpicMerge(step=job.step, candidate=expected, expected=expected)
        _finish_merged(crew, by, job, _batch(job, commit, into, merged))
        return None
    try:
        resolve = Remaking(crew, _name(job.epic)).resolve
        merge_commit = candidates.build_candidate(
            crew.git, commit, expected, _message(state, job), _name(job.epic), resolve=resolve
        )
    except MergeConflict as conflict:
        details = remaking.describe_conflict(crew, expected, commit, conflict)
        _add_mend(crew, by, job, f"conflict in {list_names(conflict.files)}" + (f"\n{details}" if details else ""))
        return None
    return _batch(job, commit, into, EpicMerge(step=job.step, candidate=merge_commit, expected=expected))


def _finish_merged(crew: Crew, by: str, job: EpicJob, batch: Batch) -> None:
    """Finish an epic whose branch was merged already: it lands if the gates are green on what integration has."""
    if job.step is EpicStep.LAND:
        run = CandidateRun(_name(job.epic), batch.tip, batch.tip, batch.branch, 0)
        result = candidate.run_candidate_tests(crew, run)
        if result.how.untested is not None:
            raise merge_outcomes.untested_failure(job.branch, result.how.untested)
        if result.failure is not None:
            _add_mend(crew, by, job, result.failure)
            return
    _finish(crew, by, job, batch)


def _test_and_publish(crew: Crew, by: str, job: EpicJob, batch: Batch, red_branch: MergeFailure | None) -> bool:
    """Test a candidate and publish it; return False if the branch has moved and a new one is needed."""
    crash_points.point("epic", "candidate")
    with crew.change(merge_outcomes.merge_actor(by), f"{job.step} begun", None) as tx:
        tx.state = epic_rules.begin_merge(tx.state, job, batch.tip, batch.expected)
    crash_points.point("epic", "begun")
    result = batches.search_batch(crew, by, batch, red_branch)
    if result.culprit is not None:
        _add_mend(crew, by, job, result.failure)
        return True
    git_refs.write_tested_refs(crew.git, (_name(job.epic),), batch.tip)
    crash_points.point("epic", "noted")
    event = "tests passed" if result.how.was_run else "no tests to run"
    with crew.change(merge_outcomes.merge_actor(by), event) as tx:
        tx.state = epic_rules.record_tested(tx.state, job.epic, result.how.tested)
    crash_points.point("epic", "passed")
    advance = publication.advance(crew, batch.branch, batch.tip, batch.expected, (job.branch,))
    crash_points.point("epic", "advanced")
    if advance.outcome is MoveOutcome.WAITING:
        files, step = branch_moves.describe_blocking(advance, f"liza merge {targets.epic_branch(job.epic)}")
        raise Refused(f"{batch.branch} is checked out, and {files}", step)
    if advance.outcome is MoveOutcome.LOST:
        _drop(crew, by, job.epic)
        return False
    _finish(crew, by, job, batch)
    if red_branch is not None:
        batches.clear_red_branch(crew, by, batch.branch)
    return True


def _finish(crew: Crew, by: str, job: EpicJob, batch: Batch) -> None:
    """Record what is published, and clean up. Can be repeated; a failed clean-up is reported and left to recovery."""
    if job.step is EpicStep.UPDATE:
        merge_outcomes.record_last_tip(crew.git, job.branch, batch.tip)
        with crew.change(merge_outcomes.merge_actor(by), "update", None) as tx:
            tx.state = epic_rules.finish_update(tx.state, job.epic)
        crash_points.point("epic", "updated")
        candidates.delete_candidate(crew.git, _name(job.epic))
        return
    with crew.change(merge_outcomes.merge_actor(by), "land", None) as tx:
        landed = [task.id for task in targets.tasks_of(tx.state, job.epic)]
        invocation = Invocation(now=crew.clock.now(), by=merge_outcomes.merge_actor(by))
        tx.state = epic_rules.finish_landing(tx.state, job.epic, batch.tip, landed, invocation)
    crash_points.point("epic", "landed")
    for step in (
        partial(_record_tip, crew, batch),
        partial(task_branches.delete_landed, crew),
        partial(candidates.delete_candidate, crew.git, _name(job.epic)),
    ):
        try:
            step()
        except merge_outcomes.CAUGHT_ERRORS as error:
            crew.append_alert_log([f"after_merge  {job.branch} has landed; {error}. Next: liza doctor --fix"])
        crash_points.point("epic", "cleaning")


def _record_tip(crew: Crew, batch: Batch) -> None:
    message = None if batch.tip == batch.expected else merge_outcomes.record_merged_tip(crew, batch)
    if message:
        crew.append_alert_log([message])


def recover_epics(crew: Crew, by: str) -> None:
    """Complete or undo the merges of epics whose merger died. The caller holds the merge lock. Raises GitFailed."""
    state = crew.board.read()
    for epic, entry in state.epics.items():
        if entry.merging is None:
            continue
        job = EpicJob(epic, entry.merging.step)
        try:
            _recover(crew, by, job, entry.merging)
        except Exception as error:
            # Nothing may be merged onto a candidate that no test has passed.
            if _is_untested_published(crew, job, entry.merging) or not _record_error(crew, by, job, error):
                raise
    if git_refs.refs_below(crew.git, branch_moves.last_tip_ref(targets.EPIC_PREFIX)):
        task_branches.delete_landed(crew)


def _is_untested_published(crew: Crew, job: EpicJob, merging: EpicMerge) -> bool:
    """Return whether the branch has a candidate that is not recorded as tested."""
    into = job.into(crew.board.read())
    is_there = branch_moves.branch_tip(crew.git, into) is not None and branch_moves.contains(
        crew.git, into, merging.candidate
    )
    return is_there and not _is_tested(crew, job, merging)


def _is_tested(crew: Crew, job: EpicJob, merging: EpicMerge) -> bool:
    tested_ref = git_refs.list_tested(crew.git).get(_name(job.epic))
    into = job.into(crew.board.read())
    return merging.tested is not None and (
        tested_ref == merging.candidate or publication.is_published(crew, into, merging.candidate)
    )


def _recover(crew: Crew, by: str, job: EpicJob, merging: EpicMerge) -> None:
    state = crew.board.read()
    commit = crew.git.find_commit(f"{merging.candidate}^2")
    has_branch = branch_moves.branch_tip(crew.git, job.into(state)) is not None
    if commit is not None and has_branch and _is_genuine(crew.git, state, job, merging, commit):
        batch = _batch(job, commit, job.into(state), merging)
        is_tested = _is_tested(crew, job, merging)
        if is_tested and branch_moves.contains(crew.git, batch.branch, batch.tip):
            _finish(crew, by, job, batch)
            return
        if not is_tested:
            outcome = merge_outcomes.undo_untested_move(crew, batch)
            message = f"its merger died before the tests of {batch.tip[:10]} had passed"
            failure = MergeFailure(MergeFailureKind.DIED, f"{message}; {outcome}" if outcome else message)
            _record_failure(crew, by, job, failure)
            return
    _drop(crew, by, job.epic)


def _is_genuine(git: Git, state: State, job: EpicJob, merging: EpicMerge, commit: str) -> bool:
    """Return whether the candidate is exactly the merge of the two branches: agents can write to the board."""
    source = _source_branch(state, job)
    ref = f"refs/heads/{source}" if job.step is EpicStep.UPDATE else branch_moves.last_tip_ref(source)
    tip = git.find_commit(ref)
    try:
        is_of_source = tip is not None and git.ok("merge-base", "--is-ancestor", commit, tip)
        return is_of_source and candidates.is_merge_of(
            git, merging.candidate, merging.expected, commit, remaking.is_generated(state.config)
        )
    except GitFailed:
        # One of the commits is missing: the merge is repeated and fails with its own error.
        return False


def _source_branch(state: State, job: EpicJob) -> str:
    return job.branch if job.step is EpicStep.LAND else state.config.integration_branch


def _name(epic: str) -> str:
    """Return the name of the candidate of an epic in refs and logs. Ids of tasks have no dots."""
    return f"epic.{epic}"


def _batch(job: EpicJob, commit: str, into: str, merging: EpicMerge) -> Batch:
    """Return the merge as a batch of one, with a task for the epic, which is on no board."""
    stand_in = Task(id=_name(job.epic), status=Status.APPROVED, review_commit=commit)
    member = Member(stand_in, MergeInProgress(candidate=merging.candidate, expected=merging.expected))
    return Batch((member,), into)


def _message(state: State, job: EpicJob) -> str:
    """Return the commit message: for a landing with the list of the epic's tasks."""
    if job.step is EpicStep.UPDATE:
        return f"Update {job.branch} from {state.config.integration_branch}"
    landing = [task for task in targets.tasks_of(state, job.epic) if targets.is_to_land(task)]
    rows = [
        f"- {task.id}: {' '.join(task.description.split())[:72]} "
        f"({(task.review_commit or '')[:10]}, approved by {task.approved_by})"
        for task in landing
    ]
    return "\n".join([f"Land the epic {job.epic}: {count_noun(len(landing), 'task')}", "", *rows])


def _add_mend(crew: Crew, by: str, job: EpicJob, failure: str) -> None:
    """Add a task that makes the epic merge; after too many of them a person must look at it."""
    state = crew.board.read()
    task_id = epic_rules.mend_task_id(job, branch_moves.branch_tip(crew.git, job.branch) or "")
    names = archive.find_outcomes(crew.board, state, [task_id])
    candidates.delete_candidate(crew.git, _name(job.epic))
    if state.task(task_id) is not None or task_id in names or not epic_rules.may_mend(state, job.epic):
        _record_failure(crew, by, job, epic_rules.needs_person(job, failure))
        return
    document = crew.paths.root / epic_rules.mend_document(task_id)
    document.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(document, epic_rules.mend_text(job, failure, state).encode(), 0o644)
    fields = epic_rules.mend_fields(job, task_id, state)
    invocation = Invocation(now=crew.clock.now(), by=LIZA, detail=failure)
    with crew.change(merge_outcomes.merge_actor(by), "add", task_id) as tx:
        added = backlog.add(tx.state, [fields], RequestContext(invocation, frozenset({str(fields.spec_ref)})))
        tx.state = epic_rules.record_mend(added, job.epic)
    message = f"{job.branch} does not {job.step}: {failure.splitlines()[0]}; {task_id} was added"
    crew.append_alert_log([f"epic  {message}. Next: liza task show {task_id}"])


def _record_error(crew: Crew, by: str, job: EpicJob, error: Exception) -> bool:
    """Record a failure on the epic. Return whether it may be caused by the epic and was recorded."""
    if not merge_outcomes.is_task_error(crew, error):
        return False
    merge_outcomes.log_bug(crew.paths, error)
    _record_failure(crew, by, job, merge_outcomes.to_failure(error))
    return True


def _record_failure(crew: Crew, by: str, job: EpicJob, failure: MergeFailure) -> None:
    with crew.change(merge_outcomes.merge_actor(by), "merge failed", None) as tx:
        tx.state = epic_rules.schedule_retry(tx.state, job.epic, failure, crew.clock.now())
    with suppress(*merge_outcomes.CAUGHT_ERRORS):
        candidates.delete_candidate(crew.git, _name(job.epic))


def _drop(crew: Crew, by: str, epic: str) -> None:
    with crew.change(merge_outcomes.merge_actor(by), "candidate dropped", None) as tx:
        tx.state = epic_rules.drop_candidate(tx.state, epic)
    candidates.delete_candidate(crew.git, _name(epic))
