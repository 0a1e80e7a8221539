"""Sessions in a terminal that a person can attach to: the same shim and files as without one, in a tmux pane.

Each crew has its own tmux server, which reads no configuration file. A pane stays after its program's end, so that the
last screen can be read, until the agent's next session begins or the crew goes down.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from liza.model.errors import LizaError, Missing, Refused
from liza.model.paths import Paths, agent_of
from liza.programs import liveness
from liza.programs.liveness import RunningSession
from liza.programs.session import run_directory, session_process
from liza.programs.session.session_process import SessionVerbs, StartFailed
from liza.programs.terminal import pane
from liza.programs.terminal.pane import Pane, PaneAddress, create_log, pipe_pane_argv, session_name
from liza.system import atomic, crash_points, processes, program_path

WIDTH, HEIGHT = 200, 50  # characters and lines, until a person attaches
HISTORY_LINES = 50_000
ADDRESS_FILE = run_directory.PANE_FILE
_MAX_SOCKET_PATH = 100  # bytes; systems limit a socket's path to 104 or 108
_SHIM_CHECK_INTERVAL = 0.5  # seconds between checks whether the pane of a silent shim is dead
MAX_CALLS = 3  # calls to a server, which may be exiting at that moment
_OPTIONS = (
    ("-g", "remain-on-exit", "on"),
    # -q: older versions do not know this option. Its default text would overwrite the last screen.
    ("-gq", "remain-on-exit-format", ""),
    ("-g", "history-limit", str(HISTORY_LINES)),
    # Take no variable from the environment of a client that attaches.
    ("-g", "update-environment", ""),
    ("-s", "default-terminal", "screen-256color"),
    ("-s", "escape-time", "0"),
    ("-g", "automatic-rename", "off"),
    ("-g", "status-left-length", "40"),
    ("-g", "status-left", "#{session_name} "),
    ("-g", "status-right", " C-b d leaves, and the program goes on"),
    ("-g", "status-right-length", "60"),
)


def is_installed() -> bool:
    """Return whether tmux is installed."""
    try:
        program_path.find_program("tmux")
    except Missing:
        return False
    return True


def require_tmux() -> None:
    """Raise Missing if tmux is not installed."""
    if not is_installed():
        raise Missing("tmux is not installed; a session with a terminal needs it", "apt install tmux")


def start(
    run_dir: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str], verbs: SessionVerbs | None = None
) -> RunningSession | StartFailed:
    """Start a program in its own terminal. Return once it runs, or is known to have failed.

    A run has at most one session: raises Refused if this run directory has or had one.
    """
    if not is_installed():
        return StartFailed(reason="tmux is not installed; a program with a terminal needs it")
    return session_process.start_with(_start_shim, run_dir, argv, cwd, env, verbs=verbs)


def _start_shim(run_dir: Path, lock: int, launch: Mapping[str, Any]) -> tuple[str, str]:
    """Start a shim in a pane, and send it launch and lock through a socket: neither is written to disk."""
    try:
        with _listening_socket(run_dir) as (listener, address):
            pane = _open_pane(run_dir, address, session_process.shim_env(launch["env"]))
            crash_points.point("spawned", "shim")
            result = _send_launch(listener, pane, lock, json.dumps(launch).encode())
            with suppress(LizaError):
                _close_earlier_panes(pane)
            return result
    except (OSError, subprocess.SubprocessError, LizaError) as error:
        return "", f"tmux: {error}"


@contextmanager
def _listening_socket(run_dir: Path) -> Iterator[tuple[socket.socket, str]]:
    """Listen at a socket that only this user can reach; yield it and its path, which must be short."""
    directory = run_dir if len(os.fsencode(run_dir / "start.sock")) < _MAX_SOCKET_PATH else Path(tempfile.mkdtemp())
    address = directory / "start.sock"
    address.unlink(missing_ok=True)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen(1)
            yield listener, str(address)
    finally:
        address.unlink(missing_ok=True)
        if directory != run_dir:
            directory.rmdir()


def _open_pane(run_dir: Path, address: str, env: Mapping[str, str]) -> Pane:
    """Open the pane of a run, with a shim in it that waits for its launch. Raises OSError, SubprocessError, Refused."""
    create_log(run_dir)
    root, run = run_dir.parents[3], run_dir.name
    leftover = find_pane(root, run)
    if leftover is not None:
        # Left by a starter that was killed before it sent the launch: there is no program in it.
        leftover.close()
    name = session_name(run)
    argv = [word for option in _OPTIONS for word in ("set-option", *option, ";")]
    variables = [word for key in env if key != "PATH" for word in ("-e", f"{key}={env[key]}")]
    argv += ["new-session", "-d", "-P", "-F", "#{pid} #{socket_path}", "-s", name, "-x", str(WIDTH), "-y", str(HEIGHT)]
    argv += [
        "-c",
        "/",
        *map(_escape_semicolon, variables),
        "--",
        *map(_escape_semicolon, session_process.shim_argv(run_dir, address)),
        ";",
    ]
    argv += pipe_pane_argv(run, run_dir)
    pid, _, path = _run_on_server(root, argv).partition(" ")
    atomic.write(run_dir / ADDRESS_FILE, msgspec.json.encode(PaneAddress(socket=path, server=int(pid))) + b"\n")
    return Pane(root, run, PaneAddress(socket=path, server=int(pid)))


def _run_on_server(root: Path, words: Sequence[str]) -> str:
    """Run a command on the crew's server, and start the server if it does not run. Raises Refused."""
    socket = ("-L", pane.server_name(root), "-f", os.devnull)
    for _ in range(MAX_CALLS):
        done = pane.call_tmux("start-server", ";", *words, socket=socket, limit=session_process.START_LIMIT)
        # A server whose last pane has gone accepts calls until it has exited.
        if not done.returncode or "server exited" not in done.stderr:
            break
    if done.returncode:
        raise Refused(done.stderr.strip() or f"exit {done.returncode}", f"tmux -L {pane.server_name(root)} ls")
    return done.stdout.strip()


