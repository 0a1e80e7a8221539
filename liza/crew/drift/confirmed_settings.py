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
from liza.rules.settings import Unconfirmed
from liza.system import small_file
from liza.system.flock import locked

KEY, REVIEWED = "settings", "reviewed"
EVERY_REF = "*"
LIMIT = 10.0  # seconds to wait for another that confirms
_seen: dict[Path, tuple[object, dict[str, Any] | None]] = {}


def trusted(paths: Paths, state: State) -> State:
    """The board with the settings that count. As it is where nothing was ever confirmed, or the pins are gone: whatever
    needs them refuses by itself."""
    known = _settings(paths)
    config = state.config if known is None else settings.effective(state.config, known)
    return state if config is state.config else replace(state, config=config)


def unconfirmed(paths: Paths, written: State) -> tuple[Unconfirmed, ...] | None:
    """The settings on the board, as it is written, that do not count; nothing where ``damaged`` says more. None where
    there are pins and no settings among them: of an older version, or somebody took them out."""
    known = _settings(paths)
    if known is None:
        return None if paths.pins.exists() and damaged(paths) is None else ()
    return settings.unconfirmed(written.config, known)


def damaged(paths: Paths) -> LizaError | None:
    """What is wrong with pins that are there, and cannot be read."""
    try:
        if paths.pins.exists():
            Pins.load(paths.pins)
    except LizaError as wrong:
        return wrong
    return None


def confirm(paths: Paths, given: Mapping[str, Any], standing: Config) -> None:
    """Let these values count. Nothing where there are no pins that can be read: nothing runs then. Raises OSError,
    LockTimeout.

    Where no setting was ever confirmed, as in a crew of an older version, all others go on to count as they are in
    ``standing``: one confirmed value alone would have the test command count as its default, which is none.
    """
    _add(paths, KEY, given, standing)


def review(paths: Paths, ref: str, now: datetime) -> None:
    """Let what sessions did to a ref until now be as a person wants it. Raises OSError, LockTimeout."""
    _add(paths, REVIEWED, {ref: int(now.timestamp())})


def _add(paths: Paths, key: str, given: Mapping[str, Any], standing: Config | None = None) -> None:
    if not given or not paths.pins.exists():
        return
    # Of two that read, change and write at once, one would undo what the other confirmed.
    with locked(paths.pins_lock, LIMIT):
        words = _words(paths)
        if words is None:
            return
        if standing is not None and _settings(paths) is None:
            given = {**settings.values(standing), **given}
        before = words.get(key)
        words[key] = {**(before if isinstance(before, dict) else {}), **given}
        aside = paths.pins.with_name(f"{paths.pins.name}.{os.getpid()}")
        aside.write_text(json.dumps(words, indent=1) + "\n")
        aside.replace(paths.pins)


def confirm_all(paths: Paths, written: State) -> None:
    """Let everything count that stands on the board. Raises OSError."""
    confirm(paths, settings.values(written.config), written.config)


def written(paths: Paths) -> bytes | None:
    """The confirmed settings as the history keeps them; None where there are none."""
    known = _settings(paths)
    return None if known is None else (json.dumps(known, indent=1, sort_keys=True) + "\n").encode()


def confirm_kept(paths: Paths, kept: bytes | None, first: Config) -> None:
    """Let count again what the history has kept, after the pins were lost; where it has none, as in a crew of an older
    version, the settings that ``init`` wrote. Raises OSError."""
    try:
        words = {} if kept is None else json.loads(kept)
    except (ValueError, RecursionError):
        words = None
    known = words if words and settings.are_valid(words) else settings.values(first)
    confirm(paths, {**settings.values(Config()), **known}, first)


def _settings(paths: Paths) -> dict[str, Any] | None:
    """What was confirmed, read again only where the file has changed."""
    try:
        found = paths.pins.stat()
    except OSError:
        return None
    stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
    known = _seen.get(paths.pins)
    if known is None or known[0] != stamp:
        words = _words(paths)
        inside = None if words is None else words.get(KEY)
        known = _seen[paths.pins] = (stamp, inside if settings.are_valid(inside) else None)
    return known[1]


def _words(paths: Paths) -> dict[str, Any] | None:
    try:
        words = json.loads(small_file.read(paths.pins))
    except (OSError, ValueError, LizaError, RecursionError):
        return None
    return words if isinstance(words, dict) else None
