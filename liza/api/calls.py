"""One request: who calls, what an operation is, what its function gets, and how it is refused (RFC 9457).

A run is known by its bearer token, a person by the process at the other end of the socket.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, get_type_hints

import msgspec

from liza.api.health import AgentsAnswer
from liza.crew.caller import current_person
from liza.crew.crew import Crew
from liza.guards.session_guards import GuardsCache
from liza.model.errors import LizaError, Refused
from liza.model.value_classes import Mutable, Value, decodable, field
from liza.programs.session.run_directory import RunDir
from liza.system.installation import qualify_command
from liza.system.peers import Peer, PeerSession
from liza.usage.telemetry_log import TelemetryLog

_LOCAL_HOST = re.compile(r"(?i:localhost|127\.0\.0\.1)(:[0-9]{1,5})?")
CHALLENGE: Final = 'Bearer realm="liza"'
MAX_LOGS: Final = 512
"""Runs whose telemetry is remembered; that of the run unused for the longest time is read again when needed."""
_IDENTITY_HINT: Final = "POST /v1/identity with the LIZA_TOKEN of the session's environment"


class Access(StrEnum):
    """Who may call an operation."""

    PUBLIC = "public"
    """Everyone who can connect: it changes nothing and shows nothing of the project, or it has a token of its own."""
    RUN = "run"
    """A run, about itself."""
    PERSON = "person"
    """A person, outside every session."""
    READER = "reader"
    """A run or a person."""


class ApiCaller(Value):
    """Who calls: ``run`` of a worker, or the name of a ``person``; neither for a public operation."""

    run: str | None = None
    person: str | None = None


class Connection(Value):
    """What is known of a request before its body is read. Header names are lower case. ``peer`` and
    ``session``: that of the process at the other end, only at the Unix socket."""

    headers: Mapping[str, str]
    is_unix: bool
    peer: Peer | None
    session: PeerSession


def refuse_web_pages(connection: Connection) -> None:
    """Raise RequestProblem for a request that a browser sends for a page.

    A page can reach 127.0.0.1 in three ways: with fetch (it has an Origin), with a form (Sec-Fetch-Site, and a content
    type that is not JSON), and with a name that its own server resolves to 127.0.0.1 (the Host is that name).
    """
    headers = connection.headers
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        raise RequestProblem(403, "web-page", "requests from web pages are refused")
    if not connection.is_unix and not _LOCAL_HOST.fullmatch(headers.get("host", "")):
        raise RequestProblem(
            403, "web-page", f"the host is {headers.get('host', '')!r}, expected 127.0.0.1 or localhost"
        )


def find_caller(
    root: Path, connection: Connection, access: Access, verify_token: Callable[[str], str | None]
) -> ApiCaller:
    """Return the caller. ``verify_token`` returns the run of a bearer token. Raises RequestProblem."""
    if access is Access.PUBLIC:
        return ApiCaller()
    authorization = connection.headers.get("authorization")
    if authorization is None:
        return _find_person(root, connection, access)
    scheme, _, token = authorization.partition(" ")
    run = verify_token(token.strip()) if scheme.lower() == "bearer" else None
    if run is None:
        raise _unauthorized("the bearer token is unknown, or its run is over", 'error="invalid_token"')
    if access is Access.PERSON:
        raise RequestProblem(403, "refused", f"this is for a person, and the token is that of {run}")
    require_own_session(root, connection, run)
    return ApiCaller(run=run)


def require_peer(connection: Connection) -> None:
    """Raise RequestProblem if the kernel does not tell whose process calls: over TCP it does not."""
    if connection.peer is None:
        raise RequestProblem(403, "refused", "only the Unix socket tells whose process calls; use it for this")


def require_own_session(root: Path, connection: Connection, run: str) -> str | None:
    """Return the run whose session the peer is in; None outside of every session.

    Raises RequestProblem if it is another run than that of the token: agents can write the digests of tokens.
    """
    try:
        session = connection.session.find_run(root)
    except Refused as error:
        raise RequestProblem(403, error.code, error.message, hint=error.hint) from error
    if session is not None and session != run:
        raise RequestProblem(403, "not-yours", f"the token is that of {run}, and the request comes from {session}")
    return session


def _find_person(root: Path, connection: Connection, access: Access) -> ApiCaller:
    if connection.peer is None:
        raise _unauthorized("the request has no bearer token")
    if not connection.session.is_outside_sessions(root):
        raise _unauthorized("the request comes from inside a session, and has no bearer token")
    if access is Access.RUN:
        raise _unauthorized("this is for an agent's run, and the request has no bearer token")
    return ApiCaller(person=current_person())


def _unauthorized(detail: str, parameters: str = "") -> RequestProblem:
    challenge = f"{CHALLENGE}, {parameters}" if parameters else CHALLENGE
    return RequestProblem(401, "unauthorized", detail, hint=_IDENTITY_HINT, headers={"www-authenticate": challenge})


def require_own_run(caller: ApiCaller, run: str) -> None:
    """Raise RequestProblem if a worker names another run than its own."""
    if caller.run is not None and run != caller.run:
        raise RequestProblem(403, "not-yours", f"the token is that of {caller.run}, and the request is about {run}")


class ServerFacts(Mutable, eq=False):
    """What the server knows about itself. ``list_agents`` is given by its command: the function reads what is derived
    from all packages."""

    list_agents: Callable[[Crew], AgentsAnswer]
    started: float = field(default_factory=time.monotonic)
    streams: int = 0
    telemetry: Callable[[Path], TelemetryLog] = field(default_factory=lambda: lru_cache(MAX_LOGS)(TelemetryLog))
    guards: GuardsCache = field(default_factory=GuardsCache)

    open_questions: dict[str, float] = field(default_factory=dict)
    """Monotonic time of the oldest question for the health of a run that it has not answered."""

    def ask(self, run: str) -> None:
        """Note that a run was asked for its health."""
        self.open_questions.setdefault(run, time.monotonic())

    def seconds_unanswered(self, run: str) -> float:
        asked = self.open_questions.get(run)
        return 0.0 if asked is None else time.monotonic() - asked

    def uptime(self) -> float:
        return round(time.monotonic() - self.started, 1)


class Call(Value):
    """``crew`` carries the caller's run. ``request`` is of the operation's type; ``run``: of the path, of the request,
    or else of the caller. ``session``: the run whose session the caller of ``identity`` is in."""

    crew: Crew
    caller: ApiCaller
    server: ServerFacts
    request: Any = None
    path_run: str | None = None
    session: str | None = None
    may_wait: bool = True
    """False in the thread of the event loop: raise LockTimeout instead of waiting."""

    @property
    def run(self) -> str:
        """The run that the call is about. Raises RequestProblem if it names none."""
        run = self.path_run or getattr(self.request, "run_id", None) or self.caller.run
        if run is None:
            raise RequestProblem(400, "invalid-request", "the request names no run", field="$.run_id")
        return run

    @property
    def run_dir(self) -> RunDir:
        return self.crew.run_dir(self.run)

    @property
    def now(self) -> datetime:
        return self.crew.clock.now()


class Operation(Value, dict=True):
    """An operation: ``function`` is called with the call, and with the request if there is one; it returns an
    ``answer``. ``is_slow``: it runs git or changes the board. ``needs_peer``: only at the Unix socket, where it is
    known whose process calls. ``request`` is None for an operation without a body.
    """

    name: str
    method: str
    path: str
    summary: str
    access: Access
    function: Callable[..., Any]
    answer: type[Any]
    request: type[Any] | None = None
    media_type: str = "application/json"
    is_slow: bool = False
    needs_peer: bool = False
    is_stream: bool = False
    """The answer is the event stream of the run; ``function`` returns whether the run is over."""
    max_inline: int = 0
    """Size of the largest body, in bytes, that is answered in the thread of the event loop; 0: none."""
    wakes_stream: bool = False
    """After the call, the stream of the run looks for new events."""

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """The decoder of its requests."""
        assert self.request is not None
        return msgspec.json.Decoder(decodable(self.request))

    def answer_call(self, call: Call) -> Any:
        """Return the answer of the function."""
        return self.function(call) if self.request is None else self.function(call, call.request)


def declare_operation(method: str, path: str, access: Access, function: Callable[..., Any], **more: Any) -> Operation:
    """Return the operation of a function: its name, its docstring, the type of its parameter ``request``, and of what
    it returns."""
    types = get_type_hints(function)
    fields = {
        "name": function.__name__.strip("_").replace("_", "-"),
        "summary": (function.__doc__ or "").partition(".")[0],
        "answer": types["return"],
        "request": types.get("request"),
    }
    return Operation(method=method, path=path, access=access, function=function, **{**fields, **more})


PROBLEM_TYPE: Final = "application/problem+json"
STATUSES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "usage": 422,
        "future-time": 422,
        "token-refused": 401,
        "not-yours": 403,
        "unknown-id": 404,
        "refused": 409,
        "fails-in-box": 409,
        "host-fenced": 409,
        "run-over": 410,
        "queue-full": 429,
        "merge-conflict": 409,
        "import-refused": 409,
        "git-failed": 503,
        "board-inconsistent": 503,
        "task-not-writable": 503,
        "board-unreadable": 503,
        "board-too-new": 503,
        "board-server": 503,
        "board-unavailable": 503,
        "remote-unavailable": 503,
        "missing": 503,
        "no-account": 503,
        "no-crew": 503,
        "system-refused": 503,
        "lock-timeout": 503,
        "signing-failed": 503,
        "disk-refused": 507,
        "bug": 500,
    }
)
"""HTTP status of each kind of error of ``rules.errors``."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem document. ``code`` and ``hint`` are those of `--json` on the command line; ``field`` is the JSON path
    of the invalid value, empty if it is not about one."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""
    field: str = ""


class RequestProblem(Exception):
    """A request that is refused before it reaches a function of Liza."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        hint: str = "",
        field: str = "",
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(detail)
        self.headers = headers
        self.document = make_problem(status, code, detail, hint, field)


def make_problem(status: int, code: str, detail: str, hint: str = "", field: str = "") -> Problem:
    return Problem(
        type=f"urn:liza:problem:{code}",
        title=code.replace("-", " "),
        status=status,
        detail=detail,
        code=code,
        hint=hint,
        field=field,
    )


def problem_of(error: LizaError) -> Problem:
    """Return the problem document of an error."""
    hint = qualify_command(error.hint or "") or error.hint
    return make_problem(STATUSES.get(error.code, 500), error.code, error.message, hint)


def invalid_body(error: Exception) -> RequestProblem:
    """Return the problem of a body that is not of its type; msgspec's message ends with the path of the field."""
    if isinstance(error, RecursionError):
        return RequestProblem(400, "invalid-request", "the body is nested too deeply")
    detail, separator, path = str(error).rpartition(" - at `")
    if not separator:
        return RequestProblem(400, "invalid-request", str(error), field="$")
    return RequestProblem(400, "invalid-request", detail, field=path.rstrip("`"))
