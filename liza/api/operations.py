"""The operations of the API, and its OpenAPI document. Each calls one function of a surface, or a verb.

The name, the summary and the types of an operation are those of its function here. ``python -m liza.api.operations``
prints the OpenAPI document.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, Final, get_type_hints

import msgspec

from liza import __version__
from liza.api.calls import PROBLEM_TYPE, Access, Call, Operation, Problem, declare_operation
from liza.api.health import (
    AgentsAnswer,
    HealthReport,
    ReportAnswer,
    RunHealth,
    ServerHealth,
    TelemetryAnswer,
    TelemetryRequest,
    record_telemetry,
    report_health,
    run_health,
)
from liza.api.identity import (
    CredentialReport,
    CredentialReportAnswer,
    IdentityAnswer,
    IdentityRequest,
    acknowledge_credentials,
    current_credentials,
    identify,
    report_credential,
)
from liza.api.lifecycle import LifecycleAnswer, LifecycleRequest, report_lifecycle, require_current_run
from liza.api.prompts import (
    AcknowledgeAnswer,
    AcknowledgeRequest,
    ContextAnswer,
    ContextRequest,
    PromptAnswer,
    PromptRequest,
    acknowledge_prompts,
    compose_context,
    submit_prompt,
)
from liza.breaker.report import report
from liza.crew.result import Result
from liza.guards.session_guards import AuthorizeAnswer, AuthorizeRequest, judge_request
from liza.model.errors import RunIsOver
from liza.model.value_classes import WorkerAnswer, WorkerRequest
from liza.programs.rules.lifecycle_rules import HealthStatus
from liza.tasks.claim import heartbeat
from liza.tasks.handoff import end_run, handoff
from liza.tasks.pause import checkpoint
from liza.tasks.questions import block
from liza.tasks.submit import submit
from liza.tasks.verdict import judge

EVENT_STREAM: Final = "text/event-stream"
MAX_INLINE_TOOL: Final = 1 << 10
"""Size of a body whose judgment takes 1 ms, and 26 ms for the slowest of twelve commands made up to take long."""
MAX_INLINE_TELEMETRY: Final = 32 << 10
"""Size of a body with some 150 turns: 3 ms."""


class SubmitRequest(WorkerRequest, frozen=True, kw_only=True):
    """Submit the committed work of the run's task for review. It has no fields."""


class VerbAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """As the command line prints it with `--json`. ``result`` is ``changed`` or ``unchanged``; ``next`` is what to do
    now."""

    result: str
    task: str | None
    status: str | None
    next: str
    message: str = ""
    details: dict[str, Any] = msgspec.field(default_factory=dict)


def _identity(call: Call, request: IdentityRequest) -> IdentityAnswer:
    """Exchange the one-time token of the session's environment for the run's identity and its bearer token."""
    return identify(call.crew, request, partial(current_credentials, call.crew), call.session)


def _credentials(call: Call, request: CredentialReport) -> CredentialReportAnswer:
    """Report that a credential ends, is at its limit or was refused: another one follows on the stream."""
    return report_credential(call.crew, request)


def _lifecycle(call: Call, request: LifecycleRequest) -> LifecycleAnswer:
    """Report a transition of the run."""
    return report_lifecycle(call.run_dir, request, call.now)


def _prompt(call: Call, request: PromptRequest) -> PromptAnswer:
    """Queue a prompt for a run."""
    return submit_prompt(call.crew, call.caller.person or call.run, request)


def _acknowledge(call: Call, request: AcknowledgeRequest) -> AcknowledgeAnswer:
    """Confirm events of the stream: they are not delivered again."""
    prompts = acknowledge_prompts(call.run_dir, request, call.now)
    credentials = acknowledge_credentials(call.run_dir, request.ids)
    return AcknowledgeAnswer(acknowledged=prompts.acknowledged + credentials)


def _context(call: Call, request: ContextRequest) -> ContextAnswer:
    """The sections of the run's context."""
    return compose_context(call.crew, request)


def _authorize(call: Call, request: AuthorizeRequest) -> AuthorizeAnswer:
    """Ask whether a tool may run."""
    return judge_request(call.run_dir, request, cache=call.server.guards)


