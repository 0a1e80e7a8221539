"""Open the board of a crew in the store that has it."""

from __future__ import annotations

from collections.abc import Callable

from liza.board.contract import Board
from liza.board.file_store.file_board import FileBoard
from liza.model.model import Clock, State
from liza.model.paths import Paths


def open_board(paths: Paths, clock: Clock, trusted: Callable[[State], State] = lambda state: state) -> Board:
    """Return the board of a crew. ``trusted`` replaces the settings that were read by the effective ones."""
    return FileBoard(paths, clock, trusted)
