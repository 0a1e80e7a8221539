"""A client of a board in PostgreSQL that stops itself in the middle of a read, for tests that look at the others.

    python -m tests.edges.board.postgres_reader ROOT WHERE [SECONDS]

It prints ``ready``, and begins with a line on stdin. WHERE is one of ``Where``. It stops when the first bytes of the
answer are there. Continued, it prints the revision of its change, or ``refused``. SECONDS is the limit for a
transaction without a statement.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from liza.board.contract import Board
from liza.board.opening import open_board
from liza.board.postgresql import connection, crew_lock
from liza.model.errors import BoardUnavailable
from liza.model.paths import Paths
from liza.system.clock import SystemClock

_READABLE = 1  # as psycopg.waiting.Ready


class Where(StrEnum):
    """The read in which the client stops."""

    NEWER = "what is newer, with the lock"
    ARCHIVE = "the archive, with the lock"
    ALONE = "the archive, without the lock"


def stop_at_the_next_answer() -> None:
    """Let this process stop when the server has begun its next answer."""
    wait = vars(connection)["_give_up"]

    def stop(inner: Generator[Any, Any, Any], limit: float) -> Generator[Any, Any, Any]:
        patched = wait(inner, limit)
        try:
            wanted = next(patched)
            while True:
                ready = yield wanted
                if ready & _READABLE and vars(connection)["_give_up"] is stop:
                    vars(connection)["_give_up"] = wait
                    os.kill(os.getpid(), signal.SIGSTOP)
                wanted = patched.send(ready)
        except StopIteration as done:
            return done.value

    vars(connection)["_give_up"] = stop


def read_and_change(board: Board, where: Where) -> int | None:
    """Stop in a read, and change the board after it; return the revision."""
    if where is not Where.ARCHIVE:
        stop_at_the_next_answer()
    if where is Where.ALONE:
        list(board.archived_tasks())
    with board.transaction("reader", "read") as tx:
        if where is Where.ARCHIVE:
            stop_at_the_next_answer()
            list(board.archived_tasks())
        tx.state = msgspec.structs.replace(tx.state, human_notes=())
    return tx.revision


def main(root: str, where: str, seconds: float = 0) -> None:
    """Read the board, wait for a line, and stop in the next read."""
    if seconds:
        vars(connection)["_SETTINGS"]["idle_in_transaction_session_timeout"] = f"{seconds}s"
        crew_lock.IDLE_LIMIT = seconds  # type: ignore[misc]
    board = open_board(Paths(Path(root)), SystemClock())
    board.read()
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print(read_and_change(board, Where[where]), flush=True)
    except BoardUnavailable as error:
        print("refused", error.message, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
