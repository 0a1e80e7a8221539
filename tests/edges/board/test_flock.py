"""flock(2) with a timeout: of a wait that ends without the lock, nothing remains that could take it later."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from liza.model.errors import LockTimeout, NotRegularFile
from liza.system.locks import lock_path
from tests.conftest import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.lock"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock until its input ends."""
    words = ["flock", str(path), "sh", "-c", "echo held; read x"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.communicate()


@pytest.fixture
def interrupt() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Have this process interrupted in 0.2 s, as by Ctrl+C, after something has happened first."""

    def interrupt(first: Callable[[], object]) -> None:
        def handler(number: int, frame: FrameType | None) -> None:
            first()
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)

    before = signal.getsignal(signal.SIGALRM)
    yield interrupt
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def holds(path: Path) -> bool:
    """Whether this process holds a lock on the file, as the kernel says."""
    number, own = path.stat().st_ino, str(os.getpid())
    rows = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return any(row[1] == "FLOCK" and row[4] == own and row[5].endswith(f":{number}") for row in rows if row[1] != "->")


def is_open(path: Path) -> bool:
    return any(path.samefile(entry) for entry in Path("/proc/self/fd").iterdir() if entry.exists())


def is_free(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_an_interrupted_wait_leaves_no_descriptor_to_lock_later(
    path: Path, holder: subprocess.Popen[bytes], interrupt: Callable[[Callable[[], object]], None]
) -> None:
    interrupt(lambda: None)
    with pytest.raises(KeyboardInterrupt), lock_path(path, 60):
        raise AssertionError("another process has the lock")
    holder.communicate()
    until(lambda: not is_open(path), "the waiting thread closes the file")
    assert is_free(path)


def test_a_lock_acquired_during_an_interrupt_is_released(
    path: Path, holder: subprocess.Popen[bytes], interrupt: Callable[[Callable[[], object]], None]
) -> None:
    def release_and_wait() -> None:
        holder.communicate()
        until(lambda: holds(path), "the waiting thread takes the lock")

    interrupt(release_and_wait)
    with pytest.raises(KeyboardInterrupt), lock_path(path, 60):
        raise AssertionError("the wait was interrupted")
    until(lambda: not is_open(path), "the waiting thread closes the file")
    assert is_free(path)


def test_after_a_timeout_the_freed_lock_goes_to_others(path: Path, holder: subprocess.Popen[bytes]) -> None:
    with pytest.raises(LockTimeout, match=r"some\.lock was not free within 0\.1 s"), lock_path(path, 0.1):
        raise AssertionError("another process has the lock")
    holder.communicate()
    until(lambda: not is_open(path), "the waiting thread closes the file")
    with lock_path(path, 0):
        assert holds(path)


def test_a_lock_file_that_is_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotRegularFile, match=r"some\.lock is not a regular file"), lock_path(path, 0):
        raise AssertionError("a link was followed")
    assert not (tmp_path / "elsewhere").exists()
