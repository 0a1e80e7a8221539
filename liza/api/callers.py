"""Find the caller of a request: a run by its bearer token, a person by the process at the other end of the socket."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from liza.api.problems import RequestProblem
from liza.crew.caller import current_person
from liza.crew.crew import Crew
from liza.model.errors import Refused
from liza.model.value_classes import Value
from liza.system.peers import Peer, PeerSession

_LOCAL_HOST = re.compile(r"(?i:localhost|127\.0\.0\.1)(:[0-9]{1,5})?")
CHALLENGE: Final = 'Bearer realm="liza"'
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
    """What is known of a request before its body is read. Header names are lower case. ``peer``: only at the Unix
    socket; ``session``: that of the peer, also over TCP."""

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
    crew: Crew, connection: Connection, access: Access, verify_token: Callable[[Crew, str], str | None]
) -> ApiCaller:
    """Return the caller. ``verify_token`` returns the run of a bearer token. Raises RequestProblem."""
    if access is Access.PUBLIC:
        return ApiCaller()
    authorization = connection.headers.get("authorization")
    if authorization is None:
        return _find_person(crew, connection, access)
    scheme, _, token = authorization.partition(" ")
    run = verify_token(crew, token.strip()) if scheme.lower() == "bearer" else None
    if run is None:
        raise _unauthorized("the bearer token is unknown, or its run is over", 'error="invalid_token"')
    if access is Access.PERSON:
        raise RequestProblem(403, "refused", f"this is for a person, and the token is that of {run}")
    require_own_session(crew, connection, run)
    return ApiCaller(run=run)


def require_peer(connection: Connection) -> None:
    """Raise RequestProblem if the kernel does not tell whose process calls: over TCP it does not."""
    if connection.peer is None:
        raise RequestProblem(403, "refused", "only the Unix socket tells whose process calls; use it for this")


def require_own_session(crew: Crew, connection: Connection, run: str) -> str | None:
    """Return the run whose session the peer is in; None outside of every session.

    Raises RequestProblem if it is another run than that of the token: agents can write the digests of tokens.
    """
    try:
        session = connection.session.find_run(crew.paths.root)
    except Refused as error:
        raise RequestProblem(403, error.code, error.message, hint=error.hint) from error
    if session is not None and session != run:
        raise RequestProblem(403, "not-yours", f"the token is that of {run}, and the request comes from {session}")
    return session


def _find_person(crew: Crew, connection: Connection, access: Access) -> ApiCaller:
    if connection.peer is None:
        raise _unauthorized("the request has no bearer token")
    if not connection.session.is_outside_sessions(crew.paths.root):
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
