"""What every store promises of signals, of watching, and of many processes."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from liza.board.contract import Board
from liza.board.events import BoardChanged, FileChanged, SignalChanged, WatchEvent
from liza.model.errors import UsageError
from liza.model.paths import Paths
from tests.edges.board.contract.changes import beat, messages, say, start_writer

LONG = 30.0
"""Seconds after which something that was waited for does not come."""


def wait_for(events: queue.Queue[WatchEvent], *kinds: type) -> WatchEvent:
    """Return the first event of one of these kinds."""
    while not isinstance(event := events.get(timeout=LONG), kinds):
        pass
    return event


# ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_signal_is_seen_by_all_with_author_and_reason(board: Board, other: Board) -> None:
    assert dict(board.signals()) == {}
    board.raise_signal("PAUSE", "2026-01-01T12:00:00Z human:ann\nfor lunch\nand a walk\n")
    paused = other.signals()["PAUSE"]
    assert (paused.name, paused.author, paused.reason) == ("PAUSE", "human:ann", "for lunch and a walk")
    assert paused.text.endswith("for lunch\nand a walk\n")
    assert paused.time is not None


def test_the_strongest_signal_comes_first(board: Board) -> None:
    for name in ("PAUSE", "ABORT", "CHECKPOINT"):
        board.raise_signal(name)
    assert list(board.signals()) == ["ABORT", "CHECKPOINT", "PAUSE"]


def test_a_signal_is_replaced_and_cleared_once(board: Board, other: Board) -> None:
    board.raise_signal("PAUSE", "first")
    board.raise_signal("PAUSE", "second")
    assert other.signals()["PAUSE"].reason == "second"
    assert [board.clear_signal("PAUSE"), other.clear_signal("PAUSE")] == [True, False]
    assert dict(board.signals()) == {}


def test_an_unknown_signal_is_refused(board: Board) -> None:
    for change in (board.raise_signal, board.clear_signal):
        with pytest.raises(UsageError, match="STOP"):
            change("STOP")


def test_a_stop_is_set_while_another_holds_the_signals(board: Board, other: Board) -> None:
    with board.lock_signals() as is_held:
        assert is_held
        with other.lock_signals(is_stop=True) as is_held_too:
            assert not is_held_too
            other.raise_signal("PAUSE", "now")
        assert list(board.signals()) == ["PAUSE"]
    with other.lock_signals() as is_held:
        assert is_held


def test_signals_change_no_revision(board: Board) -> None:
    board.raise_signal("PAUSE")
    board.clear_signal("PAUSE")
    assert board.read().revision == 1


# ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_watch_sees_a_change_by_another_process(board: Board, store_name: str, paths: Paths) -> None:
    events: queue.Queue[WatchEvent] = queue.Queue()
    with board.watch() as watch:
        watch.subscribe(events)
        assert start_writer(store_name, paths.root, "other", 1).wait(LONG) == 0
        wait_for(events, BoardChanged)
    assert messages(board.read()) == ["other 0"]


def test_a_watch_sees_heartbeats_and_signals(board: Board, other: Board) -> None:
    events: queue.Queue[WatchEvent] = queue.Queue()
    with board.watch() as watch:
        watch.subscribe(events)
        beat(other, 5)
        wait_for(events, BoardChanged)
        other.raise_signal("PAUSE")
        wait_for(events, BoardChanged, SignalChanged)


def test_a_watch_sees_files_of_further_directories(board: Board, tmp_path: Path) -> None:
    directory = tmp_path / "further"
    events: queue.Queue[WatchEvent] = queue.Queue()
    with board.watch((directory,)) as watch:
        watch.subscribe(events)
        (directory / "file").write_text("text")
        assert wait_for(events, FileChanged) == FileChanged((directory / "file").resolve())


# ── many processes ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_writers_in_many_processes_lose_no_change(board: Board, store_name: str, paths: Paths) -> None:
    writers = [start_writer(store_name, paths.root, f"w{number}", 10) for number in range(4)]
    assert [writer.wait(LONG) for writer in writers] == [0] * 4
    for writer in range(4):
        own = [text for text in messages(board.read()) if text.startswith(f"w{writer}")]
        assert own == [f"w{writer} {number}" for number in range(10)]
    assert [record.revision for record in board.records()] == list(range(41, 0, -1))


def test_writers_in_many_threads_take_turns(board: Board) -> None:
    threads = [threading.Thread(target=say, args=(board, f"thread {number}")) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert sorted(messages(board.read())) == [f"thread {number}" for number in range(8)]


def test_a_reader_among_writers_never_goes_back(board: Board, other: Board) -> None:
    thread = threading.Thread(target=lambda: [say(board, str(number)) for number in range(20)])
    thread.start()
    seen = [0]
    while seen[-1] < 21:
        seen.append(other.read().revision)
    thread.join(LONG)
    assert seen == sorted(seen)


def test_a_killed_writer_leaves_a_whole_board(
    board: Board, store_name: str, paths: Paths, open_anew: Callable[[], Board]
) -> None:
    written = 0
    for name in ("first", "second", "third"):
        writer = start_writer(store_name, paths.root, name, 10_000)
        assert writer.stdout is not None
        with closing(writer.stdout) as acknowledged:
            for _ in range(4):
                written += acknowledged.readline() != ""
            writer.send_signal(signal.SIGKILL)
            writer.wait(LONG)
            written += len(acknowledged.readlines())
    fresh = open_anew()
    newest = say(fresh, "after them")
    revisions = [line.revision for line, _ in fresh.texts()]
    # Three writers died: the number of a revision that one of them did not write is not used again.
    assert newest - 3 <= len(revisions) <= newest
    assert revisions == sorted(set(revisions))
    assert (revisions[0], revisions[-1]) == (1, newest)
    assert [record.revision for record in fresh.records()] == revisions[::-1]
    assert written + 2 <= len(revisions) == len(messages(fresh.read())) + 1
