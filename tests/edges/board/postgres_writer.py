"""A client of a board in PostgreSQL for tests that kill it, stop it, or kill the server.

    python -m tests.edges.board.postgres_writer ROOT NAME COUNT [SECONDS]

It prints the revision of each change, ``unknown`` for one that was refused with exit status 75, and ``inside`` in the
block of each. SECONDS is the limit for a transaction without a statement.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from liza.board.contract import Board
from liza.board.opening import open_board
from liza.board.postgresql import connection, crew_lock
from liza.model.errors import BoardUnavailable
from liza.model.paths import Paths
from liza.system.clock import SystemClock


def count_up(board: Board, name: str, event: str) -> int:
    """Add one to a number on the board; return the revision. The journal has ``event``."""
    with board.transaction(name, event, task="t1") as tx:
        task = tx.state.task("t1")
        assert task is not None
        tx.state = tx.state.with_task(msgspec.structs.replace(task, iteration=task.iteration + 1))
        print("inside", flush=True)
    assert tx.revision is not None
    return tx.revision


def main(root: str, name: str, count: int, seconds: float = 0) -> None:
    """Write so many changes."""
    if seconds:
        vars(connection)["_SETTINGS"]["idle_in_transaction_session_timeout"] = f"{seconds}s"
        crew_lock.IDLE_LIMIT = seconds  # type: ignore[misc]
    board = open_board(Paths(Path(root)), SystemClock())
    for number in range(count):
        try:
            print(count_up(board, name, f"write {number}"), flush=True)
        except BoardUnavailable as error:
            print("unknown", error.message, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(float, sys.argv[4:]))
