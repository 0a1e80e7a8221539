"""The terminal of a run: what it shows, who sits at it, and how something is typed into it."""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir
from liza.programs.session.session_process import RunningSession
from liza.programs.terminal import idle_detection, tmux_socket
from liza.programs.terminal.screens import Screen
from liza.rules.errors import NotRegularFile, Refused
from liza.rules.model import FrozenStruct
from liza.rules.paths import Paths, agent_of
from liza.system import atomic, file_growth, processes

if TYPE_CHECKING:
    from liza.programs.terminal.tmux_client import TmuxCall

_BRACKETED = re.compile(rb"\x1b\[\?(?:[0-9]+;)*2004(?:;[0-9]+)*([hl])")
_MAX_SEQUENCE = 64  # bytes of such a sign, at most
_END_OF_CLIENTS = "= clients"
_SWITCHED_OPTION = "@liza_taken_along"


class PaneAddress(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``pane.json``: the socket and the pid of the tmux server in which a run has its pane."""

    socket: str
    server: int


def session_name(run: str) -> str:
    """A dot separates a pane from its window in tmux."""
    return run.replace(".", "_")


def create_log(run_dir: Path) -> None:
    """Make the file that a terminal's output goes to. Raises OSError where something else lies there."""
    # O_NONBLOCK: a pipe would be waited for until somebody reads it.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = os.open(run_dir / "output.log", flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "no file", str(run_dir / "output.log"))
    finally:
        os.close(handle)


def pipe_pane_argv(run: str, run_dir: Path) -> tuple[str, ...]:
    """The words by which tmux writes down what a pane shows; what did it before ends."""
    return "pipe-pane", "-t", f"={session_name(run)}:", f"exec cat >> {_quote_for_pipe(run_dir / 'output.log')}"


def _quote_for_pipe(path: Path) -> str:
    """A path for the shell behind ``pipe-pane``, which fills in #{…} and the signs of strftime before."""
    return shlex.quote(str(path)).replace("#", "##").replace("%", "%%")


class Pane:
    """The terminal of a run. What asks tmux raises Refused where the pane, or the server, is gone or stands still."""

    def __init__(self, root: Path, run: str, place: PaneAddress) -> None:
        self.root = root
        self.run = run
        self.address = place
        self.path = Paths(root).run(run)
        self.target = f"={session_name(run)}:"
        self.is_piped = True
        """Whether what the program showed was being written down, at the last look at its screen."""

    @property
    def typing_lock(self) -> Path:
        """The file whose lock the one has who types."""
        return self.path / "typing.lock"

    @property
    def attach_argv(self) -> tuple[str, ...]:
        """The command that shows this pane to a person."""
        return ("tmux", "-u", "-S", self.address.socket, "attach-session", "-t", self.target.rstrip(":"))

    def exists(self) -> bool:
        """Whether the server that it was opened in still has it."""
        try:
            return not self._call_tmux("has-session", "-t", self.target.rstrip(":")).returncode
        except tmux_socket.TmuxServerGone:
            return False

    def is_program_alive(self) -> bool:
        """Whether the program in it lives."""
        living = session_process.read_state(self.path)
        return isinstance(living, RunningSession) and processes.may_be_alive(living.child)

    def is_shim_dead(self) -> bool:
        """Whether the shim in it has ended. Whether the program has: see ``session.look``."""
        return self.run_tmux("display-message", "-p", "-t", self.target, "#{pane_dead}") == ["1"]

    def capture(self, history: int = 0) -> str:
        """What the screen shows, with so many lines that have left it; wrapped lines as one."""
        return "\n".join(self.run_tmux("capture-pane", "-p", "-J", "-t", self.target, "-S", f"-{history}"))

    def is_in_copy_mode(self) -> bool:
        """Whether somebody reads its history, so that keys go there."""
        return self.run_tmux("display-message", "-p", "-t", self.target, "#{pane_in_mode}") == ["1"]

    def foreground_argv(self) -> tuple[str, ...]:
        """The words of the process that has the terminal; only its name where the system shows no more."""
        living = session_process.read_state(self.path)
        found = idle_detection.find_foreground_argv(living.shim.pid) if isinstance(living, RunningSession) else None
        return found or tuple(self.run_tmux("display-message", "-p", "-t", self.target, "#{pane_current_command}"))

    def screen(self, now: float) -> Screen:
        """All that is to be seen at once; ``now`` is what the steady clock says."""
        visits = f"#{{session_last_attached}},#{{session_activity}},#{{{_SWITCHED_OPTION}}}"
        facts = f"#{{pane_pipe}} #{{cursor_y}} #{{cursor_x}} #{{pane_in_mode}} #{{pane_width}} {visits} #{{pane_tty}}"
        said = self.run_tmux(
            *("display-message", "-p", "-t", self.target, facts, ";"),
            *("list-clients", "-t", self.target.rstrip(":"), "-F", "#{client_readonly} #{client_activity}", ";"),
            *("display-message", "-p", "-t", self.target, _END_OF_CLIENTS, ";"),
            *("capture-pane", "-p", "-t", self.target),
        )
        pipe, row, column, mode, width, visited, terminal = said[0].split(" ", 6)
        self.is_piped = pipe == "1"
        over = said.index(_END_OF_CLIENTS)
        living = session_process.read_state(self.path)
        alive = isinstance(living, RunningSession) and processes.may_be_alive(living.child)
        lines = tuple(said[over + 1 :])
        found = self.idle_signs("\n".join(lines))
        by_line, hidden = _terminal_mode(terminal)
        return Screen(
            lines=lines,
            cursor_row=int(row),
            cursor_column=int(column),
            time=now,
            is_alive=alive,
            in_copy_mode=mode == "1",
            line_mode=by_line,
            foreground_argv=self.foreground_argv() if alive else (),
            idle_confidence=idle_detection.combine_confidence(found),
            seconds_since_key=_seconds_since_key(said[1:over]),
            seconds_since_change=self.silent_seconds(),
            is_busy=any(one.is_busy for one in found),
            is_echo_off=hidden,
            width=int(width),
            was_visited=_is_visited(*visited.split(",")),
        )

    def idle_signs(self, text: str) -> tuple[idle_detection.IdleSign, ...]:
        """The signs that the program waits for input; ``text`` is what its screen shows."""
        living = session_process.read_state(self.path)
        if not isinstance(living, RunningSession):
            return ()
        return idle_detection.session_signs(living, self.silent_seconds(), text)

    def silent_seconds(self) -> float | None:
        """How many seconds ago the program last showed something; None before it did."""
        moved = RunDir(Paths(self.root), self.run).last_output_time()
        return None if moved is None else max(0.0, time.time() - moved)

    def watch_changes(self) -> AbstractContextManager[Callable[[float], None]]:
        """What waits until the program has shown something, so many seconds at the longest."""
        return file_growth.watch_growth(self.path / "output.log")

    def start_log(self) -> None:
        """Write down what it shows from now on. Raises OSError, Refused."""
        create_log(self.path)
        self.run_tmux(*pipe_pane_argv(self.run, self.path))

    def leave_copy_mode(self) -> None:
        """Back from the history to what the program shows."""
        self.run_tmux("copy-mode", "-q", "-t", self.target)

    def paste(self, text: str) -> None:
        """Put a text where one types. In one line where the program takes no paste as a whole: there each line's end
        would send what stands before it."""
        whole = (
            text
            if self._has_bracketed_paste()
            else " ".join(line.strip() for line in text.splitlines() if line.strip())
        )
        path, name = self.path / "paste", f"liza-{self.run}"
        # A file, for a word of a command may have 16 KB at most. It need not survive anything.
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(whole.encode())
        try:
            # It fills in #{…} in the name.
            load = ("load-buffer", "-b", name, str(path).replace("#", "##"))
            self.run_tmux(*load, ";", "paste-buffer", "-p", "-d", "-b", name, "-t", self.target)
        finally:
            path.unlink(missing_ok=True)

    def _has_bracketed_paste(self) -> bool:
        """Whether the program has asked for pastes in brackets, the last time that it said anything about them."""
        last, part = b"", b""
        with suppress(FileNotFoundError, NotRegularFile), atomic.open_regular(self.path / "output.log") as file:
            # Not mapped into memory: it may be cut meanwhile.
            while more := file.read(1 << 20):
                part = part[-_MAX_SEQUENCE:] + more
                last = next((found[1] for found in reversed(list(_BRACKETED.finditer(part)))), last)
        return last == b"h"

    def press_enter(self) -> None:
        """Press Enter, as the character that it is: some versions lose the key of that name."""
        self.run_tmux("send-keys", "-l", "-t", self.target, "\r")

    def close(self, to: Pane | None = None) -> None:
        """Take the pane away; a program in it loses its terminal. Who is attached goes on at the pane ``to``.

        The pane is reset first: to report a change of focus to a process that is gone crashes tmux 3.3a.
        """
        self.run_tmux("send-keys", "-R", "-t", self.target)
        if to is not None:
            for client in self.run_tmux("list-clients", "-t", self.target.rstrip(":"), "-F", "#{client_name}"):
                with suppress(Refused):
                    self.run_tmux("switch-client", "-c", client, "-t", to.target.rstrip(":"))
                    to.mark_switched_client()
        self.run_tmux("kill-session", "-t", self.target.rstrip(":"))

    def mark_switched_client(self) -> None:
        """Keep when somebody was put here who did not ask for it, and has typed nothing."""
        (attached,) = self.run_tmux("display-message", "-p", "-t", self.target, "#{session_last_attached}")
        self.run_tmux("set-option", "-t", self.target, _SWITCHED_OPTION, attached)

    def run_tmux(self, *words: str) -> list[str]:
        """What tmux answers. Raises Refused."""
        done = self._call_tmux(*words)
        if done.returncode:
            raise Refused(
                f"tmux: {' '.join(done.stderr) or f'exit {done.returncode}'}", f"liza agents {agent_of(self.run)}"
            )
        return done.stdout

    def _call_tmux(self, *words: str) -> TmuxCall:
        if not tmux_socket.is_server_listening(self.address.socket, self.address.server):
            raise tmux_socket.TmuxServerGone(
                f"the tmux server of {self.run} is gone", f"liza agents {agent_of(self.run)}"
            )
        if idle_detection.is_stopped(self.address.server):
            # It would be waited for as long as one that hears and says nothing.
            raise tmux_socket.TmuxNotAnswering(
                f"the tmux server of {self.run} stands still", f"kill -CONT {self.address.server}"
            )
        # Here, for it takes longer to load than most commands take in all.
        from liza.programs.terminal import tmux_client

        return tmux_client.call_tmux(self.address.socket, words)


def _terminal_mode(terminal: str) -> tuple[bool | None, bool]:
    """Whether the kernel edits the lines of this terminal, None where that cannot be seen; and whether it shows nothing
    of them."""
    try:
        handle = os.open(terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None, False
    try:
        how = termios.tcgetattr(handle)[3]
    except termios.error:
        return None, False
    finally:
        os.close(handle)
    by_line = bool(how & termios.ICANON)
    return by_line, by_line and not how & termios.ECHO


def _is_visited(attached: str, active: str, taken_along: str) -> bool:
    """Whether a person may have typed here: somebody was attached, other than one who was taken along from an earlier
    session and has not touched a key since. Seconds of the epoch, each empty where there is none."""
    if attached in ("", "0"):
        return False
    return attached != taken_along or int(active or "0") > int(taken_along)


def _seconds_since_key(clients: Sequence[str]) -> float | None:
    """How many seconds ago a person who is attached, and may type, did something."""
    seen = [int(when) for readonly, _, when in (line.partition(" ") for line in clients) if readonly == "0" and when]
    return max(0.0, time.time() - max(seen)) if seen else None
