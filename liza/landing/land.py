"""land: bring integration to a branch of the person, or to a pull request, when the person says so."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from liza.board.contract import Board
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import branch_moves, git_refs, integration_tip
from liza.git.checkout_moves import MoveOutcome
from liza.git.integration_tip import find_landed
from liza.git.rules.note_commits import NOTES_REF
from liza.git.rules.push_address import LAND_COMMAND
from liza.git.rules.remote_urls import find_forge_repository, find_request_address, find_request_number
from liza.git.runner import Git
from liza.landing import landed_evidence, pull_requests, remotes
from liza.landing.remotes import Remote, Remotes
from liza.landing.rules import request_text
from liza.landing.rules.push_rules import PushFacts, PushStep, decide_push
from liza.landing.rules.request_feedback import track_request
from liza.landing.rules.request_text import RequestFacts
from liza.merging import candidate_tests as candidate
from liza.merging import drift, gate_log, merge_outcomes, statement_writer
from liza.merging.merge_lock import hold_merge_lock
from liza.merging.merge_recovery import recover_dead_merger
from liza.model import targets
from liza.model.errors import LizaError, Missing, Refused, UnknownId, UsageError
from liza.model.gates import GateRun, last_gate_runs
from liza.model.model import FINAL_STATUSES, State, Status, Task, TrackedRequest
from liza.model.statuses import TASK_WORDS, TaskWord
from liza.model.tested import describe_tested
from liza.model.value_classes import Value, replace
from liza.tasks import archive, shared_code
from liza.text.formats import count_noun

_NAME = "land"
"""Name of the landing in logs."""
MAX_NAMES: Final = 8
"""Maximum number of ids in a line; `--json` has all."""


class Landing(Value):
    """The branch that a person lands on, its tip, and the tip of integration.

    ``landed`` is the newest commit of integration whose work the branch has.
    """

    branch: str
    before: str
    integration: str
    tip: str
    landed: str


def describe_landing(crew: Crew, branch: str | None = None) -> dict[str, Any]:
    """Return what a landing on ``branch``, by default the current one, would bring. Nothing is changed or tested.

    ``ahead``: how many commits of integration have work that the branch does not have. ``behind``: how many commits of
    the branch integration does not have; only without any it can be landed. Raises Missing, Refused, UnknownId,
    GitFailed.
    """
    landing = find_landing(crew, branch)
    ahead, behind = len(_list_new(crew.git, landing)), _count_own(crew.git, landing)
    forward = _land_command(branch) if ahead else "liza status"
    return {
        "branch": landing.branch,
        "integration": landing.integration,
        "commit": landing.tip,
        "ahead": ahead,
        "behind": behind,
        "tasks": [task.id for task in landed_tasks(crew, landing)],
        "open": [task.id for task in crew.board.read().tasks if task.status is Status.APPROVED],
        "left": list_left(crew.board.read()),
        "next": f"liza sync {shlex.quote(landing.branch)}" if behind else forward,
    }


def land_merge(crew: Crew, branch: str | None = None, *, untested: bool = False) -> Result:
    """Move ``branch``, by default the current one, forward to integration, after all gates passed on that commit.

    The branch moves by compare-and-swap, together with its checkout. Raises Refused if it has commits that integration
    does not have, if a gate is red or, without ``untested``, says nothing about the commit, or if changed files are in
    the way; then the branch is unchanged. Also raises Missing, UnknownId, GitFailed.
    """
    by = require_person(crew, planner=False)
    with hold_merge_lock(crew) as locked:
        recover_dead_merger(locked, by)
        shared_code.follow_integration(locked)
        landing = find_landing(locked, branch)
        again = _land_command(branch, untested=untested)
        own = _count_own(locked.git, landing)
        if landing.landed == landing.tip:
            message = f"{landing.branch} has all of {landing.integration} already"
            message = _with_evidence(locked, landing, message)
            step = f"liza sync {shlex.quote(landing.branch)}" if own else "liza status"
            details = _details(locked.board, landing, [], tested=None)
            return Result("unchanged", None, None, step, details, _with_left(message, details))
        if own:
            missing = f"{landing.branch} has commits that {landing.integration} does not have"
            step = f"liza sync {shlex.quote(landing.branch)} && {again}"
            raise Refused(f"{missing}: they were never tested together", step)
        new_tasks = landed_tasks(locked, landing)
        tasks = [task.id for task in new_tasks]
        result = run_landing_gates(locked, landing, untested=untested)
        _advance(locked.git, landing, again)
        integration_tip.record_landed_branch(locked.paths, landing.branch)
        with suppress(*merge_outcomes.CAUGHT_ERRORS):
            integration_tip.record_landing(locked.git, landing.branch, landing.tip)
            locked.append_alert_log([f"landed  {by} brought {landing.tip[:10]} to {landing.branch}. Next: git log"])
    how = result.how
    word = describe_tested(how.tested, how.remarks)
    message = f"{landing.branch} is at {landing.tip[:10]} with {count_noun(len(tasks), 'task')}, {word}"
    landed = replace(landing, before=landing.tip, landed=landing.tip)
    message = _with_evidence(crew, landed, message, tasks=new_tasks, how_tested=word)
    details = {**_details(crew.board, landing, tasks, tested=how.tested), "remarks": how.remarks}
    step = f"git log {git_refs.type_revision(crew.git, landing.branch)}"
    return Result("changed", None, None, step, details, _with_left(message, details))


def _with_evidence(
    crew: Crew, landing: Landing, message: str, *, tasks: Sequence[Task] = (), how_tested: str = ""
) -> str:
    """Write which commits a branch of the person has now; also what a killed landing left out. Return the message, with
    a line about a failure: the branch has moved all the same."""
    git, commit = crew.git, landing.before
    trees = git.out("rev-parse", f"{commit}^{{tree}}", f"{landing.tip}^{{tree}}").split()
    try:
        statement_writer.complete(crew, tasks)
        # A squash has the files of the tip, and is another commit.
        if len(set(trees)) == 1:
            statement_writer.write_landing(crew, landing.branch, commit, landing.tip, how_tested)
    except merge_outcomes.CAUGHT_ERRORS as error:
        hint = error.hint if isinstance(error, LizaError) else ""
        return f"{message}\nits evidence is not written yet: {error}. Next: {hint or 'liza doctor --fix'}"
    return message


def _with_left(message: str, details: Mapping[str, Any]) -> str:
    return "\n".join([message, *describe_left(details["left"])])


APPROVED: Final = "approved and not merged yet"
HELD: Final = "held"
IN_EPIC: Final = "merged into an epic that has not landed"


def list_left(state: State) -> list[dict[str, Any]]:
    """Return the tasks that a landing leaves out, by what they wait for: ``state``, ``count`` and ``tasks``."""
    groups: dict[str, list[str]] = {name: [] for name in (APPROVED, HELD, IN_EPIC, *TaskWord)}
    for task in state.tasks:
        if targets.is_to_land(task):
            groups[IN_EPIC].append(task.id)
        elif task.status is Status.APPROVED:
            groups[APPROVED if task.merge_hold is None else HELD].append(task.id)
        elif task.status not in FINAL_STATUSES:
            groups[TASK_WORDS[task.status]].append(task.id)
    return [{"state": str(name), "count": len(ids), "tasks": ids} for name, ids in groups.items() if ids]


def describe_left(left: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each group of ``list_left``."""
    return [f"not landed: {group['count']} {group['state']}: {_join_first(group['tasks'])}" for group in left]


