"""The application: read a request, find the caller, call the operation's function, write the answer.

A function is called in a thread, unless its operation has a ``max_inline`` and the body is no larger.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from liza.api.calls import (
    CHALLENGE,
    PROBLEM_TYPE,
    ApiCaller,
    Call,
    Connection,
    Operation,
    Problem,
    RequestProblem,
    ServerFacts,
    find_caller,
    invalid_body,
    make_problem,
    problem_of,
    refuse_web_pages,
    require_own_run,
    require_own_session,
    require_peer,
)
from liza.api.event_stream import EventStream, FindRotated, StreamHub, StreamLinks
from liza.api.identity import IdentityRequest, list_rotated, run_of_token
from liza.crew.crew import Crew
from liza.model.errors import LizaError, LockTimeout
from liza.model.value_classes import decodable
from liza.system.files import to_write_failed
from liza.text.undecoded import encode_json
from liza.usage.run_account import has_run_account

MAX_BODY: Final = 1 << 20
"""Maximum size of a body, in bytes."""
THREADS: Final = 4
"""Threads of each kind: for functions that read files, for verbs, which wait for locks and git, and for streams."""
TokenVerifier = Callable[[str], str | None]


class ApiServer:
    """The state of one server process: the crew, the open streams and the threads."""

    def __init__(
        self, crew: Crew, facts: ServerFacts, verify_token: TokenVerifier, after_change: Callable[[], None]
    ) -> None:
        """``after_change`` is called in a thread after a verb: it writes the history if no supervisor does."""
        self.crew, self.facts = crew, facts
        self._verify_token, self._after_change = verify_token, after_change
        self._quick: Executor = ThreadPoolExecutor(THREADS, "request")
        self._slow: Executor = ThreadPoolExecutor(THREADS, "verb")
        executors = ThreadPoolExecutor(THREADS, "stream"), ThreadPoolExecutor(THREADS, "credentials")
        self.hub = StreamHub(*executors, self.facts.ask)

    async def answer(self, operation: Operation, request: Request) -> Any:
        """Return the response to a request. Raises RequestProblem, LizaError, OSError."""
        body = await _read_body(request)
        if operation.request is None and body:
            raise RequestProblem(400, "invalid-request", "this operation takes no body")
        connection = _connection_of(request)
        call, answer = await self._answer_call(operation, connection, body, request.path_params.get("run"))
        if operation.is_stream:
            links = StreamLinks(partial(operation.answer_call, call), _respond_to, self._rotation_of(call))
            return EventStream(self.hub, call.run_dir, connection.headers.get("last-event-id"), links)
        if operation.wakes_stream:
            self.hub.wake(call.run_dir.agent)
        return Response(answer, media_type=operation.media_type)

    async def _answer_call(
        self, operation: Operation, connection: Connection, body: bytes, path_run: str | None
    ) -> tuple[Call, bytes]:
        """Call the function of an operation: here if it waits for nothing, else in another thread."""
        work = partial(self._call, operation, connection, body, path_run)
        # Without a token the ancestors of the peer would be looked up: `calls._find_person`.
        is_known = connection.session.is_known and "authorization" in connection.headers
        if 0 < len(body) <= operation.max_inline and is_known:
            with contextlib.suppress(LockTimeout):
                return work(may_wait=False)
        executor = self._slow if operation.is_slow else self._quick
        return await asyncio.get_running_loop().run_in_executor(executor, work)

    def _call(
        self, operation: Operation, connection: Connection, body: bytes, path_run: str | None, *, may_wait: bool = True
    ) -> tuple[Call, bytes]:
        """Call the function of an operation; return the call and its encoded answer."""
        caller = find_caller(self.crew.paths.root, connection, operation.access, self._verify_token)
        if operation.needs_peer:
            require_peer(connection)
        if path_run is not None:
            require_own_run(caller, path_run)
        content, session = _decode_body(operation, connection, body), None
        if isinstance(content, IdentityRequest):
            session = require_own_session(self.crew.paths.root, connection, run_of_token(content.token))
        call = Call(self._crew_for(caller), caller, self.facts, content, path_run, session, may_wait)
        named_run = getattr(content, "run_id", None)
        if named_run is not None:
            require_own_run(caller, named_run)
            _require_same_run(path_run, named_run)
        self.facts.streams = self.hub.count
        answer = operation.answer_call(call)
        if caller.run is not None and not operation.is_stream:
            with contextlib.suppress(LizaError, OSError):  # a run without a directory, or a full disk
                self.crew.run_dir(caller.run).note_report()
        if operation.is_slow:
            self._after_change()
        return call, answer if isinstance(answer, bytes) else encode_json(answer)

    def _rotation_of(self, call: Call) -> FindRotated | None:
        """Return the function that looks for other credentials of a run; None if it has no account."""
        return partial(list_rotated, self.crew, call.run_dir) if has_run_account(call.run_dir) else None

    def _crew_for(self, caller: ApiCaller) -> Crew:
        return self.crew if caller.run is None else self.crew.with_caller(caller.run)


def make_application(server: ApiServer, operations: Iterable[Operation]) -> Starlette:
    """Return the application of the operations."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    application = Starlette(
        routes=[
            Route(path, _make_endpoint(server, methods), methods=list(methods)) for path, methods in by_path.items()
        ],
        exception_handlers={HTTPException: _answer_http_exception},
    )
    application.router.redirect_slashes = False
    return application


