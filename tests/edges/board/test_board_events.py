"""Being told: what happens to the board, to signals and to other files arrives as typed events in a queue."""

from __future__ import annotations

import queue
import shutil
import threading
from pathlib import Path

import pytest
from watchdog.events import FileSystemEvent

from liza.board import directory_watch, events
from liza.board.events import BoardChanged, FileChanged, SignalChanged, WatchLost
from liza.board.file_store import signal_files
from liza.model.errors import UsageError
from liza.model.paths import Paths
from liza.system import file_growth


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.tx.mkdir(parents=True)
    return made


def until(inbox: queue.Queue[events.WatchEvent], wanted: events.WatchEvent) -> None:
    """Waits for one event, whatever else comes before it."""
    while inbox.get(timeout=10) != wanted:
        pass


def test_a_replaced_or_edited_board_is_an_event(paths: Paths) -> None:
    inbox: queue.Queue[events.WatchEvent] = queue.Queue()
    with directory_watch.DirectoryWatch(paths) as watch:
        watch.subscribe(inbox)
        (paths.tx / "next").write_text("a")
        (paths.tx / "next").rename(paths.state)
        until(inbox, BoardChanged())
        paths.state.write_text("b")
        until(inbox, BoardChanged())


def test_unwatched_changes_are_no_event(paths: Paths) -> None:
    inbox: queue.Queue[events.WatchEvent] = queue.Queue()
    with directory_watch.DirectoryWatch(paths) as watch:
        watch.subscribe(inbox)
        (paths.liza / "state.yaml.lock").write_text("x")
        (paths.tx / "seal").write_text("x")
        paths.state.write_text("last")
        assert inbox.get(timeout=10) == BoardChanged()


def test_deleted_pins_and_locks_are_events(paths: Paths) -> None:
    inbox: queue.Queue[events.WatchEvent] = queue.Queue()
    paths.pins.touch()
    paths.locks.mkdir()
    with directory_watch.DirectoryWatch(paths) as watch:
        watch.subscribe(inbox)
        for gone, delete in ((paths.pins, paths.pins.unlink), (paths.locks, paths.locks.rmdir)):
            delete()
            until(inbox, WatchLost(f"{gone.resolve()} was deleted", polling=False))


def test_signals_and_files_in_other_directories_are_events(paths: Paths) -> None:
    inbox: queue.Queue[events.WatchEvent] = queue.Queue()
    run = paths.run("coder-1.7")
    with directory_watch.DirectoryWatch(paths, [run]) as watch:
        watch.subscribe(inbox)
        signal_files.raise_signal(paths, "PAUSE", "for lunch")
        until(inbox, SignalChanged())
        (run / "ready").touch()
        until(inbox, FileChanged(run.resolve() / "ready"))


def test_each_wake_up_is_an_event(paths: Paths) -> None:
    inbox: queue.Queue[events.WatchEvent] = queue.Queue()
    bell = file_growth.wake_directory(paths)
    file_growth.wake_watchers(paths, "coder-1")
    with directory_watch.DirectoryWatch(paths, [bell]) as watch:
        watch.subscribe(inbox)
        file_growth.wake_watchers(paths, "coder-1")
        until(inbox, FileChanged(bell.resolve() / "coder-1"))


def test_what_happens_between_arming_and_asking_is_not_lost(paths: Paths) -> None:
    inbox: queue.Queue[events.WatchEvent] = queue.Queue()
    with directory_watch.DirectoryWatch(paths) as watch:
        paths.state.write_text("early")
        watch.subscribe(inbox)
        until(inbox, BoardChanged())


def test_a_rearmed_reader_looks_again_and_receives_events(paths: Paths) -> None:
    inbox: queue.Queue[events.WatchEvent] = queue.Queue()
    with directory_watch.DirectoryWatch(paths) as watch:
        watch.subscribe(inbox)
        watch.rearm("an overflow")
        until(inbox, WatchLost("an overflow", polling=False))
        paths.state.write_text("x")
        until(inbox, BoardChanged())


def test_closing_while_events_pour_in_comes_to_an_end(paths: Paths) -> None:
    stop = threading.Event()

    def pour() -> None:
        while not stop.is_set():
            paths.state.write_text("x")

    pouring = threading.Thread(target=pour)
    pouring.start()
    try:
        for _ in range(5):
            watch = directory_watch.DirectoryWatch(paths)
            closing = threading.Thread(target=watch.close, daemon=True)
            closing.start()
            closing.join(timeout=10)
            assert not closing.is_alive()
    finally:
        stop.set()
        pouring.join()


def test_crew_that_disappeared_is_an_event_and_is_not_recreated(paths: Paths) -> None:
    inbox: queue.Queue[events.WatchEvent] = queue.Queue()
    with directory_watch.DirectoryWatch(paths) as watch:
        watch.subscribe(inbox)
        shutil.rmtree(paths.liza)
        while not isinstance(inbox.get(timeout=10), WatchLost):
            pass
        assert not paths.liza.exists()


def test_without_inotify_the_watch_polls_and_gives_notice(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    class Exhausted(directory_watch.Observer):  # type: ignore[misc, valid-type]
        def start(self) -> None:
            raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr(directory_watch, "Observer", Exhausted)
    inbox: queue.Queue[events.WatchEvent] = queue.Queue()
    with directory_watch.DirectoryWatch(paths) as watch:
        watch.subscribe(inbox)
        first = inbox.get(timeout=10)
        assert isinstance(first, WatchLost)
        assert first.polling
        assert watch.is_polling
        paths.state.write_text("x")
        until(inbox, BoardChanged())


def test_signals_are_in_the_order_of_strength_until_cleared(paths: Paths) -> None:
    for name in ("PAUSE", "ABORT", "CHECKPOINT"):
        signal_files.raise_signal(paths, name, f"why {name}")
    assert tuple(signal_files.read_signals(paths)) == ("ABORT", "CHECKPOINT", "PAUSE")
    assert signal_files.read_signals(paths)["ABORT"].text == "why ABORT"
    assert signal_files.clear_signal(paths, "ABORT")
    assert not signal_files.clear_signal(paths, "ABORT")
    assert tuple(signal_files.read_signals(paths)) == ("CHECKPOINT", "PAUSE")
    with pytest.raises(UsageError):
        signal_files.raise_signal(paths, "STOP")


def test_reading_wakes_no_watcher(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    classify = directory_watch.DirectoryWatch._on_event

    def note_and_classify(watch: directory_watch.DirectoryWatch, event: FileSystemEvent) -> None:
        seen.append(event.event_type)
        classify(watch, event)

    monkeypatch.setattr(directory_watch.DirectoryWatch, "_on_event", note_and_classify)
    paths.state.write_text("a")
    inbox: queue.Queue[events.WatchEvent] = queue.Queue()
    with directory_watch.DirectoryWatch(paths) as watch:
        watch.subscribe(inbox)
        for _ in range(3):
            paths.state.read_text()
        signal_files.raise_signal(paths, "PAUSE", "x")
        until(inbox, SignalChanged())
    assert not {"opened", "closed_no_write"} & set(seen)