def _escape_semicolon(word: str) -> str:
    """Escape a trailing semicolon, which would end the tmux command."""
    return f"{word[:-1]}\\;" if word.endswith(";") else word


def _send_launch(listener: socket.socket, pane: Pane, lock: int, launch: bytes) -> tuple[str, str]:
    """Send the launch to the shim. Return its report of the start, and its error output."""
    end = time.monotonic() + session_process.START_LIMIT
    while not processes.wait_readable(listener.fileno(), _SHIM_CHECK_INTERVAL):
        if pane.is_shim_dead():
            return "", pane.capture().strip().rpartition("\n")[2]
        if time.monotonic() >= end:
            pane.close()
            return f"the shim did not answer within {session_process.START_LIMIT:.0f} s", ""
    shim, _ = listener.accept()
    with shim:
        shim.settimeout(session_process.START_LIMIT)
        socket.send_fds(shim, [launch[:1]], [lock])
        shim.sendall(launch[1:])
        shim.shutdown(socket.SHUT_WR)
        data = b""
        while chunk := shim.recv(4096):
            data += chunk
    return data.decode().strip(), ""


def _close_earlier_panes(now: Pane) -> None:
    """Close the panes of the agent's earlier runs, whose programs are over; attached clients switch to the new pane."""
    for line in now.run_tmux("list-panes", "-a", "-F", "#{pane_dead} #{session_name}"):
        dead, _, name = line.partition(" ")
        agent, _, number = name.rpartition("_")
        if dead == "1" and agent == agent_of(now.run) and name != session_name(now.run):
            with suppress(Refused):
                Pane(now.root, f"{agent}.{number}", now.address).close(now)


def find_pane(root: Path, run: str) -> Pane | None:
    """Return the pane of a run; None if it has none, or it is gone. Raises LizaError if that cannot be determined."""
    address = run_directory.read_struct(Paths(root).run(run) / ADDRESS_FILE, PaneAddress)
    if address is None:
        return None
    pane = Pane(root, run, address)
    return pane if pane.exists() else None


def find_stopped_server(root: Path, run: str) -> int | None:
    """Return the pid of the server of a run's terminal if it is stopped (SIGSTOP), so that it answers no client; else
    None.

    Raises LizaError if that cannot be determined.
    """
    address = run_directory.read_struct(Paths(root).run(run) / ADDRESS_FILE, PaneAddress)
    if address is None or not pane.is_server_listening(address.socket, address.server):
        return None
    return address.server if pane.is_server_stopped(address.server) else None


def close_pane(root: Path, run: str) -> None:
    """Close the pane of a run that is over. Raises Refused while its program is running."""
    pane = find_pane(root, run)
    if pane is None:
        return
    if isinstance(liveness.read_state(Paths(root).run(run)), liveness.RunningSession | liveness.ShimStarting):
        raise Refused(f"the program of {run} is running", "liza down")
    pane.close()


def close_agent_panes(root: Path, agent: str) -> None:
    """Close the panes of an agent's runs that are over. Raises LizaError if a file of a run cannot be read."""
    _close_panes(root, [path for path in _address_files(root) if path.parent.parent.name == agent])


def close_all_panes(root: Path) -> None:
    """Close the panes of all runs that are over; the server exits with its last pane.

    Raises LizaError if a file of a run cannot be read.
    """
    _close_panes(root, _address_files(root))


def _close_panes(root: Path, paths: Sequence[Path]) -> None:
    for path in paths:
        with suppress(Refused):
            close_pane(root, path.parent.name)


def _address_files(root: Path) -> list[Path]:
    return sorted(Paths(root).runs.glob(f"*/*/{ADDRESS_FILE}"))
