"""The last copy of a board on a server, for people who look while the server is gone. It is never changed or acted on.

Each clone has one: the text of the board, and the signals, as the last commands here read them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec

from liza.board.contract import Board
from liza.board.rules.host_leases import AgentPlacement
from liza.board.signals import Signal, parse_signal
from liza.board.text import document
from liza.model.errors import BoardUnavailable, LizaError
from liza.model.model import State
from liza.model.paths import Paths, run_id
from liza.model.value_classes import decodable
from liza.system import atomic, files, untrusted_files

SAVE_INTERVAL: Final = 1.0
"""Seconds between two copies: a process that reads at each change must not write at each change, too."""

WITHOUT_SERVER: Final = "liza doctor"
"""The command for a person whose server does not answer: it says what is wrong, and what helps."""

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class CopySaver:
    """Saves what a process reads, at most once in SAVE_INTERVAL. A copy that cannot be written is left out."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._saved: dict[Path, tuple[float, object]] = {}

    def save_text(self, text: str) -> None:
        """Save the text of the board."""
        self._save(self._paths.board_copy, text, text.encode)

    def save_signals(self, signals: Mapping[str, Signal]) -> None:
        """Save the signals that are set."""
        rows = [(signal.name, signal.text, signal.time) for signal in signals.values()]
        self._save(self._paths.signals_copy, rows, lambda: msgspec.json.encode(rows))

    def _save(self, path: Path, value: object, encode: Any) -> None:
        saved_at, saved = self._saved.get(path, (0.0, None))
        now = time.monotonic()
        if saved_at and now - saved_at < SAVE_INTERVAL:
            return
        with suppress(OSError):
            if value == saved:
                path.touch()  # the time of a copy is that of the last read
            else:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                atomic.write(path, encode(), sync=False)
            self._saved[path] = now, value


class CopyBoard(Board):
    """The last copy as a board that can only be read. What it has not raises ``reason``."""

    def __init__(self, paths: Paths, reason: BoardUnavailable) -> None:
        self._paths, self._reason = paths, reason

    @property
    def age(self) -> float:
        """Seconds since the copy was read from the server. Raises ``reason`` without a copy."""
        try:
            return max(0.0, time.time() - self._paths.board_copy.stat().st_mtime)
        except OSError:
            raise self._reason from None

    def read(self) -> State:
        return self.read_as_written()

    def read_as_written(self) -> State:
        return document.load_state(self.read_text())

    def read_text(self) -> str:
        try:
            return untrusted_files.read(self._paths.board_copy, files.MAX_BOARD_SIZE).decode()
        except (OSError, LizaError, UnicodeDecodeError):
            raise self._reason from None

    def unknown_config(self) -> tuple[str, ...]:
        return document.find_unknown_config(self.read_text())

    def take_alerts(self) -> list[Any]:
        return []

    def hosts(self) -> None:
        """Which hosts are alive, only the server knows."""

    def signals(self) -> Mapping[str, Signal]:
        if not self._paths.signals_copy.exists():
            return {}  # No command here has asked for them yet.
        try:
            data = untrusted_files.read_record(self._paths.signals_copy)
            rows = msgspec.json.decode(data, type=decodable(list[tuple[str, str, Any]]))
        except (OSError, LizaError, msgspec.DecodeError):
            raise self._reason from None
        return {name: parse_signal(name, text, None) for name, text, _ in rows}

    def held_agents(self) -> Mapping[str, AgentPlacement]:
        """Return where the agents of the copy worked last: only the server knows whether they still do."""
        rows = [(name, agent) for name, agent in self.read().agents.items() if agent.host]
        return {
            name: AgentPlacement(name, agent.host, UUID(int=0), agent.heartbeat or _LONG_AGO, run_id(name, agent.runs))
            for name, agent in rows
        }

    def lost_runs(self) -> frozenset[str]:
        """Return no run: only the server knows which hosts are lost."""
        return frozenset()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self._reason

    records = texts = last_good_text = archived = archived_ids = archived_tasks = find_merged = _refuse
    count_archived = find_archive_damage = find_faulty_entries = transaction = heartbeat = create = _refuse
    replace_text = transform_text = restore = raise_signal = clear_signal = lock_signals = _refuse
    read_archive = restore_archive = watch = pages = write_page = require_files = _refuse
    acts_for = take_duty = forget_host = _refuse
    begin_session = end_session = _refuse


def find_age(board: Board) -> float | None:
    """Return the seconds since a copy was read from the server; None for a board that is read itself."""
    return board.age if isinstance(board, CopyBoard) else None