def _run_health(call: Call) -> RunHealth:
    """The health of a run."""
    return run_health(call.crew, call.run_dir, call.server.seconds_unanswered(call.run), call.server.telemetry)


def _report_health(call: Call, request: HealthReport) -> ReportAnswer:
    """Answer a question for the health of the run, or report it unasked."""
    answer = report_health(call.run_dir, request, call.now)
    call.server.open_questions.pop(call.run, None)
    return answer


def _health(call: Call) -> ServerHealth:
    """The health of the server."""
    return ServerHealth(
        status=HealthStatus.HEALTHY,
        version=__version__,
        uptime_seconds=call.server.uptime(),
        runs=call.server.streams,
    )


def _agents(call: Call) -> AgentsAnswer:
    """The agents of the crew with their operating states."""
    return call.server.list_agents(call.crew)


def _telemetry(call: Call, request: TelemetryRequest) -> TelemetryAnswer:
    """Report what turns of the run have used."""
    log = call.server.telemetry(call.run_dir.path)
    return record_telemetry(call.run_dir, request, call.now, log, may_wait=call.may_wait)


def _stream(call: Call) -> bool:
    """Prompts and questions for the run, as server-sent events."""
    try:
        require_current_run(call.run_dir)
    except RunIsOver:
        return True
    return False


def _openapi(call: Call) -> bytes:
    """This document."""
    return format_document()


_declare = declare_operation
_RUN: Final = "/v1/runs/{run}"


def _declare_verb(name: str, verb: Callable[..., Result], **more: Any) -> Operation:
    """Return the operation of a verb of the command line, with its docstring and its request."""
    request = get_type_hints(verb).get("request")

    def answer(call: Call, given: Any) -> VerbAnswer:
        result = verb(call.crew) if request is None else verb(call.crew, given)
        return VerbAnswer(**{field: getattr(result, field) for field in VerbAnswer.__struct_fields__})

    return Operation(
        name=name,
        method="POST",
        path=f"{_RUN}/{name}",
        summary=(verb.__doc__ or "").partition(".")[0],
        access=Access.RUN,
        function=answer,
        answer=VerbAnswer,
        request=request or SubmitRequest,
        is_slow=True,
        **more,
    )


OPERATIONS: Final[tuple[Operation, ...]] = (
    # The command of an account may take seconds.
    _declare("POST", "/v1/identity", Access.PUBLIC, _identity, is_slow=True),
    _declare("POST", "/v1/credentials", Access.RUN, _credentials, is_slow=True, wakes_stream=True),
    _declare("POST", "/v1/lifecycle", Access.RUN, _lifecycle, wakes_stream=True),
    _declare("POST", "/v1/prompt", Access.PERSON, _prompt, wakes_stream=True),
    _declare("POST", "/v1/acknowledge", Access.RUN, _acknowledge, wakes_stream=True),
    _declare("POST", "/v1/context", Access.RUN, _context),
    _declare("POST", "/v1/authorize", Access.RUN, _authorize, max_inline=MAX_INLINE_TOOL),
    _declare("GET", f"{_RUN}/health", Access.READER, _run_health),
    _declare("POST", f"{_RUN}/health", Access.RUN, _report_health),
    _declare("GET", "/v1/health", Access.PUBLIC, _health),
    _declare("GET", "/v1/agents", Access.READER, _agents),
    _declare("POST", "/v1/telemetry", Access.RUN, _telemetry, max_inline=MAX_INLINE_TELEMETRY),
    _declare_verb("submit", submit),
    _declare_verb("handoff", handoff),
    _declare_verb("block", block),
    # An agent must not approve its own work, so it has to be known whose process gives a verdict.
    _declare_verb("verdict", judge, needs_peer=True),
    _declare_verb("checkpoint", checkpoint),
    _declare_verb("heartbeat", heartbeat),
    _declare_verb("report", report),
    _declare_verb("exit", end_run),
    _declare("GET", f"{_RUN}/stream", Access.RUN, _stream, answer=str, media_type=EVENT_STREAM, is_stream=True),
    _declare("GET", "/openapi.json", Access.PUBLIC, _openapi, answer=dict[str, Any]),
)