def _join_first(ids: Sequence[str]) -> str:
    return ", ".join(ids[:MAX_NAMES]) + (f" and {len(ids) - MAX_NAMES} more" if len(ids) > MAX_NAMES else "")


def _land_command(branch: str | None, *, untested: bool = False) -> str:
    words = ["liza", "land", "--merge", *([branch] if branch else []), *(["--untested"] if untested else [])]
    return shlex.join(words)


def _details(board: Board, landing: Landing, tasks: list[str], *, tested: bool | None) -> dict[str, Any]:
    return {
        "branch": landing.branch,
        "before": landing.before,
        "commit": landing.tip,
        "tasks": tasks,
        "tested": tested,
        "left": list_left(board.read()),
    }


def find_landing(crew: Crew, branch: str | None) -> Landing:
    """Return what is landed on ``branch``, by default the current one.

    Raises Missing, Refused, UnknownId, GitFailed.
    """
    state = crew.board.read()
    integration = state.config.integration_branch
    tip = integration_tip.require_integration(crew.git, state)
    if branch is None:
        branch = git_refs.current_branch(crew.git)
        if branch is None or branch == integration:
            which = f"{integration} itself is" if branch else "no branch is"
            step = git_refs.branch_command(crew.git, "liza land", integration)
            raise Refused(f"{which} checked out: name the branch to land on", step)
    before = branch_moves.branch_tip(crew.git, branch)
    if before is None:
        step = git_refs.branch_command(crew.git, "liza land", integration)
        raise UnknownId(f"there is no branch {branch!r} to land on", step)
    if branch == integration or targets.is_crew_branch(branch):
        step = git_refs.branch_command(crew.git, "liza land", integration)
        raise Refused(f"{branch} is a branch of the crew: land on one of yours", step)
    moved = drift.find_integration_drift(crew)
    if moved is not None:
        raise Refused(moved.message, drift.recovery_commands(crew.git, moved))
    return Landing(branch, before, integration, tip, find_landed(crew.git, before, tip))


