"""The operations with which a run ends, hands over or continues its work: the verbs of the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from liza.crew.result import Result
from liza.server.callers import Access
from liza.server.operations.calls import Call, Operation
from liza.server.operations.verb_requests import (
    BlockRequest,
    ExitCode,
    ExitRequest,
    HandoffRequest,
    HeartbeatRequest,
    ReportRequest,
    SubmitRequest,
    VerbAnswer,
    VerdictComment,
    VerdictRequest,
    VerdictWord,
)
from liza.verbs.block import block
from liza.verbs.exit import exit_run
from liza.verbs.handoff import HandoffNote, handoff
from liza.verbs.heartbeat import heartbeat
from liza.verbs.report import report
from liza.verbs.submit import submit
from liza.verbs.verdict import verdict
from liza.worker.api_requests import WorkerRequest

VERDICT = "verdict"


def _answer(result: Result) -> VerbAnswer:
    return VerbAnswer(
        result=result.result,
        task=result.task,
        status=result.status,
        next=result.next,
        message=result.message,
        details=result.details,
    )


def _submit(call: Call) -> VerbAnswer:
    return _answer(submit(call.crew))


def _handoff(call: Call) -> VerbAnswer:
    request: HandoffRequest = call.request
    note = HandoffNote(
        request.summary, request.next_action, request.approach, request.blockers, request.files, request.steps
    )
    return _answer(handoff(call.crew, note, done=request.done))


def _block(call: Call) -> VerbAnswer:
    return _answer(block(call.crew, call.request.reason, call.request.questions))


def _verdict(call: Call) -> VerbAnswer:
    request: VerdictRequest = call.request
    comments = [(f"{comment.path}:{comment.line}", comment.text) for comment in request.comments]
    return _answer(verdict(call.crew, request.verdict.value, request.reason, comments=comments))


def _heartbeat(call: Call) -> VerbAnswer:
    return _answer(heartbeat(call.crew, call.request.extend_seconds, call.request.reason))


def _report(call: Call) -> VerbAnswer:
    return _answer(report(call.crew, call.request.kind, call.request.text, call.request.details))


def _exit(call: Call) -> VerbAnswer:
    return _answer(exit_run(call.crew, call.request.code.value))


def _verb(
    name: str, summary: str, function: Callable[[Call], Any], example: WorkerRequest, status: str | None, step: str
) -> Operation:
    answer = VerbAnswer(result="changed", task="invoice-model", status=status, next=step)
    return Operation(
        name,
        "POST",
        f"/v1/runs/{{run}}/{name}",
        summary,
        Access.RUN,
        function,
        VerbAnswer,
        answer,
        request=type(example),
        request_example=example,
        is_slow=True,
        # An agent must not approve its own work, so it has to be known whose process gives a verdict.
        needs_peer=name == VERDICT,
    )


VERB_OPERATIONS = (
    _verb(
        "submit",
        "Submit the committed work of the run's task for review",
        _submit,
        SubmitRequest(),
        "READY_FOR_REVIEW",
        "stop now: a reviewer continues",
    ),
    _verb(
        "handoff",
        "Hand the work over to a new session",
        _handoff,
        HandoffRequest(summary="the model is done, its tests pass", next_action="write the PDF test"),
        "CLAIMED",
        "stop now: a fresh session continues",
    ),
    _verb(
        "block",
        "Stop the task with questions for a person",
        _block,
        BlockRequest(reason="the sender address is nowhere in the spec", questions=("Which address?",)),
        "BLOCKED",
        "stop now: the task continues when it has an answer",
    ),
    _verb(
        VERDICT,
        "Approve or reject the commit under review",
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
        "Renew the lease of the run",
        _heartbeat,
        HeartbeatRequest(extend_seconds=900, reason="the integration tests take 12 minutes"),
        "CLAIMED",
        "go on",
    ),
    _verb(
        "report",
        "Record a problem or a fact that others must know",
        _report,
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
        "Record the result of the run; it overrides the exit code of its process",
        _exit,
        ExitRequest(code=ExitCode.DONE),
        None,
        "end the process now",
    ),
)
