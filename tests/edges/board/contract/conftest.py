"""Each test of the contract gets a board of each store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from liza.board.contract import Board
from liza.model.paths import Paths
from liza.system.clock import SystemClock
from tests.edges.board.contract.changes import FIRST
from tests.edges.board.contract.stores import NEEDS, STORES, Store

_PARAMETERS = [
    pytest.param(name, id=name, marks=[pytest.mark.needs(NEEDS[name])] if name in NEEDS else []) for name in STORES
]


@pytest.fixture(params=_PARAMETERS)
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(store_name: str) -> Store:
    return STORES[store_name]


@pytest.fixture
def paths(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Paths:
    return store.create(request, tmp_path)


@pytest.fixture
def open_anew(store: Store, paths: Paths) -> Callable[[], Board]:
    """Open the board as another process does, which has read nothing."""
    return lambda: store.open(paths, SystemClock())


@pytest.fixture
def board(open_anew: Callable[[], Board]) -> Board:
    board = open_anew()
    board.create(FIRST)
    return board


@pytest.fixture
def other(board: Board, open_anew: Callable[[], Board]) -> Board:
    """The board as another process sees it."""
    return open_anew()