def _list_new(git: Git, landing: Landing) -> list[str]:
    """Return the commits of integration whose work the branch does not have."""
    return git.out("rev-list", landing.tip, "--not", landing.before, landing.landed).split()


def _count_own(git: Git, landing: Landing) -> int:
    """Return how many commits the branch has that integration does not have."""
    return int(git.out("rev-list", "--count", f"{landing.tip}..{landing.before}"))


def landed_tasks(crew: Crew, landing: Landing) -> list[Task]:
    """Return the merged tasks whose work the branch does not have yet, archived ones first. Raises LizaError."""
    commits, state = set(_list_new(crew.git, landing)), crew.board.read()
    on_board = [task for task in state.tasks if task.merge_commit in commits and task.status is Status.MERGED]
    return [*archive.find_merged(crew.board, state, commits), *on_board]


def run_landing_gates(crew: Crew, landing: Landing, *, untested: bool = False) -> candidate.CandidateResult:
    """Run all gates on the tip of integration. The caller holds the merge lock.

    Raises Refused if one is red or, without ``untested``, says nothing about the commit.
    """
    run = candidate.CandidateRun(
        _NAME, landing.tip, landing.tip, landing.integration, 0, replaces=landing.before, always=untested
    )
    result = candidate.run_candidate_tests(crew, run)
    if result.moved_refs:
        crew.append_alert_log([f"tests_moved_refs  {result.told('the landing')}. Next: git reflog"])
    log = f"less {shlex.quote(str(crew.paths.logs / f'merge-{_NAME}.log'))}"
    if result.rewound_from is not None:
        restored = merge_outcomes.restore_branch(crew.git, landing.integration, result.rewound_from)
        raise Refused(f"nothing was landed: {result.told('the landing')}; {restored}", log)
    if result.failure is not None:
        raise Refused(f"nothing was landed: {landing.integration} is red: {result.failure}", log)
    why = result.how.untested
    if why is not None and not untested:
        hint = why.hint or "liza land --merge --untested"
        raise Refused(f"nothing was landed: {landing.integration} is untested: {why.text}", hint)
    return result


def _advance(git: Git, landing: Landing, again: str) -> None:
    """Move the branch and its checkout. Raises Refused if it has moved, or if changed files are in the way."""
    advance = branch_moves.advance_branch(git, landing.branch, landing.tip, landing.before)
    if advance.outcome is MoveOutcome.WAITING:
        files, step = branch_moves.describe_blocking(advance, again)
        raise Refused(f"nothing was landed: {landing.branch} is checked out, and {files}", step)
    if advance.outcome is MoveOutcome.LOST:
        raise Refused(f"nothing was landed: {landing.branch} moved while the tests ran", again)


class OpenedRequest(Value):
    """What became of the pull request: ``opened``, ``updated``, or ``by hand`` if no program can open it.

    ``number`` is 0 if it is not known.
    """

    action: str
    url: str | None
    number: int = 0


class PushPreview(Value):
    """What ``land_pr`` would push, as a sentence for people, and the URL that it would push to."""

    text: str
    address: str


