"""What a person has confirmed by a command: settings that count, kept beside the pins of git's configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from liza.repo.config_pins import Pins
from liza.rules import settings
from liza.rules.errors import LizaError
from liza.rules.model import Config, State
from liza.rules.paths import Paths
from liza.rules.settings import UnconfirmedSetting
from liza.system import small_file
from liza.system.flock import lock_path

SETTINGS_KEY, REVIEWED_KEY = "settings", "reviewed"
EVERY_REF = "*"
LIMIT = 10.0  # seconds to wait for another that confirms
_cache: dict[Path, tuple[object, dict[str, Any] | None]] = {}


def with_trusted_settings(paths: Paths, state: State) -> State:
    """The board with the settings that count. As it is where nothing was ever confirmed, or the pins are gone: whatever
    needs them refuses by itself."""
    known = _read_confirmed(paths)
    config = state.config if known is None else settings.effective_config(state.config, known)
    return state if config is state.config else replace(state, config=config)


def find_unconfirmed(paths: Paths, written: State) -> tuple[UnconfirmedSetting, ...] | None:
    """The settings on the board, as it is written, that do not count; nothing where ``damaged`` says more. None where
    there are pins and no settings among them: of an older version, or somebody took them out."""
    known = _read_confirmed(paths)
    if known is None:
        return None if paths.pins.exists() and damaged(paths) is None else ()
    return settings.find_unconfirmed(written.config, known)


def damaged(paths: Paths) -> LizaError | None:
    """What is wrong with pins that are there, and cannot be read."""
    try:
        if paths.pins.exists():
            Pins.load(paths.pins)
    except LizaError as wrong:
        return wrong
    return None


def confirm_settings(paths: Paths, given: Mapping[str, Any], standing: Config) -> None:
    """Let these values count. Nothing where there are no pins that can be read: nothing runs then. Raises OSError,
    LockTimeout.

    Where no setting was ever confirmed, as in a crew of an older version, all others go on to count as they are in
    ``standing``: one confirmed value alone would have the test command count as its default, which is none.
    """
    _add_to_pins(paths, SETTINGS_KEY, given, standing)


def accept_ref(paths: Paths, ref: str, now: datetime) -> None:
    """Let what sessions did to a ref until now be as a person wants it. Raises OSError, LockTimeout."""
    _add_to_pins(paths, REVIEWED_KEY, {ref: int(now.timestamp())})


def _add_to_pins(paths: Paths, key: str, given: Mapping[str, Any], standing: Config | None = None) -> None:
    if not given or not paths.pins.exists():
        return
    # Of two that read, change and write at once, one would undo what the other confirmed.
    with lock_path(paths.pins_lock, LIMIT):
        words = _read_pins(paths)
        if words is None:
            return
        if standing is not None and _read_confirmed(paths) is None:
            given = {**settings.confirmable_values(standing), **given}
        before = words.get(key)
        words[key] = {**(before if isinstance(before, dict) else {}), **given}
        aside = paths.pins.with_name(f"{paths.pins.name}.{os.getpid()}")
        aside.write_text(json.dumps(words, indent=1) + "\n")
        aside.replace(paths.pins)


def confirm_all_settings(paths: Paths, written: State) -> None:
    """Let everything count that stands on the board. Raises OSError."""
    confirm_settings(paths, settings.confirmable_values(written.config), written.config)


def export_settings(paths: Paths) -> bytes | None:
    """The confirmed settings as the history keeps them; None where there are none."""
    known = _read_confirmed(paths)
    return None if known is None else (json.dumps(known, indent=1, sort_keys=True) + "\n").encode()


def restore_confirmed(paths: Paths, kept: bytes | None, first: Config) -> None:
    """Let count again what the history has kept, after the pins were lost; where it has none, as in a crew of an older
    version, the settings that ``init`` wrote. Raises OSError."""
    try:
        words = {} if kept is None else json.loads(kept)
    except (ValueError, RecursionError):
        words = None
    known = words if words and settings.are_valid(words) else settings.confirmable_values(first)
    confirm_settings(paths, {**settings.confirmable_values(Config()), **known}, first)


def _read_confirmed(paths: Paths) -> dict[str, Any] | None:
    """What was confirmed, read again only where the file has changed."""
    try:
        found = paths.pins.stat()
    except OSError:
        return None
    stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
    known = _cache.get(paths.pins)
    if known is None or known[0] != stamp:
        words = _read_pins(paths)
        inside = None if words is None else words.get(SETTINGS_KEY)
        known = _cache[paths.pins] = (stamp, inside if settings.are_valid(inside) else None)
    return known[1]


def _read_pins(paths: Paths) -> dict[str, Any] | None:
    try:
        words = json.loads(small_file.read_small_file(paths.pins))
    except (OSError, ValueError, LizaError, RecursionError):
        return None
    return words if isinstance(words, dict) else None
