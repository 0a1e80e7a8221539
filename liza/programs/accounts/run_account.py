"""``account.json`` in the directory of a run: the account of its session. It contains no secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir, read_struct
from liza.rules.errors import LizaError
from liza.rules.model import AwareDatetime, FrozenStruct
from liza.rules.worker_api.account_rules import Lifetime
from liza.system import atomic

ACCOUNT_FILE = "account.json"


class RunAccount(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``account`` is an id, ``PROGRAM/NAME``. ``config_dir`` is the account's own directory: conversations in it cannot
    be continued with another one. ``read`` and ``expires``: when the secret was read, and when it ends, if known.
    ``changes`` counts how often a living worker was given another credential; ``reason``: why it was, the last time, as
    long as the worker has not acknowledged it."""

    account: str
    read: AwareDatetime
    expires: AwareDatetime | None = None
    config_dir: str = ""
    changes: int = 0
    reason: str | None = None

    @property
    def lifetime(self) -> Lifetime:
        """When the credential was read, and when it ends."""
        return Lifetime(self.read, self.expires)


def write_run_account(directory: RunDir, account: RunAccount) -> None:
    """Record the account of a run. Raises OSError."""
    atomic.write(directory.path / ACCOUNT_FILE, msgspec.json.encode(account) + b"\n")


def read_run_account(directory: RunDir) -> RunAccount | None:
    """Return the account of a run; None if it uses none. Raises LizaError if the file cannot be read."""
    return read_struct(directory.path / ACCOUNT_FILE, RunAccount)


def account_of(directory: RunDir) -> str | None:
    """Return the id of the run's account; None if it has none or that is unknown."""
    try:
        account = read_run_account(directory)
    except LizaError:
        return None
    return account.account if account is not None else None


def config_dir_of(directory: RunDir) -> str:
    """Return the account's own configuration directory; empty if it has none or that is unknown."""
    try:
        account = read_run_account(directory)
    except LizaError:
        return ""
    return account.config_dir if account is not None else ""


def session_environ(directory: RunDir, preset: Preset, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return ``environ`` with the configuration directory of the run's account: its program writes its logs there."""
    own = config_dir_of(directory)
    return {**environ, preset.config_dir_env: str(Path(own))} if own and preset.config_dir_env else environ
