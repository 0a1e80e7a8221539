"""Sessions with a terminal that a person can attach to: the same shim and the same files, in a pane of tmux.

Each crew has a tmux server of its own, which reads nobody's configuration. A pane stays after its program's end, so
that the last screen can be read, until the agent's next session begins or the crew goes down.
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

from liza.programs.session import run_directory, session_process
from liza.programs.session.session_process import RunningSession, StartFailed
from liza.programs.terminal import idle_detection, tmux_socket
from liza.programs.terminal.pane import Pane, PaneAddress, create_log, pipe_pane_argv, session_name
from liza.programs.terminal.tmux_socket import TmuxNotAnswering
from liza.rules.errors import LizaError, Missing, Refused
from liza.rules.paths import Paths, agent_of
from liza.system import atomic, crash_points, processes, program_path

WIDTH, HEIGHT = 200, 50  # until a person attaches
HISTORY_LINES = 50_000  # lines
ADDRESS_FILE = "pane.json"
_MAX_SOCKET_PATH = 100  # bytes that a socket's name may have on every system
_SHIM_CHECK_INTERVAL = 0.5  # seconds between two looks at whether the pane of a shim that says nothing is dead
MAX_CALLS = 3  # calls of a server that ends just then
_EXIT_LIMIT = 0.5  # seconds for a server without a pane to end
_OPTIONS = (
    ("-g", "remain-on-exit", "on"),
    # Older ones do not know it; it would write over the last screen.
    ("-gq", "remain-on-exit-format", ""),
    ("-g", "history-limit", str(HISTORY_LINES)),
    # Nothing of the environment of whoever attaches.
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
    """Whether there is a tmux."""
    try:
        program_path.find_program("tmux")
    except Missing:
        return False
    return True


def require_tmux() -> None:
    """Raises Missing where there is no tmux."""
    if not is_installed():
        raise Missing("tmux is not installed, and a session with a terminal needs it", "apt install tmux")


def start(run_dir: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> RunningSession | StartFailed:
    """Start a program in a terminal of its own; back when it runs, or is known not to.

    A run has one session: raises Refused when this run directory has, or had, one.
    """
    if not is_installed():
        return StartFailed(reason="tmux is not installed, and a program with a terminal needs it")
    return session_process.start_with(_start_shim, run_dir, argv, cwd, env)


def _start_shim(run_dir: Path, lock: int, launch: Mapping[str, Any]) -> tuple[str, str]:
    """Bring up a shim in a pane, and hand it the launch and the lock through a socket: neither touches the disk."""
    try:
        with _listening_socket(run_dir) as (line, address):
            pane = _open_pane(run_dir, address, session_process.shim_env(launch["env"]))
            crash_points.point("spawned", "shim")
            said = _send_launch(line, pane, lock, json.dumps(launch).encode())
            with suppress(LizaError):
                _close_earlier_panes(pane)
            return said
    except (OSError, subprocess.SubprocessError, LizaError) as error:
        return "", f"tmux: {error}"


@contextmanager
def _listening_socket(run_dir: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket that only this user can reach, and its name, which must be short."""
    directory = run_dir if len(os.fsencode(run_dir / "start.sock")) < _MAX_SOCKET_PATH else Path(tempfile.mkdtemp())
    address = directory / "start.sock"
    address.unlink(missing_ok=True)
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.bind(str(address))
            line.listen(1)
            yield line, str(address)
    finally:
        address.unlink(missing_ok=True)
        if directory != run_dir:
            directory.rmdir()


def _open_pane(run_dir: Path, address: str, env: Mapping[str, str]) -> Pane:
    """The pane of a run, with a shim in it that waits for its launch. Raises OSError, SubprocessError, Refused."""
    create_log(run_dir)
    root, run = run_dir.parents[3], run_dir.name
    left = find_pane(root, run)
    if left is not None:
        # Of a starter that was killed: there is no session, so there is nothing in it.
        left.close()
    name = session_name(run)
    words = [word for option in _OPTIONS for word in ("set-option", *option, ";")]
    variables = [word for key in env if key != "PATH" for word in ("-e", f"{key}={env[key]}")]
    words += ["new-session", "-d", "-P", "-F", "#{pid} #{socket_path}", "-s", name, "-x", str(WIDTH), "-y", str(HEIGHT)]
    words += [
        "-c",
        "/",
        *map(_escape_semicolon, variables),
        "--",
        *map(_escape_semicolon, session_process.shim_argv(run_dir, address)),
        ";",
    ]
    words += pipe_pane_argv(run, run_dir)
    pid, _, path = _run_on_server(root, words).partition(" ")
    atomic.write(run_dir / ADDRESS_FILE, msgspec.json.encode(PaneAddress(socket=path, server=int(pid))) + b"\n")
    return Pane(root, run, PaneAddress(socket=path, server=int(pid)))


