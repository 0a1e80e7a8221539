"""The present commits of submitted pull requests, as a crew that runs saw them at origin last.

They are read for `status` from one small file. A request is only told: its next commit is submitted by a person.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from liza.crew.crew import Crew
from liza.git.rules.remote_urls import Forge, RemoteRepository, find_forge_repository
from liza.landing.remotes import find_project, find_remote
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.errors import LizaError
from liza.model.model import State, Submission
from liza.model.paths import Paths
from liza.model.value_classes import Value
from liza.programs.session.run_directory import read_struct
from liza.system import atomic
from liza.tasks.rules import submissions


class RequestTip(Value):
    """The commit that a request is at, seen while ``submitted`` was its submitted commit."""

    source: str
    tip: str
    submitted: str


class RequestTips(Value):
    """What was seen at origin last."""

    tips: tuple[RequestTip, ...] = ()


def head_ref(repository: RemoteRepository | None, number: int) -> str:
    """Return the ref that has the head of a request at its forge."""
    is_gitlab = repository is not None and repository.forge is Forge.GITLAB
    return f"refs/merge-requests/{number}/head" if is_gitlab else f"refs/pull/{number}/head"


def read_tips(paths: Paths, state: State) -> dict[str, str | None]:
    """Return the commits of submitted requests, by ``name_source``, for the commits that are submitted now."""
    record = None
    # A damaged record only hides an alarm; the next reading writes it again.
    with suppress(LizaError, OSError):
        record = read_struct(paths.request_tips, RequestTips)
    submitted = _find_submitted(state)
    tips = () if record is None else record.tips
    return {tip.source: tip.tip for tip in tips if submitted.get(tip.source) == tip.submitted}


def find_moved(crew: Crew, state: State) -> tuple[Alarm, ...]:
    """Read the submitted requests at origin, record where they are, and return those that moved since the last time.

    Raises Missing, Refused, GitFailed.
    """
    submitted = _find_submitted(state)
    if not submitted:
        return ()
    remote = find_project(find_remote(crew.git))
    repository = find_forge_repository(remote.urls)
    refs = {submissions.name_source(each): head_ref(repository, each.request) for each, _ in _list_requests(state)}
    present = remote.list_refs(*refs.values())
    before = read_tips(crew.paths, state)
    tips = {source: present[ref] for source, ref in refs.items() if ref in present}
    record = RequestTips(tuple(RequestTip(source, tip, submitted[source]) for source, tip in tips.items()))
    crew.paths.request_tips.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(crew.paths.request_tips, msgspec.json.encode(record) + b"\n", sync=False)
    new: Mapping[str, str | None] = {source: tip for source, tip in tips.items() if before.get(source) != tip}
    return tuple(alarm for alarm in submissions.submission_alarms(state, new) if alarm.kind == AlarmKind.BRANCH_MOVED)


def _find_submitted(state: State) -> dict[str, str]:
    return {submissions.name_source(submission): commit for submission, commit in _list_requests(state)}


def _list_requests(state: State) -> Iterator[tuple[Submission, str]]:
    """Yield the submitted requests of open tasks, with their submitted commits."""
    for task in submissions.open_submissions(state):
        if task.submission is not None and task.submission.request:
            yield task.submission, task.review_commit or ""
