"""The terminal of a run: its contents, its clients, how text is typed into it; and calls of its tmux server."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import socket
import stat
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from liza.model.errors import Missing, NotRegularFile, Refused
from liza.model.paths import Paths, agent_of
from liza.model.value_classes import FrozenStruct
from liza.programs import liveness
from liza.programs.liveness import RunningSession
from liza.programs.session.run_directory import RunDir
from liza.programs.terminal import readiness
from liza.programs.terminal.screens import Screen
from liza.system import file_growth, proc_stat, processes, program_path, untrusted_files

_BRACKETED = re.compile(rb"\x1b\[\?(?:[0-9]+;)*2004(?:;[0-9]+)*([hl])")
_MAX_SEQUENCE = 64  # maximum bytes of such an escape sequence
_END_OF_CLIENTS = "= clients"
_SWITCHED_OPTION = "@liza_taken_along"


class PaneAddress(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``pane.json``: the socket and the pid of the tmux server that has the run's pane."""

    socket: str
    server: int


def session_name(run: str) -> str:
    """Return the tmux session name of a run. It has no dot: tmux separates window and pane by one."""
    return run.replace(".", "_")


def create_log(run_dir: Path) -> None:
    """Create the file for a terminal's output. Raises OSError if the path is not a regular file."""
    # O_NONBLOCK: opening a FIFO would block until it has a reader.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = os.open(run_dir / "output.log", flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(run_dir / "output.log"))
    finally:
        os.close(handle)


def pipe_pane_argv(run: str, run_dir: Path) -> tuple[str, ...]:
    """Return the tmux command that logs the pane's output; it ends an earlier one."""
    return "pipe-pane", "-t", f"={session_name(run)}:", f"exec cat >> {_quote_for_pipe(run_dir / 'output.log')}"


def _quote_for_pipe(path: Path) -> str:
    """Quote a path for the shell of ``pipe-pane``; tmux expands #{…} and strftime's % before."""
    return shlex.quote(str(path)).replace("#", "##").replace("%", "%%")


