"""PAUSE, CHECKPOINT and ABORT: files in ``.liza/`` that a person can create and every supervisor obeys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from liza.board.signals import SIGNALS, Signal, check_name, parse_signal
from liza.model.errors import LockTimeout, NotRegularFile
from liza.model.paths import Paths
from liza.system import files, untrusted_files
from liza.system.locks import lock_path

_LOCK_LIMIT: Final = 2.0  # seconds: a holder reads and writes a few small files

_MAX_REASON: Final = 1 << 16  # bytes


@contextmanager
def lock_signals(paths: Paths, *, is_stop: bool = False) -> Iterator[bool]:
    """Hold the lock for a change that depends on which signals are set, or by whom; yield whether it is held.

    Without it a signal that a person sets between the look and the change is overwritten or cleared. ``is_stop``: the
    change sets a signal. It is made without the lock if that cannot be taken: no process may keep a crew from being
    stopped. Otherwise raises LockTimeout, NotRegularFile.
    """
    with ExitStack() as stack:
        is_locked = False
        with suppress(*((LockTimeout, NotRegularFile) if is_stop else ())):
            stack.enter_context(lock_path(paths.locks / "signals.lock", _LOCK_LIMIT, files.BOARD_MODE))
            is_locked = True
        yield is_locked


def raise_signal(paths: Paths, name: str, text: str = "") -> None:
    """Create a signal file with ``text`` as the reason; replace an existing one.

    Raises UsageError for an unknown name.
    """
    files.replace_unsynced_via(paths.tx, paths.signal(check_name(name)), text.encode())


def clear_signal(paths: Paths, name: str) -> bool:
    """Remove a signal file; False if the signal is not set. Raises UsageError for an unknown name."""
    try:
        paths.signal(check_name(name)).unlink()
    except FileNotFoundError:
        return False
    return True


def read_signals(paths: Paths) -> dict[str, Signal]:
    """Return the signals whose files exist, the strongest first. A file that cannot be read has an empty text."""
    signals = {}
    for name in SIGNALS:
        path = paths.signal(name)
        try:
            time = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except OSError:
            continue
        text = ""
        with suppress(OSError, NotRegularFile):
            text = untrusted_files.read(path, _MAX_REASON).decode(errors="replace")
        signals[name] = parse_signal(name, text, time)
    return signals