def land_pr(
    crew: Crew,
    branch: str | None = None,
    head: str | None = None,
    origin: str | None = None,
    *,
    untested: bool = False,
) -> Result:
    """Push the tip of integration to ``head`` of the push remote after its gates passed, and open a pull request
    against ``branch`` of the project; again: update both. By default ``branch`` is the current one, and ``head`` is
    named as integration.

    ``origin``: the URL of the push remote that the person accepts; None: the one that was accepted. ``untested``: also
    if the gates say nothing about the commit. A commit that others pushed to ``head`` is not overwritten. A run that
    was killed is completed by the next one.
    Raises Refused, also for an address that no person has accepted, UnknownId, UsageError, Missing, GitFailed.
    """
    by = require_person(crew, planner=False)
    with hold_merge_lock(crew) as locked:
        recover_dead_merger(locked, by)
        shared_code.follow_integration(locked)
        landing = find_landing(locked, branch)
    if origin is not None:
        remotes.accept_origin(crew, origin, landing.branch)
    places = remotes.find_accepted_remotes(crew, landing.branch)
    push, project = places.push, places.project
    head = _check_head(crew.git, head or landing.integration, landing, push)
    tips = push.read_branches(head, landing.branch)
    bases = tips if project is push else project.read_branches(landing.branch)
    if landing.branch not in bases:
        step = shlex.join(["git", "push", project.name, f"refs/heads/{landing.branch}"])
        raise Refused(f"{project.name} has no branch {landing.branch} to land on", step)
    landing = _from_remote_base(crew.git, landing, project, bases[landing.branch])
    is_synced = git_refs.is_contained(crew.git, landing.before, landing.tip)
    sync_command = project.fetch_and_sync_command(landing.branch)
    if landing.landed == landing.tip:
        message = f"{landing.branch} of {project.name} has all of {landing.integration} already"
        message = _with_evidence(crew, landing, message)
        message = "\n".join(filter(None, (message, statement_writer.share_or_report(crew, push))))
        step = "liza status" if is_synced or landing.before == landing.tip else sync_command
        return Result("unchanged", None, None, step, {"branch": landing.branch, "head": head}, message)
    printed = _push(crew, push, landing, head, tips.get(head), untested=untested)
    with suppress(*merge_outcomes.CAUGHT_ERRORS):
        if printed is not None:
            crew.append_alert_log([f"pushed  {by} pushed {landing.tip[:10]} to {head} of {push.name}. Next: git log"])
    unshared = _share_evidence(crew, push, landed_tasks(crew, landing))
    facts = _gather_facts(crew, landing)
    opened = _open_request(places, landing, head, facts, printed or "")
    _track(crew, by, project, landing, head, opened)
    integration_tip.record_landed_branch(crew.paths, landing.branch)
    result = _result(places, landing, head, facts, opened, is_pushed=printed is not None)
    result = replace(result, message="\n".join(filter(None, (result.message, unshared))))
    if landing.landed == landing.before or is_synced:
        return result
    earlier = f"{landing.branch} of {project.name} has earlier tasks as other commits: this request shows them again"
    return replace(result, message=f"{result.message}\n{earlier}. Next: {sync_command} && liza land --pr")


def preview_push(crew: Crew, branch: str | None = None, head: str | None = None) -> PushPreview:
    """Return what ``land_pr`` would push, and where to. Nothing is sent. Raises as ``land_pr`` does, but not for an
    address that no person has accepted: the text says so.
    """
    require_person(crew, planner=False)
    landing = find_landing(crew, branch)
    places, change = remotes.inspect_remotes(crew, landing.branch)
    push = places.push
    head = _check_head(crew.git, head or landing.integration, landing, push)
    note = "" if change is None else f" ({change.message})"
    where = "" if places.project is push else f", for a pull request to {places.project.project_name}"
    what = f"{landing.integration} at {landing.tip[:10]} with {NOTES_REF}"
    text = f"{what} to {head} of {push.address}{where}{note}"
    return PushPreview(text, push.address)


def _check_head(git: Git, head: str, landing: Landing, push: Remote) -> str:
    free = git_refs.find_free_name(landing.integration, [landing.branch, *git_refs.list_branches(git)])
    step = f"{LAND_COMMAND} --head {shlex.quote(free)}"
    if head == landing.branch or not targets.is_branch_name(head):
        raise UsageError(f"{head!r} cannot be the branch of the pull request", step)
    is_persons = head != landing.integration and branch_moves.branch_tip(git, head) is not None
    if is_persons or head == remotes.find_default_branch(push):
        message = f"{head} is a branch of people, and a pull request needs one of its own"
        raise UsageError(message, step)
    return head


def _from_remote_base(git: Git, landing: Landing, project: Remote, base: str) -> Landing:
    """Compare with the branch of the project, whose tip is ``base``: it may have what was squashed there."""
    if not git_refs.has_commit(git, base):
        project.fetch_commit(landing.branch)
    return replace(landing, before=base, landed=find_landed(git, base, landing.tip))


