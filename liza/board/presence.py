"""Whether a directory has the board of a crew: its file, or the address of the server that has it."""

from __future__ import annotations

from pathlib import Path

from liza.model.paths import Paths


def has_board(paths: Paths) -> bool:
    """Return whether there is a board: `.liza/state.yaml`, or `.liza/board.toml` with its address."""
    return paths.state.exists() or paths.board_address.exists()


def has_board_or_intent(paths: Paths) -> bool:
    """Return whether there is a board, or the write intent of one whose file is gone. The next reader restores it."""
    return has_board(paths) or paths.write_intent.exists()


def find_board_path(paths: Paths) -> Path:
    """Return the file of the board: its text, or its address."""
    return paths.board_address if paths.board_address.exists() else paths.state
