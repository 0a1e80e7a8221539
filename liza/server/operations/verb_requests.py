"""Requests and answer of the verbs that end, hand over or continue the work of a run."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from liza.rules.governance.line_comments import MAX_COMMENT_TEXT, MAX_COMMENTS, MAX_LINE
from liza.rules.tasks.claims import MAX_EXTENSION, MAX_REASON
from liza.worker.api_answers import WorkerAnswer
from liza.worker.api_requests import WorkerRequest

MAX_TEXT = 64_000
"""Maximum length of a text, in characters."""
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]
Line = Annotated[str, msgspec.Meta(max_length=2_000)]
Lines = Annotated[tuple[Line, ...], msgspec.Meta(max_length=100)]


class VerdictWord(StrEnum):
    """The decision of a reviewer."""

    APPROVE = "approve"
    REJECT = "reject"


class ExitCode(StrEnum):
    """Closing code of a run: ``0`` done, ``1`` failed, ``42`` start a new session."""

    DONE = "0"
    FAILED = "1"
    RESTART = "42"


class SubmitRequest(WorkerRequest, frozen=True, kw_only=True):
    """Submit the committed work of the run's task for review. It has no fields."""


class HandoffRequest(WorkerRequest, frozen=True, kw_only=True):
    """Hand the work over to a new session. ``done``: for a planner, planning is finished."""

    summary: Text
    next_action: Line = ""
    approach: Line | None = None
    blockers: Line | None = None
    files: Lines = ()
    steps: Lines = ()
    done: bool = False


class BlockRequest(WorkerRequest, frozen=True, kw_only=True):
    """Stop the task with one to three questions for a person."""

    reason: Text
    questions: Annotated[tuple[Line, ...], msgspec.Meta(min_length=1, max_length=3)]


class VerdictComment(WorkerRequest, frozen=True, kw_only=True):
    """A comment of a rejection on a line, which counts from 1, of a file at the reviewed commit.

    ``path`` is relative to the root of the repository.
    """

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
    line: Annotated[int, msgspec.Meta(ge=1, le=MAX_LINE)]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_COMMENT_TEXT)]


class VerdictRequest(WorkerRequest, frozen=True, kw_only=True):
    """Decide the review. ``reason``: what was run and seen, or what is wrong. ``comments``: only with a rejection."""

    verdict: VerdictWord
    reason: Text
    comments: Annotated[tuple[VerdictComment, ...], msgspec.Meta(max_length=MAX_COMMENTS)] = ()


class HeartbeatRequest(WorkerRequest, frozen=True, kw_only=True):
    """Renew the lease of the run; ``extend_seconds``: extend it for a long step, which needs a ``reason``."""

    extend_seconds: Annotated[int, msgspec.Meta(ge=1, le=MAX_EXTENSION)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON)] = ""


class ReportRequest(WorkerRequest, frozen=True, kw_only=True):
    """Record a fact that others must know. The run continues."""

    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    text: Text
    details: dict[Annotated[str, msgspec.Meta(max_length=200)], Line] = msgspec.field(default_factory=dict)


class ExitRequest(WorkerRequest, frozen=True, kw_only=True):
    """Record the result of the run. It overrides the exit code of its process."""

    code: ExitCode


class VerbAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """As the command line prints it with `--json`. ``result`` is ``changed`` or ``unchanged``; ``next`` is what to do
    now."""

    result: str
    task: str | None
    status: str | None
    next: str
    message: str = ""
    details: dict[str, Any] = msgspec.field(default_factory=dict)