def _push(
    crew: Crew, remote: Remote, landing: Landing, head: str, remote_tip: str | None, *, untested: bool
) -> str | None:
    """Test the tip and push it; return what the remote printed, None if the remote has it already."""
    is_contained = remote_tip is not None and git_refs.is_contained(crew.git, remote_tip, landing.tip)
    step = decide_push(PushFacts(landing.tip, remote_tip, remote.last_pushed(head), is_contained))
    if step is PushStep.NOTHING:
        return None
    if step is PushStep.REFUSE:
        others = f"{head} of {remote.name} is at {str(remote_tip)[:10]}, which others pushed"
        message = f"{others} and {landing.integration} does not have: nothing was pushed"
        raise Refused(message, remote.fetch_and_sync_command(head))
    with hold_merge_lock(crew) as locked:
        result = run_landing_gates(locked, landing, untested=untested)
        gate_log.append_runs(locked.paths, result.runs)
    # Without the merge lock: a slow network must not stop merges. The tested commit is pushed, wherever integration is.
    return remote.push_commit(landing.tip, head, remote_tip)


def _share_evidence(crew: Crew, remote: Remote, tasks: Sequence[Task]) -> str:
    """Write what is missing of the notes, and push them; return a sentence about a failure: the commits are pushed."""
    with suppress(*merge_outcomes.CAUGHT_ERRORS):
        statement_writer.complete(crew, tasks)
    return statement_writer.share_or_report(crew, remote)


def _gather_facts(crew: Crew, landing: Landing) -> RequestFacts:
    runs: tuple[GateRun, ...] = last_gate_runs(gate_log.refresh_runs(crew), landing.tip)
    goal = crew.board.read().goal.description
    tasks = tuple(landed_tasks(crew, landing))
    merges = [task.merge_commit for task in tasks if task.merge_commit is not None]
    sheet = landed_evidence.render_commits(crew.git, landing.branch, landing.tip, merges)
    return RequestFacts(goal, landing.tip, tasks, runs, sheet)


def _open_request(places: Remotes, landing: Landing, head: str, facts: RequestFacts, printed: str) -> OpenedRequest:
    host = pull_requests.find_request_host(places)
    if host is None:
        return OpenedRequest("by hand", find_request_address(printed))
    section = request_text.compose_body(facts)
    try:
        request = host.find_request(head, landing.branch)
        if request is None:
            url = host.open_request(head, landing.branch, request_text.compose_title(facts), section)
            return OpenedRequest("opened", url, find_request_number(url))
        host.update_request(request.number, request_text.replace_section(request.body, section))
    except Missing as error:
        name = places.push.name
        pushed = f"{landing.tip[:10]} is pushed to {head} of {name}, but there is no pull request for it yet"
        raise Missing(f"{pushed}: {error.message}", f"{error.hint} && liza land --pr") from error
    return OpenedRequest("updated", request.url, request.number)


def _track(crew: Crew, by: str, remote: Remote, landing: Landing, head: str, opened: OpenedRequest) -> None:
    """Write the pull request to the board: `liza sync --pr` and `liza up` read it then."""
    repository = find_forge_repository(remote.urls)
    if not opened.number or repository is None:
        return
    request = TrackedRequest(
        number=opened.number,
        url=opened.url or "",
        repository=repository.full_name,
        head=head,
        base=landing.branch,
        since=landing.before,
    )
    with crew.change(by, "land") as tx:
        tx.state = track_request(tx.state, request, landing.tip)


def _result(
    places: Remotes, landing: Landing, head: str, facts: RequestFacts, opened: OpenedRequest, *, is_pushed: bool
) -> Result:
    remote, number = places.push, count_noun(len(facts.tasks), "task")
    details = {
        "branch": landing.branch,
        "head": head,
        "commit": landing.tip,
        "pushed": is_pushed,
        "remote": remote.address,
        "tasks": [task.id for task in facts.tasks],
        "tested": bool(facts.gates),
        "request": {"action": opened.action, "url": opened.url},
    }
    pushed = "is pushed to" if is_pushed else "is already at"
    message = f"{landing.tip[:10]} with {number} {pushed} {head} of {remote.name} ({remote.address})"
    if opened.action == "by hand":
        message = f"{message}; open the pull request there"
        return Result("changed", None, None, opened.url or places.project.address, details, message)
    message = f"{message}; the pull request is {opened.action}: {opened.url}"
    return Result("changed", None, None, f"{opened.url}", details, message)
