"""What a person has confirmed by a command: settings, and the address of ``origin``. Only this counts.

It is in the file of the pins, ``.liza/pins.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from liza.config.rules import settings
from liza.config.rules.settings import UnconfirmedSetting
from liza.model import setting_limits
from liza.model.configuration import Config
from liza.model.errors import LizaError, Missing
from liza.model.model import State
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.system import atomic, untrusted_files
from liza.system.locks import lock_path

SETTINGS_KEY, ORIGIN_KEY = "settings", "origin"
LOCK_TIMEOUT = 10.0
"""Seconds to wait for another process that writes the pins."""
_RECREATE_COMMAND = "liza doctor --fix"
_cache: dict[Path, tuple[object, dict[str, Any] | None]] = {}


def load_pins(path: Path) -> dict[str, Any]:
    """Return what a person has confirmed: the settings, and the address as a ``push_address.PushAddress``, by key.

    Raises Missing if the file is missing or invalid, NotRegularFile.
    """
    try:
        pins: dict[str, Any] = json.loads(untrusted_files.read_record(path))
        if pins.get(SETTINGS_KEY) is not None and not settings.are_valid(pins[SETTINGS_KEY]):
            raise ValueError("its settings are not valid")
    except FileNotFoundError as error:
        raise Missing(f"the file of confirmed settings {path} is missing", _RECREATE_COMMAND) from error
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise Missing(f"the file of confirmed settings {path} cannot be read: {error}", _RECREATE_COMMAND) from error
    return pins


def create_pins(paths: Paths) -> None:
    """Write pins in which nothing is confirmed. Raises OSError, LockTimeout."""
    with lock_path(paths.pins_lock, LOCK_TIMEOUT):
        atomic.write(paths.pins, b"{}\n")


def with_trusted_settings(paths: Paths, state: State) -> State:
    """Return the board with the settings that count.

    Without confirmed settings, or if the pins are missing, all count that are written: commands that need the pins
    refuse then. A number outside its limits never counts.
    """
    confirmed = _read_confirmed(paths)
    config = state.config if confirmed is None else settings.effective_config(state.config, confirmed)
    config = setting_limits.with_usable_numbers(config)
    return state if config is state.config else replace(state, config=config)


def find_unconfirmed(paths: Paths, written: State) -> tuple[UnconfirmedSetting, ...] | None:
    """Return the settings on the written board that do not count. Empty if ``damaged`` reports an error, and on a
    server: who can write that board is trusted.

    None if there are pins without settings: they are from an older version, or the settings were removed.
    """
    if _is_on_server(paths):
        return ()
    confirmed = _read_confirmed(paths)
    if confirmed is None:
        return None if paths.pins.exists() and damaged(paths) is None else ()
    return settings.find_unconfirmed(written.config, confirmed)


def damaged(paths: Paths) -> LizaError | None:
    """Return the error if the pins exist and cannot be read, else None."""
    try:
        if paths.pins.exists():
            load_pins(paths.pins)
    except LizaError as error:
        return error
    return None


def confirm_settings(paths: Paths, given: Mapping[str, Any], standing: Config) -> None:
    """Confirm these values. Does nothing without readable pins, for nothing runs then, and for a board on a server.

    Raises OSError, LockTimeout.

    If no setting was ever confirmed, as in a crew of an older version, all others are confirmed as they are in
    ``standing``. Otherwise one confirmed value would reset the test command to its default, which is none.
    """
    if not _is_on_server(paths):
        _add_to_pins(paths, SETTINGS_KEY, given, standing)


def accept_origin(paths: Paths, address: Mapping[str, Any]) -> None:
    """Accept the address of ``origin``, with all fields of a ``PushAddress``. Raises OSError, LockTimeout."""
    _add_to_pins(paths, ORIGIN_KEY, address)


def _add_to_pins(paths: Paths, key: str, given: Mapping[str, Any], standing: Config | None = None) -> None:
    if not given or not paths.pins.exists():
        return
    # Without the lock, of two concurrent read-modify-write cycles one would be lost.
    with lock_path(paths.pins_lock, LOCK_TIMEOUT):
        try:
            pins = load_pins(paths.pins)
        except LizaError:
            return
        if standing is not None and _read_confirmed(paths) is None:
            given = {**settings.confirmable_values(standing), **given}
        section = pins.get(key)
        pins[key] = {**(section if isinstance(section, dict) else {}), **given}
        atomic.write(paths.pins, f"{json.dumps(pins, indent=1)}\n".encode())


def confirm_all_settings(paths: Paths, written: State) -> None:
    """Confirm all settings on the board. Raises OSError, LockTimeout."""
    confirm_settings(paths, settings.confirmable_values(written.config), written.config)


def export_settings(paths: Paths) -> bytes | None:
    """Return the confirmed settings in the format of the history, or None."""
    confirmed = _read_confirmed(paths)
    return None if confirmed is None else (json.dumps(confirmed, indent=1, sort_keys=True) + "\n").encode()


def restore_confirmed(paths: Paths, kept: bytes | None, first: Config) -> None:
    """Restore the confirmed settings from the history after the pins were lost.

    Without any, as in a crew of an older version, the settings that ``init`` wrote count. Raises OSError, LockTimeout.
    """
    try:
        recorded = {} if kept is None else json.loads(kept)
    except (ValueError, RecursionError):
        recorded = None
    confirmed = recorded if recorded and settings.are_valid(recorded) else settings.confirmable_values(first)
    confirm_settings(paths, {**settings.confirmable_values(Config()), **confirmed}, first)


def _read_confirmed(paths: Paths) -> dict[str, Any] | None:
    """Return the confirmed settings; None without any, and for a board on a server, whose settings all count.

    The file is read again only if it has changed.
    """
    if _is_on_server(paths):
        return None
    try:
        status = paths.pins.stat()
    except OSError:
        return None
    stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
    cached = _cache.get(paths.pins)
    if cached is None or cached[0] != stamp:
        try:
            confirmed = settings.normalize(load_pins(paths.pins).get(SETTINGS_KEY))
        except LizaError:
            confirmed = None
        cached = _cache[paths.pins] = (stamp, confirmed)
    return cached[1]


def _is_on_server(paths: Paths) -> bool:
    return paths.board_address.exists()
