"""The operations with which a run ends, hands over or continues its work: the verbs of the command line.

The request of a verb is declared beside the function of the verb.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from liza.api.api_answers import WorkerAnswer
from liza.api.api_requests import Text, WorkerRequest
from liza.api.callers import Access
from liza.api.calls import Call, Operation
from liza.breaker.report import ReportRequest, report
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.tasks.block import BlockRequest, block
from liza.tasks.exit import exit_run
from liza.tasks.handoff import HandoffRequest, handoff
from liza.tasks.heartbeat import HeartbeatRequest, heartbeat
from liza.tasks.rules.line_comments import MAX_COMMENT_TEXT, MAX_COMMENTS, MAX_LINE
from liza.tasks.submit import submit
from liza.tasks.verdict import verdict

VERDICT = "verdict"


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


class VerdictComment(WorkerRequest, frozen=True, kw_only=True):
    """A comment of a rejection on a line, which counts from 1, of a file at the reviewed commit.

    ``path`` is relative to the root of the repository.
    """

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
    line: Annotated[int, msgspec.Meta(ge=1, le=MAX_LINE)]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_COMMENT_TEXT)]


class VerdictRequest(WorkerRequest, frozen=True, kw_only=True):
    """Approve or reject the commit under review. ``reason``: what was run and seen, or what is wrong.

    ``comments``: only with a rejection.
    """

    verdict: VerdictWord
    reason: Text
    comments: Annotated[tuple[VerdictComment, ...], msgspec.Meta(max_length=MAX_COMMENTS)] = ()


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


def _submit(crew: Crew, _: SubmitRequest) -> Result:
    return submit(crew)


def _verdict(crew: Crew, request: VerdictRequest) -> Result:
    comments = [(f"{comment.path}:{comment.line}", comment.text) for comment in request.comments]
    return verdict(crew, request.verdict.value, request.reason, comments=comments)


def _exit(crew: Crew, request: ExitRequest) -> Result:
    return exit_run(crew, request.code.value)


def _verb(
    name: str, verb: Callable[[Crew, Any], Result], example: WorkerRequest, status: str | None, step: str
) -> Operation:
    request, answer = type(example), VerbAnswer(result="changed", task="invoice-model", status=status, next=step)

    def run(call: Call) -> VerbAnswer:
        result = verb(call.crew, call.request)
        return VerbAnswer(**{field: getattr(result, field) for field in VerbAnswer.__struct_fields__})

    return Operation(
        name,
        "POST",
        f"/v1/runs/{{run}}/{name}",
        (request.__doc__ or "").partition(".")[0],
        Access.RUN,
        run,
        VerbAnswer,
        answer,
        request=request,
        request_example=example,
        is_slow=True,
        # An agent must not approve its own work, so it has to be known whose process gives a verdict.
        needs_peer=name == VERDICT,
    )


VERB_OPERATIONS = (
    _verb(
        "submit",
        _submit,
        SubmitRequest(),
        "READY_FOR_REVIEW",
        "stop now: a reviewer continues",
    ),
    _verb(
        "handoff",
        handoff,
        HandoffRequest(summary="the model is done, its tests pass", next_action="write the PDF test"),
        "CLAIMED",
        "stop now: a fresh session continues",
    ),
    _verb(
        "block",
        block,
        BlockRequest(reason="the sender address is nowhere in the spec", questions=("Which address?",)),
        "BLOCKED",
        "stop now: the task continues when it has an answer",
    ),
    _verb(
        VERDICT,
        _verdict,
        VerdictRequest(
            verdict=VerdictWord.REJECT,
            reason="1. the total is not rounded",
            comments=(VerdictComment(path="src/tax.js", line=12, text="rounds down; the spec says half up"),),
        ),
        "REJECTED",
        "stop now",
    ),
    _verb(
        "heartbeat",
        heartbeat,
        HeartbeatRequest(extend_seconds=900, reason="the integration tests take 12 minutes"),
        "CLAIMED",
        "go on",
    ),
    _verb(
        "report",
        report,
        ReportRequest(
            kind="trade_off",
            text="cached per process",
            details={"what": "cache", "why": "speed", "debt_created": "yes"},
        ),
        None,
        "continue your task",
    ),
    _verb(
        "exit",
        _exit,
        ExitRequest(code=ExitCode.DONE),
        None,
        "end the process now",
    ),
)
