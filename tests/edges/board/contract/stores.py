"""The stores of a board that the contract suite runs against, and what each of them refuses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.address import write_address
from liza.board.contract import Board
from liza.board.file_store.file_board import FileBoard
from liza.board.opening import open_board
from liza.model.model import Clock
from liza.model.paths import Paths

if TYPE_CHECKING:
    from tests.postgresql import PostgreSQL


class Store(ABC):
    """A kind of board. ``refused``: the methods that it refuses, with a part of the sentence."""

    refused: Mapping[str, str] = {}

    @abstractmethod
    def create(self, request: pytest.FixtureRequest, directory: Path) -> Paths:
        """Make a place for one crew, whose board is not written yet."""

    @abstractmethod
    def open(self, paths: Paths, clock: Clock) -> Board:
        """Open the board as a process that was just started does."""


class FileStore(Store):
    def create(self, request: pytest.FixtureRequest, directory: Path) -> Paths:
        return Paths(directory)

    def open(self, paths: Paths, clock: Clock) -> Board:
        return FileBoard(paths, clock)


class PostgresStore(Store):
    refused: Final = {"require_files": "needs a board in files"}

    def create(self, request: pytest.FixtureRequest, directory: Path) -> Paths:
        server: PostgreSQL = request.getfixturevalue("postgresql")
        paths = Paths(directory)
        paths.liza.mkdir()
        write_address(paths.board_address, server.address(request.getfixturevalue("database")))
        return paths

    def open(self, paths: Paths, clock: Clock) -> Board:
        return open_board(paths, clock)


STORES: Final = {"files": FileStore(), "postgresql": PostgresStore()}
NEEDS: Final[Mapping[str, str]] = {"postgresql": "postgresql"}
"""Store → the optional program that it needs."""
