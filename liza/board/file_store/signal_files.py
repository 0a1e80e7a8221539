"""PAUSE, CHECKPOINT and ABORT: files in ``.liza/`` that a person can create and every supervisor obeys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from liza.board.signals import SIGNALS, check_name, parse_author, parse_reason
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


def active_signals(paths: Paths) -> tuple[str, ...]:
    """Return the signals whose files exist, the strongest first."""
    return tuple(name for name in SIGNALS if paths.signal(name).exists())


def read_signal_text(paths: Paths, name: str) -> str | None:
    """Return the text of a signal file; None if the signal is not set. Raises UsageError for an unknown name."""
    try:
        return untrusted_files.read(paths.signal(check_name(name)), _MAX_REASON).decode(errors="replace")
    except FileNotFoundError:
        return None


def read_author(paths: Paths, name: str) -> str:
    """Return who set a signal, from the header of its file.

    Empty if there is no such file, no header, or the file cannot be read. Raises UsageError for an unknown name.
    """
    return parse_author(_read_or_empty(paths, name))


def read_reason(paths: Paths, name: str) -> str:
    """Return the reason of a signal in one line, without the header.

    Empty if there is no such file, no reason, or the file cannot be read. Raises UsageError for an unknown name.
    """
    return parse_reason(_read_or_empty(paths, name))


def _read_or_empty(paths: Paths, name: str) -> str:
    try:
        return read_signal_text(paths, name) or ""
    except (OSError, NotRegularFile):
        return ""
