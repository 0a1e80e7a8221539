"""Credentials of a worker that uses the API: the present ones, and others when these end.

A rotation is recorded with the account of the run before it is sent, without the secret, and sent again on each
new stream until the worker acknowledges it. The secret is read for each answer and is in no file. No file below
``.liza`` decides which account it is of: agents write there.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from liza.api.current_run import require_current_run
from liza.api.identity import Credential
from liza.crew.crew import Crew
from liza.model.errors import Missing, NoAccount
from liza.model.model import AwareDatetime
from liza.model.paths import Paths
from liza.model.request_types import Label, RunId, WorkerAnswer, WorkerRequest
from liza.model.spending import TokenUsage
from liza.model.value_classes import replace
from liza.programs.presets import preset_table
from liza.programs.presets.preset import Preset
from liza.programs.rules.lifecycle_rules import check_year
from liza.programs.session.run_directory import RunDir
from liza.text.redaction import redact
from liza.usage import account_choice, account_files
from liza.usage.account_choice import AccountChooser, SessionAccount
from liza.usage.rules import account_rules
from liza.usage.rules.account_rules import AccountRecord
from liza.usage.run_account import RunAccount, parts_by_account, read_run_account, write_run_account
from liza.usage.telemetry_log import TelemetryLog

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
            obstacle = account_choice.record_refusal(path, used.account, reason, now)
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
