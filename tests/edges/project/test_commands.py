"""The project's own commands, as they end in ways that are not their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from liza.programs.session.session_process import GUARD_SCRIPT, start_guarded
from liza.project import commands
from liza.system import processes
from tests.conftest import until


@pytest.mark.parametrize(("kills", "code"), [(0, 0), (1, 0), (9, -signal.SIGKILL)])
def test_a_killed_command_is_retried_once(tmp_path: Path, kills: int, code: int) -> None:
    command = f"echo run >> runs; [ $(wc -l < runs) -gt {kills} ] || kill -9 $$; exit 0"
    done = commands.run_command(command, tmp_path, tmp_path / "logs" / "log", 60, tmp_path)
    assert done.exit_status == code
    assert len((tmp_path / "runs").read_text().splitlines()) == min(kills, 1) + 1


def test_a_command_ended_by_a_signal_is_red(tmp_path: Path) -> None:
    code = "import os, signal as s; s.pthread_sigmask(s.SIG_UNBLOCK, {s.SIGUSR1}); os.kill(os.getpid(), s.SIGUSR1)"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        done = commands.run_command(f"exec {sys.executable} -c '{code}'", tmp_path, tmp_path / "log", 60, tmp_path)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert done.exit_status == 128 + signal.SIGUSR1


SLEEP = f"sleep {100_000 + os.getpid()}"
"""Of this process alone: others run the same tests beside it."""
ESCAPES = {
    "in a session of its own": f"setsid {SLEEP} &",
    "with nothing in its environment": f"setsid env -i {SLEEP} &",
    "as an orphan": f"(setsid sh -c 'env -i {SLEEP} & exit 0' &)",
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_what_a_command_started_is_over_when_the_command_is(tmp_path: Path, escape: str) -> None:
    seen = f"until pgrep -xf '{SLEEP}' > {tmp_path}/pids; do :; done"
    done = commands.run_command(f"{escape}\n{seen}", tmp_path, tmp_path / "log", 60, tmp_path)
    assert done.exit_status == 0
    pids = (tmp_path / "pids").read_text().split()
    assert pids
    mine = [pid for pid in pids if _directory(pid) == tmp_path]
    for pid in mine:
        os.kill(int(pid), signal.SIGKILL)
    assert mine == []


def test_a_guard_whose_caller_died_earlier_runs_no_command(tmp_path: Path) -> None:
    read_end, alive = os.pipe()
    os.close(alive)
    words = [sys.executable, "-I", "-S", str(GUARD_SCRIPT), str(read_end), "touch", str(tmp_path / "ran")]
    guard = subprocess.run(words, pass_fds=(read_end,), check=False)
    os.close(read_end)
    assert guard.returncode == -signal.SIGTERM
    assert not (tmp_path / "ran").exists()


def test_recovery_waits_for_the_guards_of_a_killed_mergers_commands(tmp_path: Path) -> None:
    variables = {**os.environ, "LIZA_RUN": commands.COMMAND_RUN, "LIZA_ROOT": str(tmp_path)}
    with (tmp_path / "log").open("wb") as out:
        guarded = start_guarded(["sleep", "600"], tmp_path, out, variables)
    until(lambda: list(processes.iter_run_pids(commands.COMMAND_RUN, tmp_path)), "the command")
    os.kill(guarded.process.pid, signal.SIGSTOP)
    os.close(guarded.alive_fd)
    ending = threading.Thread(target=commands.kill_orphan_commands, args=(tmp_path,))
    ending.start()
    try:
        until(lambda: not ending.is_alive() or _watches(guarded.process.pid), "it waits or has ended")
        assert ending.is_alive()
        assert list(processes.iter_run_pids(commands.COMMAND_RUN, tmp_path))
    finally:
        os.kill(guarded.process.pid, signal.SIGCONT)
        guarded.process.wait(60)
    ending.join(60)
    assert not ending.is_alive()
    assert list(processes.iter_run_pids(commands.COMMAND_RUN, tmp_path)) == []


def test_a_guard_ends_the_command_of_its_killed_caller(tmp_path: Path) -> None:
    words = f"""
from pathlib import Path
from liza.project import commands
from tests.conftest import until
here = Path({str(tmp_path)!r})
commands.run_command("setsid env -i sh -c 'echo $$ > {tmp_path}/pid; exec {SLEEP}'", here, here / "log", 60, here)
"""
    caller = subprocess.Popen([sys.executable, "-c", words])
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), "the command did not start")
    pid = (tmp_path / "pid").read_text().strip()
    caller.kill()
    caller.wait()
    until(lambda: _directory(pid) is None, "what the command started goes on")


def _watches(pid: int) -> bool:
    """Whether this process has a descriptor of another process, which becomes readable when that one ends."""
    infos = Path("/proc/self/fdinfo").iterdir()
    return any(f"Pid:\t{pid}\n" in _read_info(info) for info in infos)


def _read_info(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _directory(pid: str) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def test_a_command_uses_no_program_of_the_persons_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, link = tmp_path / "checkout", tmp_path / "link"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "tool").write_text("#!/bin/sh\n")
    (root / "bin" / "tool").chmod(0o755)
    link.symlink_to(root / "bin")
    monkeypatch.setenv("VIRTUAL_ENV", str(root))
    monkeypatch.setenv("NODE_PATH", str(root))
    for entry in (root / "bin", link, "bin", ""):
        monkeypatch.setenv("PATH", str(entry), prepend=":")
    command = '! command -v tool && [ -z "$VIRTUAL_ENV$NODE_PATH" ]'
    assert commands.run_command(command, root, tmp_path / "logs" / "log", 60, root).passed
    assert commands.run_command("command -v tool", root, tmp_path / "logs" / "log", 60, root, str(root)).passed


def test_processes_of_a_command_end_with_its_killed_guard(tmp_path: Path) -> None:
    pids, again = tmp_path / "pids", tmp_path / "again"
    script = f"test -e {again} && exit 0; touch {again}; setsid {SLEEP} & echo $! > {pids}; kill -9 $PPID; {SLEEP}"
    done = commands.run_command(script, tmp_path, tmp_path / "logs" / "log", 60, tmp_path)
    assert done.passed
    pid = pids.read_text().strip()
    left = _directory(pid) == tmp_path
    if left:
        os.kill(int(pid), signal.SIGKILL)
    assert not left