def _make_endpoint(server: ApiServer, methods: Mapping[str, Operation]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Any:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        try:
            refuse_web_pages(_connection_of(request))
            return await server.answer(operation, request)
        except Exception as error:  # noqa: BLE001 - what is no error of Liza is reported as a bug; the server goes on
            return _respond_to(error)

    return endpoint


def _respond_to(error: Exception) -> Response:
    """Return the response to an error."""
    if isinstance(error, RequestProblem):
        return _problem_response(error.document, error.headers)
    if isinstance(error, LizaError):
        return _problem_response(problem_of(error))
    write_failed = to_write_failed(error) if isinstance(error, OSError) else None
    return _problem_response(problem_of(write_failed)) if write_failed else _report_bug(error)


def _report_bug(bug: Exception) -> Response:
    """Write the traceback to the server's log; return a problem without it."""
    traceback.print_exception(bug, file=sys.stderr)
    return _problem_response(make_problem(500, "bug", f"this is a bug in liza: {type(bug).__name__}"))


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Answer an unknown path or method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        problem = make_problem(404, "unknown-path", f"there is no {request.url.path}", "GET /openapi.json")
    elif error.status_code == 405:
        problem = make_problem(405, "unknown-method", f"{request.url.path} does not take {request.method}")
    else:
        problem = make_problem(error.status_code, "invalid-request", str(error.detail))
    return _problem_response(problem, error.headers or {})


def _problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    # An answer before the whole body was read: the connection cannot be used again.
    more = {"connection": "close"} if problem.status == 413 else {}
    if problem.status == 401:
        more["www-authenticate"] = CHALLENGE
    body = encode_json(problem)
    return Response(body, problem.status, {**more, **(headers or {})}, PROBLEM_TYPE)


async def _read_body(request: Request) -> bytes:
    """Return the body. Raises RequestProblem if it is too large or incomplete.

    The rest of a too large body is read and dropped, so that the client reads the answer before a broken pipe.
    """
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size <= MAX_BODY:
                chunks.append(chunk)
    except ClientDisconnect:
        # The client does not read this answer.
        raise RequestProblem(400, "invalid-request", "the client disconnected within the body") from None
    if size > MAX_BODY:
        raise RequestProblem(413, "too-large", f"the body has more than {MAX_BODY >> 20} MB")
    return b"".join(chunks)


def _connection_of(request: Request) -> Connection:
    state = request.scope["state"]
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}
    return Connection(headers, state["is_unix"], state["peer"], state["session"])


def _decode_body(operation: Operation, connection: Connection, body: bytes) -> Any:
    """Return the request; an empty body is an object without fields. Raises RequestProblem."""
    if operation.request is None:
        return None
    media_type = connection.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and (body or media_type):
        raise RequestProblem(415, "not-json", f"the content type is {media_type!r}, expected 'application/json'")
    try:
        return operation.decoder.decode(body or b"{}")
    except msgspec.ValidationError as error:
        return _decode_whole_numbers(operation.request, body, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid_body(error) from None


def _decode_whole_numbers(request: type[Any], body: bytes, error: msgspec.ValidationError) -> Any:
    """Decode a body again that was refused, with 3.0 as 3: for JSON Schema both are integers.

    Raises RequestProblem for the first ``error`` if that was not the reason.
    """
    try:
        return msgspec.convert(_with_whole_numbers(msgspec.json.decode(body or b"{}")), decodable(request))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Also a body of a wrong type whose end is no JSON: the first decoder stops at the type.
        raise invalid_body(error) from None


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_whole_numbers(item) for name, item in value.items()}
    return value


def _require_same_run(path_run: str | None, named_run: str) -> None:
    if path_run is not None and path_run != named_run:
        raise RequestProblem(
            400, "invalid-request", f"the path names {path_run}, and the body {named_run}", field="$.run_id"
        )
