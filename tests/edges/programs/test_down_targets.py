"""What `liza down` sends signals to, and what a shim writes to, whatever agents left in the files of the crew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from liza.crew.crew import Crew
from liza.programs import liveness
from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.supervisor.down import down
from liza.system import locks, processes
from liza.system.locks import Lock
from tests.edges.merging.test_integration import crew, made  # noqa: F401  # one preparation serves both files

HOLD = """
import signal, sys
from pathlib import Path
from liza.system.locks import Lock
lock = Lock(Path(sys.argv[1]))
lock.acquire(timeout=9)
print("held", flush=True)
signal.pause()
"""

CHECK = """
import fcntl, signal, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_SH)
print("held", flush=True)
signal.pause()
"""


@contextmanager
def running(*words: str, cwd: Path | None = None, **env: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        words, cwd=cwd, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.skipif(not processes.has_proc(), reason="only the kernel knows the holder for sure")
def test_supervisor_is_stopped_by_its_lock_not_by_written_pid(crew: Crew) -> None:  # noqa: F811
    path = crew.paths.supervisor_lock("coder-1")
    with running("sleep", "60") as victim, running(sys.executable, "-c", HOLD, str(path)) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "held\n"
        path.write_text(f"{victim.pid} 0 x\n")
        assert down(crew).details["stopped"] == ["coder-1"]
        assert supervisor.wait(9) == -15
        assert victim.poll() is None


def test_a_supervisor_that_ends_while_down_searches_is_no_error(
    crew: Crew,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = crew.paths.supervisor_lock("coder-1")
    find_holder = locks.find_holder
    with running(sys.executable, "-c", HOLD, str(path)) as process:
        assert process.stdout is not None
        process.stdout.readline()

        def end_first(lock: Path) -> int | None:
            process.kill()
            process.wait()
            return find_holder(lock)

        monkeypatch.setattr(locks, "find_holder", end_first)
        assert down(crew).details["stopped"] == ["coder-1"]


@pytest.mark.skipif(not processes.has_proc(), reason="only the kernel knows the holder for sure")
def test_a_process_that_only_checks_a_lock_is_no_supervisor(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.touch()
    with running(sys.executable, "-c", CHECK, str(path)) as check:
        assert check.stdout is not None
        assert check.stdout.readline() == "held\n"
        assert locks.find_holders(path) == (check.pid,)
        assert locks.find_holder(path) is None
    with Lock(path):
        assert locks.find_holders(path) == (os.getpid(),)
        assert locks.find_holder(path) is None


OPEN = "import signal, sys; file = open(sys.argv[1]); print('open', flush=True); signal.pause()"
PASS_ON = """
import fcntl, subprocess, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
heir = subprocess.Popen(["sleep", "60"], pass_fds=(file.fileno(),))
print(heir.pid, flush=True)
"""


@pytest.mark.skipif(not processes.has_proc(), reason="only the kernel knows the holder for sure")
def test_opening_a_lock_file_does_not_mean_holding_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.touch()
    with (
        running(sys.executable, "-c", OPEN, str(path)) as check,
        running(sys.executable, "-c", PASS_ON, str(path)) as end,
    ):
        assert check.stdout is not None
        assert end.stdout is not None
        assert check.stdout.readline() == "open\n"
        heir = int(end.stdout.readline())
        assert end.wait(9) == 0
        assert locks.find_holders(path) == (heir,)
        assert locks.find_holder(path) == heir
        os.kill(heir, signal.SIGKILL)


@pytest.mark.skipif(not processes.has_proc(), reason="only the kernel knows the holder for sure")
@pytest.mark.parametrize("name", ["supervisor-coder-1.lock", "server.lock"])
def test_two_processes_running_down_do_not_stop_each_other(crew: Crew, name: str) -> None:  # noqa: F811
    path = crew.paths.supervisor_lock("coder-1") if name.startswith("supervisor") else crew.paths.server_lock
    words = [sys.executable, "-m", "liza", "down"]
    with running(sys.executable, "-c", HOLD, str(path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with running(*words, cwd=crew.paths.root, LIZA_FAULT="lock.released:stop") as first:
            # It is stopped at the moment at which it has waited for the lock.
            assert os.WIFSTOPPED(os.waitpid(first.pid, os.WUNTRACED)[1])
            down(crew)
            os.kill(first.pid, signal.SIGCONT)
            assert first.wait(9) == 0


def test_an_oversized_lock_file_is_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_text("123 4 liza-agent coder-1\n")
    with path.open("r+b") as file:
        file.truncate(1 << 42)
    assert locks.last_holder_pid(path) == 123
    assert "process 123" in locks.describe_holder(path)


@pytest.mark.skipif(not processes.has_proc(), reason="only /proc shows what a process was started as")
def test_neither_lock_files_nor_errors_contain_the_holders_arguments(crew: Crew) -> None:  # noqa: F811
    lock, show = crew.paths.state_lock, "exec cat .liza/state.yaml.lock"
    words = [sys.executable, "-P", "-m", "liza", "lock", "--", "sh", "-c", show, "sk-secret"]
    shown = subprocess.run(words, cwd=crew.paths.root, capture_output=True, text=True, check=True).stdout
    assert shown.rstrip().split(" ", 2)[2] == "liza lock"
    with running(sys.executable, "-c", HOLD, str(lock), "sk-secret") as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        message = locks.describe_holder(lock)
        assert message.endswith(f"holds it: {Path(sys.executable).name}"), message
        assert lock.read_text().endswith(f" {Path(sys.executable).name}\n")


@pytest.mark.skipif(not processes.has_proc(), reason="only /proc shows what a process was started as")
def test_a_forged_session_record_ends_no_process_of_others(crew: Crew) -> None:  # noqa: F811
    forged = RunDir(crew.paths, "coder-7.1")
    now = crew.clock.now()
    forged.create(RunRecord(agent="coder-7", run="coder-7.1", kind="work", started=now))
    with running("sh", "-c", "sleep 60 & echo $!; wait") as victim:
        assert victim.stdout is not None
        below = int(victim.stdout.readline())
        shim, child = processes.identify_process(victim.pid), processes.identify_process(below)
        assert shim is not None
        assert child is not None
        record = liveness.RunningSession(shim=shim, child=child, time=now)
        (forged.path / "session.json").write_bytes(msgspec.json.encode(record))
        down(crew)
        assert victim.poll() is None
        assert processes.identify_process(below) == child


def test_a_shim_follows_no_link_planted_for_its_files(crew: Crew, tmp_path: Path) -> None:  # noqa: F811
    run = RunDir(crew.paths, "coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=crew.clock.now()))
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in ("session.json.aside", "exit.json.aside"):
        (run.path / name).symlink_to(precious)
    env = {"LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(crew.paths.root), "PATH": os.environ["PATH"]}
    started = session_process.start(run.path, ["true"], tmp_path, env)
    assert isinstance(started, liveness.RunningSession)
    state = session_process.wait_for_end(run.path, 30)
    assert isinstance(state, liveness.EndedSession)
    assert state.code == 0
    assert precious.read_text() == "mine"


def test_a_pipe_in_place_of_a_session_log_is_refused(crew: Crew, tmp_path: Path) -> None:  # noqa: F811
    run = RunDir(crew.paths, "coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=crew.clock.now()))
    os.mkfifo(run.path / "output.log")
    os.mkfifo(run.path / "exit.json.aside")
    env = {"LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(crew.paths.root), "PATH": os.environ["PATH"]}
    started = session_process.start(run.path, ["true"], tmp_path, env)
    assert isinstance(started, session_process.StartFailed)
    assert "output.log" in started.reason
