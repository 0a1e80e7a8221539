"""Identity: a worker exchanges the one-time token of its environment for its identity and a bearer token.

Both tokens begin with the run, so that a request names its run in one value. Only their digests are on disk, in the
run's directory. A process that can read the environment of the session can use the one-time token, once.

An answer can be lost after the token was used up. So a process in the session of the run may repeat the exchange until
the bearer token is used for the first time: then the digest of the one-time token is removed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import msgspec

from liza.api.current_run import require_current_run
from liza.crew.crew import Crew
from liza.model.errors import LizaError, TokenRefused
from liza.model.model import AwareDatetime, FrozenStruct
from liza.model.paths import Paths, role_of
from liza.model.request_types import Label, WorkerAnswer, WorkerRequest
from liza.programs.session.run_directory import RunDir, read_struct
from liza.system import atomic, crash_points
from liza.system.files import FileCache

TOKEN_VARIABLE = "LIZA_TOKEN"
_TOKEN_FILE, _BEARER_FILE = "token.json", "bearer.json"
_SEPARATOR = ":"
_SECRET_BYTES = 32
MAX_BEARERS = 1000
"""Runs whose token is remembered as verified."""


class IdentityRequest(WorkerRequest, frozen=True, kw_only=True):
    """Exchange the one-time token of the run's environment (``LIZA_TOKEN``) for the run's identity."""

    token: Annotated[str, msgspec.Meta(max_length=200)]
    session_id: Label | None = None


class Credential(WorkerAnswer, frozen=True, kw_only=True):
    """A secret for a program. ``type`` is api_key, oauth or token; ``name`` is the variable that takes it."""

    type: str
    name: str
    value: str
    expires_at: AwareDatetime | None = None


class IdentityAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """Who the worker is. ``token`` is the bearer token of all further requests of this run."""

    run_id: str
    role: str
    repository: str
    agent_name: str
    session_id: str
    token: str
    task_id: str | None = None
    worktree: str | None = None
    credentials: tuple[Credential, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)


class TokenDigest(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``token.json`` and ``bearer.json``: the SHA-256 digest of a token, and when it was issued."""

    digest: str
    issued: AwareDatetime


def issue_token(run_dir: RunDir, now: AwareDatetime) -> str:
    """Return a new one-time token for the session of a run, and store its digest. Raises OSError."""
    token = _new_token(run_dir.run)
    atomic.write(run_dir.path / _TOKEN_FILE, _encode_digest(token, now))
    return token


def run_of_token(token: str) -> str:
    """Return the run that a token names; empty if it names none. Nothing shows yet that the token is right."""
    run, separator, _ = token.partition(_SEPARATOR)
    return run if separator else ""


def find_run(paths: Paths, token: str) -> RunDir:
    """Return the run that a token names; nothing shows yet that the token is right. Raises TokenRefused."""
    try:
        if run_of_token(token):
            return RunDir(paths, run_of_token(token))
    except LizaError:
        pass
    raise TokenRefused("the token names no run", "liza agents")


def identify(
    crew: Crew,
    request: IdentityRequest,
    credentials_of: Callable[[RunDir], tuple[Credential, ...]] = lambda run_dir: (),
    session: str | None = None,
) -> IdentityAnswer:
    """Exchange a one-time token for the identity of its run and a bearer token.

    ``credentials_of`` is called before the token is used up, so that a worker can try again after a failure.
    ``session``: the run whose session the caller is in. That of the token may repeat the exchange until the bearer
    token is used; the bearer token of the answer before is invalid then. Raises TokenRefused if the token is wrong or
    was used, UnknownId, RunIsOver, LizaError, OSError.
    """
    run_dir = find_run(crew.paths, request.token)
    if _is_token_spent(run_dir):
        raise _used_before(run_dir)
    if not _is_digest_of(read_struct(run_dir.path / _TOKEN_FILE, TokenDigest), request.token):
        raise TokenRefused(f"this is not the token of {run_dir.run}", f"liza agents {run_dir.agent}")
    record = require_current_run(run_dir)
    turn = run_dir.read_turn()
    credentials = credentials_of(run_dir)
    bearer = _new_token(run_dir.run)
    # Of several exchanges at the same time one creates the file.
    path, digest = run_dir.path / _BEARER_FILE, _encode_digest(bearer, crew.clock.now())
    if not atomic.write_if_absent(path, digest):
        if session != run_dir.run:
            raise _used_before(run_dir)
        atomic.write(path, digest)
    crash_points.point("identity", "exchanged")
    env = {"LIZA_RUN": run_dir.run, "LIZA_AGENT_ID": run_dir.agent, "LIZA_ROOT": str(crew.paths.root)}
    return IdentityAnswer(
        run_id=run_dir.run,
        role=role_of(run_dir.agent),
        repository=str(crew.paths.root),
        agent_name=run_dir.agent,
        session_id=request.session_id or (turn.session if turn else None) or run_dir.run,
        token=bearer,
        task_id=record.task,
        worktree=record.worktree or None,
        credentials=credentials,
        env=env if record.task is None else {**env, "LIZA_TASK": record.task},
    )


def _is_token_spent(run_dir: RunDir) -> bool:
    """Return whether the one-time token of a run can be exchanged no more: its bearer token was used."""
    return (run_dir.path / _BEARER_FILE).exists() and not (run_dir.path / _TOKEN_FILE).exists()


def _used_before(run_dir: RunDir) -> TokenRefused:
    return TokenRefused(f"the token of {run_dir.run} was used before", f"liza agents {run_dir.agent}")


class BearerCache:
    """The digests of bearer tokens that a process has read. Thread-safe."""

    def __init__(self) -> None:
        self._digests: FileCache[TokenDigest | None] = FileCache(MAX_BEARERS)

    def verify(self, run_dir: RunDir, token: str) -> bool:
        """As ``verify_bearer``."""
        path = run_dir.path / _BEARER_FILE
        try:
            stored = self._digests.read(path, lambda: read_struct(path, TokenDigest))
        except FileNotFoundError:
            return False
        if not _is_digest_of(stored, token):
            return False
        # The answer with this token has arrived, so the exchange is not repeated any more.
        with suppress(OSError):
            (run_dir.path / _TOKEN_FILE).unlink(missing_ok=True)
        crash_points.point("identity", "confirmed")
        return True


def verify_bearer(run_dir: RunDir, token: str) -> bool:
    """Return whether ``token`` is the bearer token of the run. Raises LizaError if its digest cannot be read."""
    return _is_digest_of(read_struct(run_dir.path / _BEARER_FILE, TokenDigest), token)


def _new_token(run: str) -> str:
    return f"{run}{_SEPARATOR}{secrets.token_urlsafe(_SECRET_BYTES)}"


def _encode_digest(token: str, now: AwareDatetime) -> bytes:
    return msgspec.json.encode(TokenDigest(digest=_digest(token), issued=now)) + b"\n"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _is_digest_of(stored: TokenDigest | None, token: str) -> bool:
    return stored is not None and hmac.compare_digest(stored.digest.encode(), _digest(token).encode())
