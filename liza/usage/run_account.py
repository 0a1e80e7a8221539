"""The account of the session of a run: a record without a secret, in the user's state directory.

It decides whose secret a worker gets, so it is not in ``.liza``: agents write there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from liza.model.errors import LizaError, Missing
from liza.model.paths import state_directory
from liza.model.spending import TokenUsage, usage_since
from liza.model.value_classes import AwareDatetime, FrozenStruct
from liza.programs.presets.preset import Preset
from liza.programs.session import private_state
from liza.programs.session.run_directory import RunDir, read_struct
from liza.system import atomic
from liza.usage.rules.account_rules import Lifetime

RECORDS_DIRECTORY = "session-accounts"


class RunAccount(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``account`` is an id, ``PROGRAM/NAME``. ``config_dir`` is the account's own directory: conversations in it cannot
    be continued with another one. ``read`` and ``expires``: when the secret was read, and when it ends, if known.
    ``changes`` counts how often a living worker was given another credential; ``reason``: why it was, the last time, as
    long as the worker has not acknowledged it. ``used``: what the run had used with each account when it got the next
    one."""

    account: str
    read: AwareDatetime
    expires: AwareDatetime | None = None
    config_dir: str = ""
    changes: int = 0
    reason: str | None = None
    used: dict[str, TokenUsage] = msgspec.field(default_factory=dict)

    @property
    def program(self) -> str:
        """The program of the account."""
        return self.account.partition("/")[0]

    @property
    def lifetime(self) -> Lifetime:
        """When the credential was read, and when it ends."""
        return Lifetime(self.read, self.expires)


def run_account_path(directory: RunDir) -> Path:
    """Return the path of the record: each crew has a directory of its own, named by the digest of its root."""
    crew = hashlib.sha256(os.fsencode(directory.paths.root)).hexdigest()[:32]
    return state_directory(os.environ, Path.home()) / RECORDS_DIRECTORY / crew / f"{directory.run}.json"


def write_run_account(directory: RunDir, account: RunAccount) -> None:
    """Record the account of a run, and remove the records of runs that have no directory any more. Raises OSError."""
    path = run_account_path(directory)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write(path, msgspec.json.encode(account) + b"\n", label="run-account")
    for other in path.parent.glob("*.json"):
        # A file that is no record of a run is left alone.
        with suppress(LizaError, OSError):
            if other != path and not RunDir(directory.paths, other.stem).exists():
                other.unlink(missing_ok=True)


def forget_run_account(directory: RunDir) -> None:
    """Remove the record of an earlier run with the same id: of a crew that was here before. Raises OSError."""
    run_account_path(directory).unlink(missing_ok=True)


def has_run_account(directory: RunDir) -> bool:
    """Return whether the run has an account. It is recorded before the session starts, and kept as long as the run."""
    return run_account_path(directory).exists()


def read_run_account(directory: RunDir) -> RunAccount | None:
    """Return the account of a run; None if it uses none.

    Raises Missing if it uses one and the record is not there, LizaError if the record cannot be read.
    """
    account = read_struct(run_account_path(directory), RunAccount)
    if account is None:
        record = directory.read_record()
        if record is not None and record.has_account:
            raise Missing(
                f"the account of {directory.run} is not on record at {run_account_path(directory)}: the repository was "
                "renamed, or the session was started with another XDG_STATE_HOME",
                "liza down && liza up",
            )
    return account


def account_of(directory: RunDir) -> str | None:
    """Return the id of the run's account; None if it has none or that is unknown."""
    account = _find_run_account(directory)
    return account.account if account is not None else None


def _find_run_account(directory: RunDir) -> RunAccount | None:
    """Return the account of a run; None if it has none or that is unknown."""
    with suppress(LizaError, OSError):
        return read_run_account(directory)
    return None


def account_parts(directory: RunDir, used: TokenUsage | None) -> dict[str, TokenUsage]:
    """Return the parts of the run's usage by account; none if the account never changed or is unknown."""
    account = _find_run_account(directory)
    return {} if account is None or used is None or not account.used else parts_by_account(account, used)


def parts_by_account(account: RunAccount, used: TokenUsage) -> dict[str, TokenUsage]:
    """Return what the run used with each account; what no earlier account used is of the present one."""
    own = account.used.get(account.account, TokenUsage())
    new = usage_since(used, sum(account.used.values(), TokenUsage()))
    return {**account.used, account.account: own + new}


def config_dir_of(directory: RunDir) -> str:
    """Return the account's own configuration directory; empty if it has none or that is unknown."""
    account = _find_run_account(directory)
    return account.config_dir if account is not None else ""


def session_environ(directory: RunDir, preset: Preset, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return ``environ`` with the directories in which the program of a run writes its logs.

    They are those of its box, or the configuration directory of its account.
    """
    own = config_dir_of(directory)
    if own and preset.config_dir_env:
        environ = {**environ, preset.config_dir_env: str(Path(own))}
    try:
        record = directory.read_record()
    except (LizaError, OSError):
        return environ
    if record is None or not record.is_confined:
        return environ
    box = private_state.find_box(directory, record)
    return {
        **environ,
        **private_state.state_variables(private_state.list_directories(preset, box, environ, Path.home())),
    }