REF_TEMPLATE: Final = "#/components/schemas/{name}"
_PROBLEMS: Final[Mapping[str, str]] = {
    "400": "The body is no JSON, has an unknown field, or a value is wrong",
    "401": "There is no valid bearer token",
    "403": "The token is that of another run, or the request comes from a web page",
    "404": "There is no such run",
    "409": "A rule does not allow it",
    "410": "The run is over",
    "413": "The body is too large",
    "415": "The body is not JSON",
    "422": "A value is of its type, and a rule refuses it",
    "429": "Too many prompts wait",
    "503": "The board, git or a lock is not available; try again",
}
_PUBLIC_PROBLEMS: Final = ("400", "403", "503")
_NEEDING_BODY: Final = ("413", "415", "422", "429")
_SECURITY: Final[Mapping[Access, list[dict[str, list[str]]]]] = {
    Access.PUBLIC: [],
    Access.RUN: [{"runToken": []}],
    Access.READER: [{"runToken": []}, {}],
    Access.PERSON: [{}],
}
_ACCESS_TEXTS: Final[Mapping[Access, str]] = {
    Access.PUBLIC: "Needs no token.",
    Access.RUN: "For the run itself: needs its bearer token.",
    Access.READER: "For a run, with its bearer token, or for a person, over the Unix socket.",
    Access.PERSON: "For a person: a process outside every session, over the Unix socket.",
}


def make_document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document of the operations."""
    rows = tuple(operations)
    types = list(dict.fromkeys([Problem, *(type_ for row in rows for type_ in (row.request, row.answer) if type_)]))
    structs = [type_ for type_ in types if isinstance(type_, type) and issubclass(type_, msgspec.Struct)]
    _, components = msgspec.json.schema_components(structs, ref_template=REF_TEMPLATE)
    for component in components.values():
        if "description" in component:  # msgspec before 0.23 keeps the indentation of docstrings.
            component["description"] = inspect.cleandoc(component["description"])
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Liza worker API",
            "version": __version__,
            "summary": "What an agent's runtime and Liza tell each other",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://localhost", "description": "The Unix socket .liza/run/api.sock"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "runToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token that POST /v1/identity returned for this run",
                },
            },
        },
    }


def _operation(row: Operation) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.summary,
        "description": _ACCESS_TEXTS[row.access],
        "security": _SECURITY[row.access],
        "responses": {"200": _answer(row), **_problems(row)},
    }
    if "{run}" in row.path:
        run = {"type": "string", "pattern": r"^[a-z][a-z-]{0,40}-\d{1,9}\.\d{1,9}$", "examples": ["coder-1.7"]}
        document["parameters"] = [
            {"name": "run", "in": "path", "required": True, "description": "A run of Liza", "schema": run}
        ]
    if row.is_stream:
        document.setdefault("parameters", []).append(
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "description": "The last event that the runtime has received: the stream goes on behind it",
                "schema": {"type": "string"},
            }
        )
    if row.request is not None:
        document["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(row.request)),
            "content": {"application/json": {"schema": _schema(row.request)}},
        }
    return document


def _answer(row: Operation) -> dict[str, Any]:
    return {"description": "Done", "content": {row.media_type: {"schema": _schema(row.answer)}}}


def _problems(row: Operation) -> dict[str, Any]:
    content_of = {
        status: {"description": description, "content": {PROBLEM_TYPE: {"schema": _schema(Problem)}}}
        for status, description in _PROBLEMS.items()
        if row.request is not None or status not in _NEEDING_BODY
    }
    if row.access is Access.PUBLIC and row.request is None:
        return {name: content for name, content in content_of.items() if name in _PUBLIC_PROBLEMS}
    return content_of


def _schema(type_: type[Any]) -> dict[str, Any]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return {"$ref": REF_TEMPLATE.format(name=type_.__name__)}
    return msgspec.json.schema(type_)


@cache
def format_document() -> bytes:
    """Return the OpenAPI document as it is served, and as the committed copy has it."""
    text = msgspec.json.format(msgspec.json.encode(make_document(OPERATIONS)), indent=2)
    return text + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(format_document())
