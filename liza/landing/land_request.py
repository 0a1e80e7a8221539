"""land --pr: push integration to a branch of the push remote, and open or update its pull request in the project."""

from __future__ import annotations

import shlex
from contextlib import suppress

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import git_refs, merges
from liza.git.integration_tip import find_landed
from liza.landing import accepted_origin, pull_requests, remote_branches
from liza.landing.accepted_origin import Remotes
from liza.landing.land import Landing, find_landing, landed_tasks, run_landing_gates
from liza.landing.remote_branches import Remote
from liza.landing.rules import request_text
from liza.landing.rules.push_address import LAND_COMMAND
from liza.landing.rules.push_rules import PushFacts, PushStep, decide_push
from liza.landing.rules.remote_urls import find_forge_repository, find_request_address, find_request_number
from liza.landing.rules.request_feedback import track_request
from liza.landing.rules.request_text import RequestFacts
from liza.merging import gate_log, merge_outcomes
from liza.merging.merge_lock import hold_merge_lock, recover_dead_merger
from liza.model import targets
from liza.model.errors import Missing, Refused, UsageError
from liza.model.gates import GateRun, last_gate_runs
from liza.model.model import TrackedRequest
from liza.model.value_classes import Value, replace
from liza.text.formats import count_noun


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
        landing = find_landing(locked, branch)
    if origin is not None:
        accepted_origin.accept_origin(crew, origin, landing.branch)
    remotes = accepted_origin.find_accepted_remotes(crew, landing.branch)
    push, project = remotes.push, remotes.project
    head = _check_head(crew, head or landing.integration, landing, push)
    tips = push.read_branches(head, landing.branch)
    excluding = git_refs.find_excluding(head, tips)
    if excluding is not None:
        free = shlex.quote(git_refs.find_free_name(head, {*tips, *git_refs.list_branches(crew.git)}))
        message = f"the branch {excluding} of {push.name} is in the way: git cannot have {head} beside it"
        raise Refused(message, f"{LAND_COMMAND} --head {free}")
    bases = tips if project is push else project.read_branches(landing.branch)
    if landing.branch not in bases:
        step = shlex.join(["git", "push", project.name, f"refs/heads/{landing.branch}"])
        raise Refused(f"{project.name} has no branch {landing.branch} to land on", step)
    landing = _from_remote_base(crew, landing, project, bases[landing.branch])
    is_synced = git_refs.is_contained(crew.git, landing.before, landing.tip)
    sync_command = project.fetch_and_sync_command(landing.branch)
    if landing.landed == landing.tip:
        message = f"{landing.branch} of {project.name} has all of {landing.integration} already"
        step = "liza status" if is_synced or landing.before == landing.tip else sync_command
        return Result("unchanged", None, None, step, {"branch": landing.branch, "head": head}, message)
    printed = _push(crew, push, landing, head, tips.get(head), untested=untested)
    with suppress(*merge_outcomes.CAUGHT_ERRORS):
        if printed is not None:
            crew.append_alert_log([f"pushed  {by} pushed {landing.tip[:10]} to {head} of {push.name}. Next: git log"])
    facts = _gather_facts(crew, landing)
    opened = _open_request(remotes, landing, head, facts, printed or "")
    _track(crew, by, project, landing, head, opened)
    result = _result(remotes, landing, head, facts, opened, is_pushed=printed is not None)
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
    remotes, change = accepted_origin.inspect_remotes(crew, landing.branch)
    push = remotes.push
    head = _check_head(crew, head or landing.integration, landing, push)
    note = "" if change is None else f" ({change.message})"
    where = "" if remotes.project is push else f", for a pull request to {remotes.project.project_name}"
    text = f"{landing.integration} at {landing.tip[:10]} to {head} of {push.address}{where}{note}"
    return PushPreview(text, push.address)


def _check_head(crew: Crew, head: str, landing: Landing, push: Remote) -> str:
    free = git_refs.find_free_name(landing.integration, [landing.branch, *git_refs.list_branches(crew.git)])
    step = f"{LAND_COMMAND} --head {shlex.quote(free)}"
    if head == landing.branch or not targets.is_branch_name(head):
        raise UsageError(f"{head!r} cannot be the branch of the pull request", step)
    is_persons = head != landing.integration and merges.branch_tip(crew.git, head) is not None
    if is_persons or head == remote_branches.find_default_branch(push):
        message = f"{head} is a branch of people, and a pull request needs one of its own"
        raise UsageError(message, step)
    return head


def _from_remote_base(crew: Crew, landing: Landing, project: Remote, base: str) -> Landing:
    """Compare with the branch of the project, whose tip is ``base``: it may have what was squashed there."""
    if not git_refs.has_commit(crew.git, base):
        project.fetch_commit(landing.branch)
    return replace(landing, before=base, landed=find_landed(crew.git, base, landing.tip))


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


def _gather_facts(crew: Crew, landing: Landing) -> RequestFacts:
    runs: tuple[GateRun, ...] = last_gate_runs(gate_log.read_runs(crew.paths), landing.tip)
    goal = crew.board.read().goal.description
    return RequestFacts(goal, landing.tip, tuple(landed_tasks(crew, landing)), runs)


def _open_request(remotes: Remotes, landing: Landing, head: str, facts: RequestFacts, printed: str) -> OpenedRequest:
    host = pull_requests.find_request_host(remotes)
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
        name = remotes.push.name
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
    remotes: Remotes, landing: Landing, head: str, facts: RequestFacts, opened: OpenedRequest, *, is_pushed: bool
) -> Result:
    remote, number = remotes.push, count_noun(len(facts.tasks), "task")
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
        return Result("changed", None, None, opened.url or remotes.project.address, details, message)
    message = f"{message}; the pull request is {opened.action}: {opened.url}"
    return Result("changed", None, None, f"{opened.url}", details, message)