class Pane:
    """The terminal of a run. A method that calls tmux raises Refused if the pane or the server is gone or stopped."""

    def __init__(self, root: Path, run: str, address: PaneAddress) -> None:
        self.root = root
        self.run = run
        self.address = address
        self.path = Paths(root).run(run)
        self.target = f"={session_name(run)}:"
        self.is_piped = True
        """Whether the program's output was being logged, when the screen was last read."""

    @property
    def typing_lock(self) -> Path:
        """Path of the lock file for typing."""
        return self.path / "typing.lock"

    @property
    def attach_argv(self) -> tuple[str, ...]:
        """Command that attaches a person to this pane."""
        return ("tmux", "-u", "-S", self.address.socket, "attach-session", "-t", self.target.rstrip(":"))

    def exists(self) -> bool:
        """Return whether the server that it was opened in still has it."""
        try:
            return not self._call_tmux("has-session", "-t", self.target.rstrip(":")).returncode
        except TmuxServerGone:
            return False

    def is_program_alive(self) -> bool:
        """Return whether the program in it is running."""
        living = liveness.read_state(self.path)
        return isinstance(living, RunningSession) and processes.may_be_alive(living.child)

    def is_shim_dead(self) -> bool:
        """Return whether the shim in it has exited. For the program, see ``liveness.read_state``."""
        return self.run_tmux("display-message", "-p", "-t", self.target, "#{pane_dead}") == ["1"]

    def capture(self, history: int = 0) -> str:
        """Return the screen and ``history`` lines above it; wrapped lines are joined."""
        return "\n".join(self.run_tmux("capture-pane", "-p", "-J", "-t", self.target, "-S", f"-{history}"))

    def foreground_argv(self) -> tuple[str, ...]:
        """Return the argv of the process that has the terminal; only its name if the system shows no more."""
        living = liveness.read_state(self.path)
        argv = readiness.find_foreground_argv(living.shim.pid) if isinstance(living, RunningSession) else None
        return argv or tuple(self.run_tmux("display-message", "-p", "-t", self.target, "#{pane_current_command}"))

    def screen(self, now: float) -> Screen:
        """Read everything about the screen in one call; ``now`` is seconds of the monotonic clock."""
        visit_facts = f"#{{session_last_attached}},#{{session_activity}},#{{{_SWITCHED_OPTION}}}"
        facts = (
            f"#{{pane_pipe}} #{{cursor_y}} #{{cursor_x}} #{{pane_in_mode}} #{{pane_width}} {visit_facts} #{{pane_tty}}"
        )
        output = self.run_tmux(
            *("display-message", "-p", "-t", self.target, facts, ";"),
            *("list-clients", "-t", self.target.rstrip(":"), "-F", "#{client_readonly} #{client_activity}", ";"),
            *("display-message", "-p", "-t", self.target, _END_OF_CLIENTS, ";"),
            *("capture-pane", "-p", "-t", self.target),
        )
        pipe, row, column, mode, width, visits, terminal = output[0].split(" ", 6)
        self.is_piped = pipe == "1"
        clients_end = output.index(_END_OF_CLIENTS)
        living = liveness.read_state(self.path)
        alive = isinstance(living, RunningSession) and processes.may_be_alive(living.child)
        lines = tuple(output[clients_end + 1 :])
        signs = self.idle_signs()
        line_mode, echo_off = _terminal_mode(terminal)
        return Screen(
            lines=lines,
            cursor_row=int(row),
            cursor_column=int(column),
            time=now,
            is_alive=alive,
            in_copy_mode=mode == "1",
            line_mode=line_mode,
            foreground_argv=self.foreground_argv() if alive else (),
            idle_confidence=readiness.combine_confidence(signs, time.monotonic()),
            seconds_since_key=_seconds_since_key(output[1:clients_end]),
            seconds_since_change=self.silent_seconds(),
            is_busy=any(sign.is_busy for sign in signs),
            is_echo_off=echo_off,
            width=int(width),
            was_visited=_is_visited(*visits.split(",")),
        )

    def idle_signs(self) -> tuple[readiness.IdleSign, ...]:
        """Return the signs that the program waits for input."""
        living = liveness.read_state(self.path)
        if not isinstance(living, RunningSession):
            return ()
        taken = time.monotonic()
        return readiness.session_signs(living, self.silent_seconds(), taken)

    def silent_seconds(self) -> float | None:
        """Return the seconds since the last output; None without any output."""
        moved = RunDir(Paths(self.root), self.run).last_output_time()
        return None if moved is None else max(0.0, time.time() - moved)

    def watch_changes(self) -> AbstractContextManager[Callable[[float], None]]:
        """Return a context whose function waits for output, at most the given seconds."""
        return file_growth.watch_growth(self.path / "output.log")

    def start_log(self) -> None:
        """Start to log the output. Raises OSError, Refused."""
        create_log(self.path)
        self.run_tmux(*pipe_pane_argv(self.run, self.path))

    def leave_copy_mode(self) -> None:
        """Leave the history, and show the program's screen again."""
        self.run_tmux("copy-mode", "-q", "-t", self.target)

    def paste(self, text: str) -> None:
        """Paste a text into the input line.

        If the program does not accept bracketed pastes, the text is joined into one line: each line end would send the
        text before it.
        """
        joined = (
            text
            if self._has_bracketed_paste()
            else " ".join(line.strip() for line in text.splitlines() if line.strip())
        )
        path, name = self.path / "paste", f"liza-{self.run}"
        # A file, because an argument of a tmux command has at most 16 KB. It is not synced: it is needed only once.
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(joined.encode())
        try:
            # tmux expands #{…} in the path.
            load = ("load-buffer", "-b", name, str(path).replace("#", "##"))
            self.run_tmux(*load, ";", "paste-buffer", "-p", "-d", "-b", name, "-t", self.target)
        finally:
            path.unlink(missing_ok=True)

    def _has_bracketed_paste(self) -> bool:
        """Return whether the program's last request about bracketed pastes switched them on."""
        state, window = b"", b""
        with (
            suppress(FileNotFoundError, NotRegularFile),
            untrusted_files.open_to_read(self.path / "output.log") as file,
        ):
            # Not mmap: the file may be truncated meanwhile, which would raise SIGBUS.
            while chunk := file.read(1 << 20):
                window = window[-_MAX_SEQUENCE:] + chunk
                state = next((match[1] for match in reversed(list(_BRACKETED.finditer(window)))), state)
        return state == b"h"

    def press_enter(self) -> None:
        """Press Enter, sent as a character: some tmux versions lose the key by its name."""
        self.run_tmux("send-keys", "-l", "-t", self.target, "\r")

    def close(self, to: Pane | None = None) -> None:
        """Close the pane; a program in it loses its terminal. Attached clients switch to the pane ``to``.

        The pane is reset first: tmux 3.3a crashes when it reports a change of focus to a process that is gone.
        """
        self.run_tmux("send-keys", "-R", "-t", self.target)
        if to is not None:
            for client in self.run_tmux("list-clients", "-t", self.target.rstrip(":"), "-F", "#{client_name}"):
                with suppress(Refused):
                    self.run_tmux("switch-client", "-c", client, "-t", to.target.rstrip(":"))
                    to.mark_switched_client()
        self.run_tmux("kill-session", "-t", self.target.rstrip(":"))

    def mark_switched_client(self) -> None:
        """Record the time at which a client was switched here, to tell it from a person who attached and typed."""
        (attached,) = self.run_tmux("display-message", "-p", "-t", self.target, "#{session_last_attached}")
        self.run_tmux("set-option", "-t", self.target, _SWITCHED_OPTION, attached)

    def run_tmux(self, *words: str) -> list[str]:
        """Return the output of a tmux command, in lines. Raises Refused."""
        done = self._call_tmux(*words)
        if done.returncode:
            reason = " ".join(done.stderr.split()) or f"exit {done.returncode}"
            raise Refused(f"tmux: {reason}", f"liza agents {agent_of(self.run)}")
        output = done.stdout.rstrip("\n")
        return output.split("\n") if output else []

    def _call_tmux(self, *words: str) -> subprocess.CompletedProcess[str]:
        socket, server = self.address.socket, self.address.server
        if not is_server_listening(socket, server):
            raise TmuxServerGone(f"the tmux server of {self.run} is gone", f"liza agents {agent_of(self.run)}")
        if is_server_stopped(server):
            # A stopped server would use up the whole time limit of the call.
            raise TmuxNotAnswering(f"the tmux server of {self.run} is stopped", f"kill -CONT {server}")
        try:
            return call_tmux(*words, socket=("-S", socket))
        except Missing as error:
            # The terminal cannot be reached, which ends no session.
            raise Refused(error.message, error.hint) from error


