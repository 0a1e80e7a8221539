"""Identity and credentials: a worker exchanges the one-time token of its environment for its identity and a bearer
token, and gets the secrets of its account.

Both tokens begin with the run, so that a request names its run in one value. Only their digests are on disk, in the
run's directory. A process that can read the environment of the session can use the one-time token, once.

An answer can be lost after the token was used up. So a process in the session of the run may repeat the exchange until
the bearer token is used for the first time: then the digest of the one-time token is removed.

A rotation is recorded with the account of the run before it is sent, without the secret, and sent again on each
new stream until the worker acknowledges it. The secret is read for each answer and is in no file. No file below
``.liza`` decides which account it is of: agents write there.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from liza.api.lifecycle import require_current_run
from liza.crew.crew import Crew
from liza.model.errors import LizaError, Missing, NoAccount, TokenRefused
from liza.model.paths import Paths, role_of
from liza.model.spending import TokenUsage
from liza.model.value_classes import AwareDatetime, FrozenStruct, Label, RunId, WorkerAnswer, WorkerRequest, replace
from liza.programs.presets import preset_table
from liza.programs.presets.preset import Preset
from liza.programs.rules.lifecycle_rules import check_year
from liza.programs.session.run_directory import RunDir, read_struct
from liza.system import atomic, crash_points
from liza.system.files import FileCache
from liza.text.redaction import redact
from liza.usage import account_choice, account_files
from liza.usage.account_choice import AccountChooser, SessionAccount
from liza.usage.rules import account_rules
from liza.usage.rules.account_rules import AccountRecord
from liza.usage.run_account import RunAccount, parts_by_account, read_run_account, write_run_account
from liza.usage.telemetry_log import TelemetryLog

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
        """Return whether ``token`` is the bearer token of the run. Raises LizaError if its digest cannot be read."""
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


def _new_token(run: str) -> str:
    return f"{run}{_SEPARATOR}{secrets.token_urlsafe(_SECRET_BYTES)}"


def _encode_digest(token: str, now: AwareDatetime) -> bytes:
    return msgspec.json.encode(TokenDigest(digest=_digest(token), issued=now)) + b"\n"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _is_digest_of(stored: TokenDigest | None, token: str) -> bool:
    return stored is not None and hmac.compare_digest(stored.digest.encode(), _digest(token).encode())


_EVENT_PREFIX = "credentials-"


class CredentialState(StrEnum):
    """``expires``: it works until then; ``limited``: its usage limit is reached until then; ``refused``: the model
    refused it, and only a person can make it work again."""

    EXPIRES = "expires"
    LIMITED = "limited"
    REFUSED = "refused"


class CredentialReport(WorkerRequest, frozen=True, kw_only=True):
    """A worker reports the state of a credential that it uses. ``name`` is the one of its credential; empty: the
    account has none, but a directory of its own. ``until`` None: not known. Another one follows on the stream."""

    run_id: RunId
    state: CredentialState
    name: Label = ""
    until: AwareDatetime | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class CredentialReportAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """``applied`` is false if the credential was replaced before, or the run has no account."""

    applied: bool


class CredentialsEvent(WorkerAnswer, frozen=True, kw_only=True):
    """An event ``credentials`` on the stream: use these from now on, and acknowledge ``id``. ``env`` has variables
    without a secret that change with the account, such as its configuration directory."""

    id: str
    reason: str
    credentials: tuple[Credential, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)


def current_credentials(crew: Crew, run_dir: RunDir) -> tuple[Credential, ...]:
    """Return the credentials of a run, read now; none if its program has no accounts.

    Raises Missing if the secret cannot be read, LizaError.
    """
    used = read_run_account(run_dir)
    if used is None:
        return ()
    account = _chooser(crew.paths, used).read_again(used.account, crew.clock.now())
    return _credentials(account, used)


def list_rotated(crew: Crew, run_dir: RunDir, sent: Collection[str] = ()) -> tuple[CredentialsEvent, ...]:
    """Return the credentials that the worker is to use from now on, if it has not acknowledged them.

    ``sent`` are the ids of events that its stream has sent. Before that the account is changed if it cannot be used any
    more or its secret expires. Without another account the worker keeps what it has. Raises LizaError, OSError.
    """
    used = read_run_account(run_dir)
    if used is None:
        return ()
    now = crew.clock.now()
    reason = account_rules.rotation_reason(_account_record(used.account), used.lifetime, now)
    if reason is None and (used.reason is None or _event_id(used) in sent):
        return ()
    require_current_run(run_dir)
    chooser = _chooser(crew.paths, used)
    try:
        if reason is None:
            account = chooser.read_again(used.account, now)
        else:
            account = chooser.take(now, used.account)
            used = _record_change(run_dir, used, account, redact(reason))
    except Missing:
        # None can be used, or the secret cannot be read: its record says why. The next call tries again.
        return ()
    return (_event(used, account, _preset(crew.paths, used)),)


def acknowledge_credentials(run_dir: RunDir, ids: Collection[str]) -> int:
    """Record that the worker uses the last credentials; return how many of the ids this concerns. Raises LizaError,
    OSError."""
    used = read_run_account(run_dir)
    if used is None or used.reason is None or _event_id(used) not in ids:
        return 0
    write_run_account(run_dir, replace(used, reason=None))
    return 1


def report_credential(crew: Crew, request: CredentialReport) -> CredentialReportAnswer:
    """Record what a worker reports of its credential. Raises UnknownId, RunIsOver, UsageError, LizaError, OSError."""
    run_dir = crew.run_dir(request.run_id)
    require_current_run(run_dir)
    if request.until is not None:
        check_year(request.until)
    used = read_run_account(run_dir)
    # A report that crossed a rotation is about the earlier credential.
    if used is None or used.reason is not None or request.name != _name_of(crew.paths, used):
        return CredentialReportAnswer(applied=False)
    now, path = crew.clock.now(), account_files.records_path(os.environ, Path.home())
    reason = redact(request.reason)[: account_files.MAX_REASON] or f"reported by {run_dir.run}"
    match request.state:
        case CredentialState.EXPIRES:
            write_run_account(run_dir, replace(used, expires=request.until))
        case CredentialState.LIMITED:
            first = crew.board.read().config.restart_after_crash
            account_choice.record_limit(path, used.account, reason, request.until, now, first)
        case CredentialState.REFUSED:
            obstacle = account_choice.record_refusal(path, used.account, reason)
            crew.append_alert_log([f"account  {obstacle.text}. Next: {obstacle.next}"])
    return CredentialReportAnswer(applied=True)


def _record_change(run_dir: RunDir, used: RunAccount, account: SessionAccount, reason: str) -> RunAccount:
    """Record the rotation before it is sent. Raises NoAccount if the program has no accounts any more."""
    if account.account is None:
        raise NoAccount("the program has no accounts any more", "liza programs accounts")
    changed = replace(
        used,
        account=account.account.id,
        read=account.read,
        expires=account.expires,
        config_dir=account.config_dir,
        changes=used.changes + 1,
        reason=reason,
        used=_used_so_far(run_dir, used),
    )
    write_run_account(run_dir, changed)
    return changed


def _used_so_far(run_dir: RunDir, account: RunAccount) -> dict[str, TokenUsage]:
    """Return what the run used with each account until now: by its runtime's reports, or by the last measurement."""
    sums, gauge = TelemetryLog(run_dir.path).read(), run_dir.read_gauge()
    used = sums.used if sums is not None else gauge.used if gauge is not None else None
    return parts_by_account(account, used or sum(account.used.values(), TokenUsage()))


