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
from liza.programs.session.session_process import Living
from liza.programs.terminal import idle_detection, tmux_socket
from liza.programs.terminal.screens import Screen
from liza.rules.errors import NoFile, Refused
from liza.rules.model import Entry
from liza.rules.paths import Paths, agent_of
from liza.system import atomic, file_growth, processes

if TYPE_CHECKING:
    from liza.programs.terminal.tmux_client import TmuxCall

_BRACKETED = re.compile(rb"\x1b\[\?(?:[0-9]+;)*2004(?:;[0-9]+)*([hl])")
_LONGEST_SIGN = 64  # bytes of such a sign, at most
_END = "= clients"
_TAKEN_ALONG = "@liza_taken_along"


class PaneAddress(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """``pane.json``: the socket and the pid of the tmux server in which a run has its pane."""

    socket: str
    server: int


def session_name(run: str) -> str:
    """A dot separates a pane from its window in tmux."""
    return run.replace(".", "_")


def log_file(run_dir: Path) -> None:
    """Make the file that a terminal's output goes to. Raises OSError where something else lies there."""
    # O_NONBLOCK: a pipe would be waited for until somebody reads it.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = os.open(run_dir / "output.log", flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "no file", str(run_dir / "output.log"))
    finally:
        os.close(handle)


def log_words(run: str, run_dir: Path) -> tuple[str, ...]:
    """The words by which tmux writes down what a pane shows; what did it before ends."""
    return "pipe-pane", "-t", f"={session_name(run)}:", f"exec cat >> {_of_shell(run_dir / 'output.log')}"


def _of_shell(path: Path) -> str:
    """A path for the shell behind ``pipe-pane``, which fills in #{…} and the signs of strftime before."""
    return shlex.quote(str(path)).replace("#", "##").replace("%", "%%")


class Pane:
    """The terminal of a run. What asks tmux raises Refused where the pane, or the server, is gone or stands still."""

    def __init__(self, root: Path, run: str, place: PaneAddress) -> None:
        self.root = root
        self.run = run
        self.place = place
        self.path = Paths(root).run(run)
        self.target = f"={session_name(run)}:"
        self.piped = True
        """Whether what the program showed was being written down, at the last look at its screen."""

    @property
    def typing_lock(self) -> Path:
        """The file whose lock the one has who types."""
        return self.path / "typing.lock"

    @property
    def words(self) -> tuple[str, ...]:
        """The command that shows this pane to a person."""
        return ("tmux", "-u", "-S", self.place.socket, "attach-session", "-t", self.target.rstrip(":"))

    def exists(self) -> bool:
        """Whether the server that it was opened in still has it."""
        try:
            return not self._said("has-session", "-t", self.target.rstrip(":")).returncode
        except tmux_socket.Gone:
            return False

    def is_alive(self) -> bool:
        """Whether the program in it lives."""
        living = session_process.look(self.path)
        return isinstance(living, Living) and processes.alive(living.child)

    def is_dead(self) -> bool:
        """Whether the shim in it has ended. Whether the program has: see ``session.look``."""
        return self.ask("display-message", "-p", "-t", self.target, "#{pane_dead}") == ["1"]

    def capture(self, history: int = 0) -> str:
        """What the screen shows, with so many lines that have left it; wrapped lines as one."""
        return "\n".join(self.ask("capture-pane", "-p", "-J", "-t", self.target, "-S", f"-{history}"))

    def in_mode(self) -> bool:
        """Whether somebody reads its history, so that keys go there."""
        return self.ask("display-message", "-p", "-t", self.target, "#{pane_in_mode}") == ["1"]

    def program(self) -> tuple[str, ...]:
        """The words of the process that has the terminal; only its name where the system shows no more."""
        living = session_process.look(self.path)
        found = idle_detection.foreground(living.shim.pid) if isinstance(living, Living) else None
        return found or tuple(self.ask("display-message", "-p", "-t", self.target, "#{pane_current_command}"))

    def screen(self, now: float) -> Screen:
        """All that is to be seen at once; ``now`` is what the steady clock says."""
        visits = f"#{{session_last_attached}},#{{session_activity}},#{{{_TAKEN_ALONG}}}"
        facts = f"#{{pane_pipe}} #{{cursor_y}} #{{cursor_x}} #{{pane_in_mode}} #{{pane_width}} {visits} #{{pane_tty}}"
        said = self.ask(
            *("display-message", "-p", "-t", self.target, facts, ";"),
            *("list-clients", "-t", self.target.rstrip(":"), "-F", "#{client_readonly} #{client_activity}", ";"),
            *("display-message", "-p", "-t", self.target, _END, ";"),
            *("capture-pane", "-p", "-t", self.target),
        )
        pipe, row, column, mode, width, visited, terminal = said[0].split(" ", 6)
        self.piped = pipe == "1"
        over = said.index(_END)
        living = session_process.look(self.path)
        alive = isinstance(living, Living) and processes.alive(living.child)
        lines = tuple(said[over + 1 :])
        found = self.witnesses("\n".join(lines))
        by_line, hidden = _line_of(terminal)
        return Screen(
            lines=lines,
            row=int(row),
            column=int(column),
            time=now,
            alive=alive,
            in_mode=mode == "1",
            by_line=by_line,
            program=self.program() if alive else (),
            waiting=idle_detection.joined(found),
            person=_person(said[1:over]),
            still=self.silence(),
            deaf=any(one.against for one in found),
            hidden=hidden,
            width=int(width),
            visited=_is_visited(*visited.split(",")),
        )

    def witnesses(self, text: str) -> tuple[idle_detection.Witness, ...]:
        """The signs that the program waits for input; ``text`` is what its screen shows."""
        living = session_process.look(self.path)
        if not isinstance(living, Living):
            return ()
        return idle_detection.of_session(living, self.silence(), text)

    def silence(self) -> float | None:
        """How many seconds ago the program last showed something; None before it did."""
        moved = RunDir(Paths(self.root), self.run).moved()
        return None if moved is None else max(0.0, time.time() - moved)

    def changes(self) -> AbstractContextManager[Callable[[float], None]]:
        """What waits until the program has shown something, so many seconds at the longest."""
        return file_growth.heard(self.path / "output.log")

    def log(self) -> None:
        """Write down what it shows from now on. Raises OSError, Refused."""
        log_file(self.path)
        self.ask(*log_words(self.run, self.path))

    def leave_mode(self) -> None:
        """Back from the history to what the program shows."""
        self.ask("copy-mode", "-q", "-t", self.target)

    def paste(self, text: str) -> None:
        """Put a text where one types. In one line where the program takes no paste as a whole: there each line's end
        would send what stands before it."""
        whole = text if self._takes_pastes() else " ".join(line.strip() for line in text.splitlines() if line.strip())
        path, name = self.path / "paste", f"liza-{self.run}"
        # A file, for a word of a command may have 16 KB at most. It need not survive anything.
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(whole.encode())
        try:
            # It fills in #{…} in the name.
            load = ("load-buffer", "-b", name, str(path).replace("#", "##"))
            self.ask(*load, ";", "paste-buffer", "-p", "-d", "-b", name, "-t", self.target)
        finally:
            path.unlink(missing_ok=True)

    def _takes_pastes(self) -> bool:
        """Whether the program has asked for pastes in brackets, the last time that it said anything about them."""
        last, part = b"", b""
        with suppress(FileNotFoundError, NoFile), atomic.opened(self.path / "output.log") as file:
            # Not mapped into memory: it may be cut meanwhile.
            while more := file.read(1 << 20):
                part = part[-_LONGEST_SIGN:] + more
                last = next((found[1] for found in reversed(list(_BRACKETED.finditer(part)))), last)
        return last == b"h"

    def enter(self) -> None:
        """Press Enter, as the character that it is: some versions lose the key of that name."""
        self.ask("send-keys", "-l", "-t", self.target, "\r")

    def close(self, to: Pane | None = None) -> None:
        """Take the pane away; a program in it loses its terminal. Who is attached goes on at the pane ``to``.

        The pane is reset first: to report a change of focus to a process that is gone crashes tmux 3.3a.
        """
        self.ask("send-keys", "-R", "-t", self.target)
        if to is not None:
            for client in self.ask("list-clients", "-t", self.target.rstrip(":"), "-F", "#{client_name}"):
                with suppress(Refused):
                    self.ask("switch-client", "-c", client, "-t", to.target.rstrip(":"))
                    to.note_taken_along()
        self.ask("kill-session", "-t", self.target.rstrip(":"))

    def note_taken_along(self) -> None:
        """Keep when somebody was put here who did not ask for it, and has typed nothing."""
        (attached,) = self.ask("display-message", "-p", "-t", self.target, "#{session_last_attached}")
        self.ask("set-option", "-t", self.target, _TAKEN_ALONG, attached)

    def ask(self, *words: str) -> list[str]:
        """What tmux answers. Raises Refused."""
        done = self._said(*words)
        if done.returncode:
            raise Refused(
                f"tmux: {' '.join(done.stderr) or f'exit {done.returncode}'}", f"liza agents {agent_of(self.run)}"
            )
        return done.stdout

    def _said(self, *words: str) -> TmuxCall:
        if not tmux_socket.listens(self.place.socket, self.place.server):
            raise tmux_socket.Gone(f"the tmux server of {self.run} is gone", f"liza agents {agent_of(self.run)}")
        if idle_detection.is_stopped(self.place.server):
            # It would be waited for as long as one that hears and says nothing.
            raise tmux_socket.Silent(f"the tmux server of {self.run} stands still", f"kill -CONT {self.place.server}")
        # Here, for it takes longer to load than most commands take in all.
        from liza.programs.terminal import tmux_client

        return tmux_client.ask(self.place.socket, words)


def _line_of(terminal: str) -> tuple[bool | None, bool]:
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


def _person(clients: Sequence[str]) -> float | None:
    """How many seconds ago a person who is attached, and may type, did something."""
    seen = [int(when) for readonly, _, when in (line.partition(" ") for line in clients) if readonly == "0" and when]
    return max(0.0, time.time() - max(seen)) if seen else None