def _terminal_mode(terminal: str) -> tuple[bool | None, bool]:
    """Return whether the kernel edits this terminal's lines, None if unknown; and whether it hides what is typed."""
    try:
        handle = os.open(terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None, False
    try:
        flags = termios.tcgetattr(handle)[3]
    except termios.error:
        return None, False
    finally:
        os.close(handle)
    line_mode = bool(flags & termios.ICANON)
    return line_mode, line_mode and not flags & termios.ECHO


def _is_visited(attached: str, active: str, switched: str) -> bool:
    """Return whether a person may have typed here: a client was attached, other than one that was switched here from
    an earlier session and has pressed no key since. Times are seconds since the epoch, empty if there is none."""
    if attached in ("", "0"):
        return False
    return attached != switched or int(active or "0") > int(switched)


def _seconds_since_key(clients: Sequence[str]) -> float | None:
    """Return the seconds since an attached client that may type was last active; None if there is no such client."""
    seen = [int(when) for readonly, _, when in (line.partition(" ") for line in clients) if readonly == "0" and when]
    return max(0.0, time.time() - max(seen)) if seen else None


CONNECT_LIMIT = 5.0  # seconds; the kernel accepts a connection even if the server is busy
_CREDENTIALS = struct.Struct("iII")  # struct ucred of unix(7): pid, user, group


class TmuxNotAnswering(Refused):
    """A server accepts calls and does not answer them. Exit code 1."""


class TmuxServerGone(Refused):
    """The server has exited. Exit code 1."""


def server_name(root: Path) -> str:
    """Return the name of the crew's own server, for ``tmux -L``."""
    return f"liza-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"


def is_server_listening(address: str, server: int) -> bool:
    """Return whether this process listens at a socket; if the system does not tell which process, whether any does.

    Raises TmuxNotAnswering if the server's queue of connections is full.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONNECT_LIMIT)
            connection.connect(address)
            return not hasattr(socket, "SO_PEERCRED") or _peer_pid(connection) == server
    except (BlockingIOError, TimeoutError) as error:
        raise TmuxNotAnswering("the tmux server accepts no connections", f"tmux -S {address} ls") from error
    except OSError:
        return False


def is_server_stopped(server: int) -> bool:
    """Return whether a server is stopped (SIGSTOP or traced), so that a call to it does not return."""
    try:
        fields = proc_stat.read_stat(server)
    except OSError:
        return False
    return fields is not None and fields[proc_stat.STATE] in (b"T", b"t")


def _peer_pid(line: socket.socket) -> int:
    data = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[0])


CALL_LIMIT = 10.0  # seconds; a call takes some milliseconds
_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMUX_TMPDIR")

_silent_until: dict[str, float] = {}
"""Servers that did not answer, and until when (monotonic clock) they are not called again."""


def call_tmux(*words: str, socket: Sequence[str], limit: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tmux command. ``socket`` is the option that names the server.

    Raises TmuxNotAnswering after ``limit`` seconds (default CALL_LIMIT), or at once if the last call to this server
    timed out less than CALL_LIMIT seconds ago; Missing if there is no tmux.
    """
    client = ("tmux", *socket)
    hint = " ".join((*client[:3], "ls"))
    if time.monotonic() < _silent_until.get(hint, 0.0):
        raise TmuxNotAnswering("the tmux server has not answered an earlier call", hint)
    seconds = CALL_LIMIT if limit is None else limit
    try:
        # -u: the screen is UTF-8 in every locale. At the limit `run` kills the client and waits for its exit only: the
        # server may hold the other ends of its pipes.
        return subprocess.run(
            (program_path.find_program("tmux"), "-u", *socket, *words),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        _silent_until[hint] = time.monotonic() + CALL_LIMIT
        raise TmuxNotAnswering(f"the tmux server did not answer within {seconds:.0f} s", hint) from error


def _environment() -> dict[str, str]:
    """Return the variables that tmux needs.

    A server that the call starts passes its environment to every shim, and agents can read it: it gets none of this
    process's variables that may be secret.
    """
    env = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return env if env.get("LANG") or env.get("LC_ALL") else {**env, "LC_ALL": "C.UTF-8"}