def _account_record(account: str) -> AccountRecord:
    records = account_files.read_sound_records(account_files.records_path(os.environ, Path.home()))
    return records.get(account, AccountRecord())


def _name_of(paths: Paths, used: RunAccount) -> str:
    """Return the variable of the run's account, or an empty text."""
    return _chooser(paths, used).find(used.account).sets


def _event(used: RunAccount, account: SessionAccount, preset: Preset) -> CredentialsEvent:
    env = {preset.config_dir_env: account.config_dir} if account.config_dir else {}
    return CredentialsEvent(
        id=_event_id(used), reason=used.reason or "", credentials=_credentials(account, used), env=env
    )


def _event_id(used: RunAccount) -> str:
    return f"{_EVENT_PREFIX}{used.changes}"


def _credentials(account: SessionAccount, used: RunAccount) -> tuple[Credential, ...]:
    if account.account is None or account.secret is None:
        return ()
    expires: datetime | None = used.expires
    value = account.secret.value
    return (Credential(type=account.account.kind, name=account.account.sets, value=value, expires_at=expires),)


def _chooser(paths: Paths, used: RunAccount) -> AccountChooser:
    return AccountChooser(_preset(paths, used), os.environ, lambda text: None)


def _preset(paths: Paths, used: RunAccount) -> Preset:
    rows = preset_table.load_presets(paths).rows
    if used.program not in rows:
        raise Missing(f"{used.program} is no known program any more", "liza programs list")
    return rows[used.program]
