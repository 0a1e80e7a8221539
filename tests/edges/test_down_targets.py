"""What `liza down` sends signals to, whatever agents wrote in the files of the crew."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from liza.crew.crew import Crew
from liza.system import file_lock, processes
from liza.verbs.down import down
from tests.edges.test_integration import crew, made  # noqa: F401  # one preparation serves both files

HOLD = """
import signal, sys
from pathlib import Path
from liza.system.file_lock import Lock
lock = Lock(Path(sys.argv[1]))
lock.acquire(timeout=9)
print("held", flush=True)
signal.pause()
"""


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not processes.has_proc(), reason="only the kernel knows the holder for sure")
def test_a_supervisor_is_stopped_by_its_lock_and_not_by_the_pid_that_somebody_wrote_into_it(crew: Crew) -> None:  # noqa: F811
    path = crew.paths.supervisor_lock("coder-1")
    with running("sleep", "60") as victim, running(sys.executable, "-c", HOLD, str(path)) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "held\n"
        path.write_text(f"{victim.pid} 0 x\n")
        assert down(crew).details["stopped"] == ["coder-1"]
        assert supervisor.wait(9) == -15
        assert victim.poll() is None


def test_a_lock_file_that_somebody_made_large_is_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_text("123 4 liza-agent coder-1\n")
    with path.open("r+b") as file:
        file.truncate(1 << 42)
    assert file_lock.last_holder_pid(path) == 123
    assert "process 123" in file_lock.describe_holder(path)