def _run_on_server(root: Path, words: Sequence[str]) -> str:
    """Say something to the crew's server, and start it where it does not run.

    Its environment is that of every shim, and an agent can ask for it: nothing of this process's, which may hold keys.
    """
    env = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMUX_TMPDIR") if name in os.environ}
    if not any(env.get(name) for name in ("LANG", "LC_ALL")):
        env["LC_ALL"] = "C.UTF-8"
    tmux = [program_path.find_program("tmux"), "-u", "-L", tmux_socket.server_name(root), "-f", os.devnull]
    command = [*tmux, "start-server", ";", *words]
    for _ in range(MAX_CALLS):
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=session_process.START_LIMIT, check=False
            )
        except subprocess.TimeoutExpired as error:
            told = f"the tmux server did not answer within {session_process.START_LIMIT:.0f} s"
            raise TmuxNotAnswering(told, f"tmux -L {tmux_socket.server_name(root)} ls") from error
        # One whose last pane has gone takes calls until it has ended.
        if not done.returncode or "server exited" not in done.stderr:
            break
    if done.returncode:
        raise Refused(done.stderr.strip() or f"exit {done.returncode}", f"tmux -L {tmux_socket.server_name(root)} ls")
    return done.stdout.strip()


def _escape_semicolon(word: str) -> str:
    """A word of a command of tmux, in which a last semicolon would end the command."""
    return f"{word[:-1]}\\;" if word.endswith(";") else word


def _send_launch(line: socket.socket, pane: Pane, lock: int, launch: bytes) -> tuple[str, str]:
    """What the shim says once it has the launch; and its complaint."""
    end = time.monotonic() + session_process.START_LIMIT
    while not processes.wait_readable(line.fileno(), _SHIM_CHECK_INTERVAL):
        if pane.is_shim_dead():
            return "", pane.capture().strip().rpartition("\n")[2]
        if time.monotonic() >= end:
            pane.close()
            return f"the shim did not answer within {session_process.START_LIMIT:.0f} s", ""
    shim, _ = line.accept()
    with shim:
        shim.settimeout(session_process.START_LIMIT)
        socket.send_fds(shim, [launch[:1]], [lock])
        shim.sendall(launch[1:])
        shim.shutdown(socket.SHUT_WR)
        said = b""
        while part := shim.recv(4096):
            said += part
    return said.decode().strip(), ""


def _close_earlier_panes(now: Pane) -> None:
    """Close the panes of the agent's earlier runs, whose programs are over; a person at one of them is taken along."""
    for line in now.run_tmux("list-panes", "-a", "-F", "#{pane_dead} #{session_name}"):
        dead, _, name = line.partition(" ")
        agent, _, number = name.rpartition("_")
        if dead == "1" and agent == agent_of(now.run) and name != session_name(now.run):
            with suppress(Refused):
                Pane(now.root, f"{agent}.{number}", now.address).close(now)


def find_pane(root: Path, run: str) -> Pane | None:
    """The pane of a run; None where it has none, or none any more. Raises LizaError where that cannot be known."""
    place = run_directory.read_struct(Paths(root).run(run) / ADDRESS_FILE, PaneAddress)
    if place is None or not tmux_socket.is_crew_socket(root, place.socket):
        return None
    found = Pane(root, run, place)
    return found if found.exists() else None


def find_stopped_server(root: Path, run: str) -> int | None:
    """The pid of the server that has the terminal of a run and stands still, so that nobody can look at it; None where
    none does. Raises LizaError where that cannot be known."""
    place = run_directory.read_struct(Paths(root).run(run) / ADDRESS_FILE, PaneAddress)
    if (
        place is None
        or not tmux_socket.is_crew_socket(root, place.socket)
        or not tmux_socket.is_server_listening(place.socket, place.server)
    ):
        return None
    return place.server if idle_detection.is_stopped(place.server) else None


def close_pane(root: Path, run: str) -> None:
    """Close the pane of a run that is over. Raises Refused while its program lives."""
    found = find_pane(root, run)
    if found is None:
        return
    if isinstance(
        session_process.read_state(Paths(root).run(run)), session_process.RunningSession | session_process.ShimStarting
    ):
        raise Refused(f"the program of {run} lives", "liza down")
    found.close()


def close_agent_panes(root: Path, agent: str) -> None:
    """Close the panes of an agent's runs that are over. Raises LizaError where a file of a run cannot be read."""
    _close_panes(root, [path for path in _address_files(root) if path.parent.parent.name == agent])


def close_all_panes(root: Path) -> None:
    """Close the panes of all runs that are over; with the last one a server goes. Raises LizaError where a file of a
    run cannot be read."""
    _close_panes(root, _address_files(root))


def _close_panes(root: Path, paths: Sequence[Path]) -> None:
    places = {
        path.parent.name: place for path in paths if (place := run_directory.read_struct(path, PaneAddress)) is not None
    }
    for run in places:
        with suppress(Refused):
            close_pane(root, run)
    for place in set(places.values()):
        # It leaves its name behind; a newer one may have it by now.
        if _has_exited(place.server):
            tmux_socket.remove_socket(root, place.socket)


def _address_files(root: Path) -> list[Path]:
    return sorted(Paths(root).runs.glob(f"*/*/{ADDRESS_FILE}"))


def _has_exited(server: int) -> bool:
    """Whether a server has ended, or does so now. One that has a pane left stays."""
    who = processes.identify_process(server)
    handle = None if who is None else processes.open_pidfd(who)
    if handle is None:
        return processes.identify_process(server) is None
    try:
        return processes.wait_readable(handle, _EXIT_LIMIT)
    finally:
        os.close(handle)
