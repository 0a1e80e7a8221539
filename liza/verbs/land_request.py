"""land --pr: push integration to a branch of the remote, and open or update its pull request."""

from __future__ import annotations

from contextlib import suppress

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.landing import accepted_origin, pull_requests, remote_branches
from liza.crew.landing.remote_branches import REMOTE, Remote
from liza.crew.merging import gate_log, merge_outcomes
from liza.crew.merging.dead_mergers import recover_dead_merger
from liza.crew.merging.merge_lock import hold_merge_lock
from liza.crew.result import Result
from liza.repo.merge import merge_refs, merges
from liza.rules.errors import Missing, Refused, UsageError
from liza.rules.formatting.counts import count_noun
from liza.rules.landing import request_text
from liza.rules.landing.push_address import LAND_COMMAND
from liza.rules.landing.push_rules import PushFacts, PushStep, decide_push
from liza.rules.landing.remote_urls import find_forge_repository, find_request_address, find_request_number
from liza.rules.landing.request_feedback import track_request
from liza.rules.landing.request_text import RequestFacts
from liza.rules.merging.gates import GateRun, last_gate_runs
from liza.rules.model import TrackedRequest
from liza.rules.value_classes import Value, replace
from liza.verbs.land import Landing, find_landing, landed_tasks, run_landing_gates


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
    """Push the tip of integration to ``head`` of origin after its gates passed, and open a pull request against
    ``branch``; again: update both. By default ``branch`` is the current one, and ``head`` is named as integration.

    ``origin``: the URL of origin that the person accepts; None: the one that was accepted. ``untested``: also if the
    gates say nothing about the commit. A commit that others pushed to ``head`` is not overwritten. A run that was
    killed is completed by the next one.
    Raises Refused, also for an address that no person has accepted, UnknownId, UsageError, Missing, GitFailed.
    """
    by = require_person(crew, planner=False)
    if origin is not None:
        accepted_origin.accept_origin(crew, origin, LAND_COMMAND)
    remote = accepted_origin.find_accepted_origin(crew, LAND_COMMAND)
    with hold_merge_lock(crew) as locked:
        recover_dead_merger(locked, by)
        landing = find_landing(locked, branch)
    head = _check_head(crew, head or landing.integration, landing)
    tips = remote.read_branches(head, landing.branch)
    if landing.branch not in tips:
        raise Refused(f"{REMOTE} has no branch {landing.branch} to land on", f"git push {REMOTE} {landing.branch}")
    landing = _from_remote_base(crew, landing, tips[landing.branch])
    if merge_refs.is_contained(crew.git, landing.tip, landing.before):
        message = f"{landing.branch} of {REMOTE} has all of {landing.integration} already"
        return Result("unchanged", None, None, "liza status", {"branch": landing.branch, "head": head}, message)
    printed = _push(crew, remote, landing, head, tips.get(head), untested=untested)
    with suppress(*merge_outcomes.CAUGHT_ERRORS):
        if printed is not None:
            crew.append_alert_log([f"pushed  {by} pushed {landing.tip[:10]} to {head} of {REMOTE}. Next: git log"])
    facts = _gather_facts(crew, landing)
    opened = _open_request(remote, landing, head, facts, printed or "")
    _track(crew, by, remote, landing, head, opened)
    return _result(remote, landing, head, facts, opened, is_pushed=printed is not None)


def preview_push(crew: Crew, branch: str | None = None, head: str | None = None) -> PushPreview:
    """Return what ``land_pr`` would push, and where to. Nothing is sent. Raises as ``land_pr`` does, but not for an
    address that no person has accepted: the text says so.
    """
    require_person(crew, planner=False)
    landing = find_landing(crew, branch)
    head = _check_head(crew, head or landing.integration, landing)
    remote, change = accepted_origin.inspect_origin(crew, LAND_COMMAND)
    note = "" if change is None else f" ({change.message})"
    text = f"{landing.integration} at {landing.tip[:10]} to {head} of {remote.address}{note}"
    return PushPreview(text, remote.address)


def _check_head(crew: Crew, head: str, landing: Landing) -> str:
    if head == landing.branch or crew.git.run("check-ref-format", "--branch", head).code != 0:
        raise UsageError(f"{head!r} cannot be the branch of the pull request", "liza land --pr --head NAME")
    is_persons = head != landing.integration and merges.branch_tip(crew.git, head) is not None
    if is_persons or head == remote_branches.find_default_branch(crew.git):
        message = f"{head} is a branch of people, and a pull request needs one of its own"
        raise UsageError(message, "liza land --pr --head NAME")
    return head


def _from_remote_base(crew: Crew, landing: Landing, base: str) -> Landing:
    """Compare with the remote's branch if its commit was fetched, else with the person's."""
    return replace(landing, before=base) if merge_refs.has_commit(crew.git, base) else landing


def _push(
    crew: Crew, remote: Remote, landing: Landing, head: str, remote_tip: str | None, *, untested: bool
) -> str | None:
    """Test the tip and push it; return what the remote printed, None if the remote has it already."""
    is_contained = remote_tip is not None and merge_refs.is_contained(crew.git, remote_tip, landing.tip)
    step = decide_push(PushFacts(landing.tip, remote_tip, remote.last_pushed(head), is_contained))
    if step is PushStep.NOTHING:
        return None
    if step is PushStep.REFUSE:
        others = f"{head} of {REMOTE} is at {str(remote_tip)[:10]}, which others pushed"
        message = f"{others} and {landing.integration} does not have: nothing was pushed"
        raise Refused(message, remote_branches.fetch_and_sync_command(head))
    with hold_merge_lock(crew) as locked:
        result = run_landing_gates(locked, landing, untested=untested)
        gate_log.append_runs(locked.paths, result.runs)
    # Without the merge lock: a slow network must not stop merges. The tested commit is pushed, wherever integration is.
    return remote.push_commit(landing.tip, head, remote_tip)


def _gather_facts(crew: Crew, landing: Landing) -> RequestFacts:
    runs: tuple[GateRun, ...] = last_gate_runs(gate_log.read_runs(crew.paths), landing.tip)
    goal = crew.board.read().goal.description
    return RequestFacts(goal, landing.tip, tuple(landed_tasks(crew, landing)), runs)


def _open_request(remote: Remote, landing: Landing, head: str, facts: RequestFacts, printed: str) -> OpenedRequest:
    host = pull_requests.find_request_host(remote)
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
        pushed = f"{landing.tip[:10]} is pushed to {head} of {REMOTE}, but there is no pull request for it yet"
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
    remote: Remote, landing: Landing, head: str, facts: RequestFacts, opened: OpenedRequest, *, is_pushed: bool
) -> Result:
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
    message = (
        f"{landing.tip[:10]} with {count_noun(len(facts.tasks), 'task')} {pushed} {head} of {REMOTE} ({remote.address})"
    )
    if opened.action == "by hand":
        where = opened.url or f"at {remote.address}"
        return Result("changed", None, None, f"open the pull request: {where}", details, message)
    message = f"{message}; the pull request is {opened.action}: {opened.url}"
    return Result("changed", None, None, f"{opened.url}", details, message)
