"""What only the board's lock and its rename keep apart: proved at the very moment at which they count."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import msgspec
import pytest

from liza.board.file_store.file_board import FileBoard
from liza.model.model import HumanNote
from liza.model.paths import Paths
from tests.campaign import forks
from tests.conftest import FakeClock
from tests.edges.board.test_board_store import FIRST, NOW, messages, say


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


@pytest.fixture
def board(paths: Paths, clock: FakeClock) -> FileBoard:
    made = FileBoard(paths, clock)
    made.create(FIRST)
    return made


def _somebody_waits_for(path: Path) -> bool:
    inode = f":{path.stat().st_ino}"
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_the_second_of_two_simultaneous_transactions_waits_and_counts(board: FileBoard, paths: Paths) -> None:
    second = threading.Thread(target=say, args=(FileBoard(paths, FakeClock()), "second"))
    with board.transaction("human", "note") as tx:
        second.start()
        while second.is_alive() and not _somebody_waits_for(paths.state_lock):
            pass
        notes = (*tx.state.human_notes, HumanNote(timestamp=NOW, message="first"))
        tx.state = msgspec.structs.replace(tx.state, human_notes=notes)
    second.join()
    assert messages(board.read()) == ["first", "second"]
    assert board.take_alerts() == []


def test_a_reader_that_opened_the_old_board_reads_it_whole(board: FileBoard, paths: Paths) -> None:
    before = paths.state.read_bytes()
    with paths.state.open("rb") as reader:
        say(board, "a change")
        assert reader.read() == before
    assert messages(board.read()) == ["a change"]


def _killed_half_way(paths: Paths, number: int) -> bool:
    """A transaction in a process that dies when half of its write of that number is out; whether it came to that."""
    pid = os.fork()
    if pid == 0:
        forks.arm(f"part#{number}")
        try:
            say(FileBoard(paths, FakeClock()), "second")
        finally:
            os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def test_a_killed_write_leaves_the_old_or_the_new_board(board: FileBoard, paths: Paths) -> None:
    say(board, "first")
    number = 1
    while _killed_half_way(paths, number):
        other = FileBoard(paths, FakeClock())
        assert messages(other.read()) == ["first"]
        say(other, "after")
        assert other.take_alerts() == []
        with other.transaction("human", "note") as tx:
            tx.state = msgspec.structs.replace(tx.state, human_notes=tx.state.human_notes[:1])
        number += 1
    assert number > 3  # the new board, its line of the journal, the write intent
    assert messages(FileBoard(paths, FakeClock()).read()) == ["first", "second"]
