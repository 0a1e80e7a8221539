"""The stores of a board that the contract suite runs against, and what each of them refuses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from liza.board.contract import Board
from liza.board.file_store.file_board import FileBoard
from liza.model.model import Clock
from liza.model.paths import Paths


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


STORES: Final = {"files": FileStore()}
NEEDS: Final[Mapping[str, str]] = {}
"""Store → the optional program that it needs."""
