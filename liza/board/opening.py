"""Open the board of a crew in the store that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from liza.board.address import BoardAddress, read_address
from liza.board.contract import Board
from liza.board.file_store.file_board import FileBoard
from liza.board.last_copy import CopyBoard
from liza.model.errors import BoardUnavailable, Missing
from liza.model.model import Clock, State
from liza.model.paths import Paths

_unavailable: BoardUnavailable | None = None
_is_look = False


def open_board(paths: Paths, clock: Clock, trusted: Callable[[State], State] = lambda state: state) -> Board:
    """Return the board of a crew. ``trusted`` replaces the settings that were read by the effective ones.

    Raises UsageError if the address of the board cannot be read.
    """
    address = read_address(paths.board_address) if paths.board_address.exists() else None
    if address is None:
        return FileBoard(paths, clock, trusted)
    if _unavailable is not None:
        return CopyBoard(paths, _unavailable)
    return open_server_board(address, paths, clock, trusted, is_look=_is_look and paths.board_copy.exists())


def open_server_board(
    address: BoardAddress,
    paths: Paths,
    clock: Clock,
    trusted: Callable[[State], State] = lambda state: state,
    *,
    is_look: bool = False,
) -> Board:
    """Return the board at ``address``. ``is_look``: give a server that does not answer up soon."""
    from liza.board.postgresql.postgres_board import PostgresBoard

    return PostgresBoard(paths, clock, address, trusted, is_look=is_look)


def load_server_store() -> None:
    """Import what a board on a server needs, if its packages are installed. It opens no connection.

    A process that forks others does this before, so that each of them saves 0.2 s.
    """
    with suppress(Missing):
        import liza.board.postgresql.postgres_board  # noqa: F401


@contextmanager
def look_soon() -> Iterator[None]:
    """Let the block give a server that does not answer up soon, if there is a last copy to show instead."""
    global _is_look
    _is_look = True
    try:
        yield
    finally:
        _is_look = False


@contextmanager
def use_last_copy(reason: BoardUnavailable) -> Iterator[None]:
    """Let the block open the last copy of a board on a server. What the copy has not raises ``reason``."""
    global _unavailable
    _unavailable = reason
    try:
        yield
    finally:
        _unavailable = None
