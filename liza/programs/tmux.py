"""Sessions with a terminal that a person can attach to: the same shim and the same files, in a pane of tmux.

Each crew has a tmux server of its own, which reads nobody's configuration. A pane stays after its program's end, so
that the last screen can be read, until the agent's next session begins or the crew goes down.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from liza import faults
from liza.programs import aside, growth, processes, rundir, session, witnesses
from liza.programs.rundir import RunDir
from liza.programs.screens import Screen
from liza.programs.session import Living, NotStarted
from liza.rules.errors import LizaError, Refused
from liza.rules.model import Entry
from liza.rules.paths import Paths, agent_of

if TYPE_CHECKING:
    import libtmux

WIDTH, HEIGHT = 200, 50  # until a person attaches
HISTORY = 50_000  # lines
PLACE = "pane.json"
_ADDRESS = 100  # bytes that a socket's name may have on every system
_SILENT_SHIM = 0.5  # seconds between two looks at whether the pane of a shim that says nothing is dead
TRIES = 3  # calls of a server that ends just then
_LAST_MOMENT = 0.5  # seconds for a server without a pane to end
_BRACKETED = re.compile(rb"\x1b\[\?(?:[0-9]+;)*2004(?:;[0-9]+)*([hl])")
_LONGEST_SIGN = 64  # bytes of such a sign, at most
_END = "= clients"
_OPTIONS = (
    ("-g", "remain-on-exit", "on"),
    # Older ones do not know it; it would write over the last screen.
    ("-gq", "remain-on-exit-format", ""),
    ("-g", "history-limit", str(HISTORY)),
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


class Place(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """``pane.json``: the socket and the pid of the tmux server in which a run has its pane."""

    socket: str
    server: int


def is_installed() -> bool:
    """Whether there is a tmux."""
    return shutil.which("tmux") is not None


def start(run_dir: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Living | NotStarted:
    """Start a program in a terminal of its own; back when it runs, or is known not to.

    A run has one session: raises Refused when this run directory has, or had, one.
    """
    if not is_installed():
        return NotStarted(reason="tmux is not installed, and a program with a terminal needs it")
    return session.start_by(_bring, run_dir, argv, cwd, env)


def _bring(run_dir: Path, lock: int, launch: Mapping[str, Any]) -> tuple[str, str]:
    """Bring up a shim in a pane, and hand it the launch and the lock through a socket: neither touches the disk."""
    try:
        with _listening(run_dir) as (line, address):
            pane = _open(run_dir, address, session.shim_env(launch["env"]))
            faults.point("spawned", "shim")
            said = _hand_over(line, pane, lock, json.dumps(launch).encode())
            with suppress(LizaError):
                _close_earlier(pane)
            return said
    except (OSError, subprocess.SubprocessError, LizaError) as error:
        return "", f"tmux: {error}"


@contextmanager
def _listening(run_dir: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket that only this user can reach, and its name, which must be short."""
    directory = run_dir if len(os.fsencode(run_dir / "start.sock")) < _ADDRESS else Path(tempfile.mkdtemp())
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


def _open(run_dir: Path, address: str, env: Mapping[str, str]) -> Pane:
    """The pane of a run, with a shim in it that waits for its launch. Raises OSError, SubprocessError, Refused."""
    os.close(os.open(run_dir / "output.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    root, run = run_dir.parents[3], run_dir.name
    left = pane(root, run)
    if left is not None:
        # Of a starter that was killed: there is no session, so there is nothing in it.
        left.close()
    name = _session_name(run)
    words = [word for option in _OPTIONS for word in ("set-option", *option, ";")]
    variables = [word for key in env if key != "PATH" for word in ("-e", f"{key}={env[key]}")]
    words += ["new-session", "-d", "-P", "-F", "#{pid} #{socket_path}", "-s", name, "-x", str(WIDTH), "-y", str(HEIGHT)]
    words += ["-c", "/", *map(_word, variables), "--", *map(_word, session.shim_words(run_dir, address)), ";"]
    words += ["pipe-pane", "-t", f"={name}:", f"exec cat >> {_of_shell(run_dir / 'output.log')}"]
    pid, _, path = _first(root, words).partition(" ")
    aside.write(run_dir / PLACE, msgspec.json.encode(Place(socket=path, server=int(pid))) + b"\n")
    return Pane(root, run, Place(socket=path, server=int(pid)))


def _first(root: Path, words: Sequence[str]) -> str:
    """Say something to the crew's server, and start it where it does not run.

    Its environment is that of every shim, and an agent can ask for it: nothing of this process's, which may hold keys.
    """
    env = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMUX_TMPDIR") if name in os.environ}
    if not any(env.get(name) for name in ("LANG", "LC_ALL")):
        env["LC_ALL"] = "C.UTF-8"
    command = ["tmux", "-u", "-L", server_name(root), "-f", os.devnull, "start-server", ";", *words]
    for _ in range(TRIES):
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=session.START_LIMIT, check=False
        )
        # One whose last pane has gone takes calls until it has ended.
        if not done.returncode or "server exited" not in done.stderr:
            break
    if done.returncode:
        raise Refused(done.stderr.strip() or f"exit {done.returncode}", f"tmux -L {server_name(root)} ls")
    return done.stdout.strip()


def server_name(root: Path) -> str:
    """The name of the crew's own server, for ``tmux -L``."""
    return f"liza-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"


def _session_name(run: str) -> str:
    """A dot separates a pane from its window in tmux."""
    return run.replace(".", "_")


def _word(word: str) -> str:
    """A word of a command of tmux, in which a last semicolon would end the command."""
    return f"{word[:-1]}\\;" if word.endswith(";") else word


def _of_shell(path: Path) -> str:
    """A path for the shell behind ``pipe-pane``, which fills in #{…} and the signs of strftime before."""
    return shlex.quote(str(path)).replace("#", "##").replace("%", "%%")


def _hand_over(line: socket.socket, pane: Pane, lock: int, launch: bytes) -> tuple[str, str]:
    """What the shim says once it has the launch; and its complaint."""
    end = time.monotonic() + session.START_LIMIT
    while not processes.readable(line.fileno(), _SILENT_SHIM):
        if pane.is_dead():
            return "", pane.capture().strip().rpartition("\n")[2]
        if time.monotonic() >= end:
            pane.close()
            return f"the shim did not answer within {session.START_LIMIT:.0f} s", ""
    shim, _ = line.accept()
    with shim:
        shim.settimeout(session.START_LIMIT)
        socket.send_fds(shim, [launch[:1]], [lock])
        shim.sendall(launch[1:])
        shim.shutdown(socket.SHUT_WR)
        said = b""
        while part := shim.recv(4096):
            said += part
    return said.decode().strip(), ""


def _close_earlier(now: Pane) -> None:
    """Close the panes of the agent's earlier runs, whose programs are over."""
    for line in now.ask("list-panes", "-a", "-F", "#{pane_dead} #{session_name}"):
        dead, _, name = line.partition(" ")
        if dead == "1" and name.rpartition("_")[0] == agent_of(now.run) and name != _session_name(now.run):
            with suppress(Refused):
                now.ask("kill-session", "-t", f"={name}")


def pane(root: Path, run: str) -> Pane | None:
    """The pane of a run; None where it has none, or none any more. Raises LizaError where that cannot be known."""
    place = rundir.read(Paths(root).run(run) / PLACE, Place)
    if place is None or not Path(place.socket).exists():
        return None
    found = Pane(root, run, place)
    return found if found.exists() else None


def close(root: Path, run: str) -> None:
    """Close the pane of a run that is over. Raises Refused while its program lives."""
    found = pane(root, run)
    if found is None:
        return
    if isinstance(session.look(Paths(root).run(run)), session.Living | session.Starting):
        raise Refused(f"the program of {run} lives", "liza down")
    found.close()


def close_of(root: Path, agent: str) -> None:
    """Close the panes of an agent's runs that are over. Raises LizaError where a file of a run cannot be read."""
    _close(root, [path for path in _places(root) if path.parent.parent.name == agent])


def close_all(root: Path) -> None:
    """Close the panes of all runs that are over; with the last one a server goes. Raises LizaError where a file of a
    run cannot be read."""
    _close(root, _places(root))


def _close(root: Path, paths: Sequence[Path]) -> None:
    places = {path.parent.name: place for path in paths if (place := rundir.read(path, Place)) is not None}
    for run in places:
        with suppress(Refused):
            close(root, run)
    for place in set(places.values()):
        # It leaves its name behind; a newer one may have it by now.
        if _is_gone(place.server) and not _answers(place.socket):
            Path(place.socket).unlink(missing_ok=True)


def _answers(address: str) -> bool:
    """Whether somebody listens at a socket."""
    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(address) == 0


def _places(root: Path) -> list[Path]:
    return sorted(Paths(root).runs.glob(f"*/*/{PLACE}"))


def _is_gone(server: int) -> bool:
    """Whether a server has ended, or does so now. One that has a pane left stays."""
    who = processes.identity_of(server)
    handle = None if who is None else processes.handle_on(who)
    if handle is None:
        return processes.identity_of(server) is None
    try:
        return processes.readable(handle, _LAST_MOMENT)
    finally:
        os.close(handle)


class Pane:
    """The terminal of a run. What asks tmux raises Refused where the pane, or the server, is gone or stands still."""

    def __init__(self, root: Path, run: str, place: Place) -> None:
        self.root = root
        self.run = run
        self.place = place
        self.path = Paths(root).run(run)
        self.target = f"={_session_name(run)}:"

    @property
    def typing_lock(self) -> Path:
        """The file whose lock the one has who types."""
        return self.path / "typing.lock"

    @property
    def words(self) -> tuple[str, ...]:
        """The command that shows this pane to a person."""
        return ("tmux", "-u", "-S", self.place.socket, "attach-session", "-t", self.target.rstrip(":"))

    def exists(self) -> bool:
        """Whether tmux still has it."""
        if processes.identity_of(self.place.server) is None:
            return False
        return not self._said("has-session", "-t", self.target.rstrip(":")).returncode

    def is_alive(self) -> bool:
        """Whether the program in it lives."""
        living = session.look(self.path)
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
        living = session.look(self.path)
        found = witnesses.foreground(living.shim.pid) if isinstance(living, Living) else None
        return found or tuple(self.ask("display-message", "-p", "-t", self.target, "#{pane_current_command}"))

    def screen(self, now: float) -> Screen:
        """All that is to be seen at once; ``now`` is what the steady clock says."""
        facts = "#{cursor_y} #{cursor_x} #{pane_in_mode} #{pane_tty}"
        said = self.ask(
            *("display-message", "-p", "-t", self.target, facts, ";"),
            *("list-clients", "-t", self.target.rstrip(":"), "-F", "#{client_readonly} #{client_activity}", ";"),
            *("display-message", "-p", "-t", self.target, _END, ";"),
            *("capture-pane", "-p", "-t", self.target),
        )
        row, column, mode, terminal = said[0].split(" ", 3)
        over = said.index(_END)
        living = session.look(self.path)
        alive = isinstance(living, Living) and processes.alive(living.child)
        lines = tuple(said[over + 1 :])
        found = self.witnesses("\n".join(lines))
        return Screen(
            lines=lines,
            row=int(row),
            column=int(column),
            time=now,
            alive=alive,
            in_mode=mode == "1",
            by_line=_by_line(terminal),
            program=self.program() if alive else (),
            waiting=witnesses.joined(found),
            person=_person(said[1:over]),
            still=self.silence(),
            deaf=any(one.against for one in found),
        )

    def witnesses(self, text: str) -> tuple[witnesses.Witness, ...]:
        """The signs that the program waits for input; ``text`` is what its screen shows."""
        living = session.look(self.path)
        if not isinstance(living, Living):
            return ()
        return witnesses.of_session(living, self.silence(), text, from_terminal=True)

    def silence(self) -> float | None:
        """How many seconds ago the program last showed something; None before it did."""
        moved = RunDir(Paths(self.root), self.run).moved()
        return None if moved is None else max(0.0, time.time() - moved)

    def changes(self) -> AbstractContextManager[Callable[[float], None]]:
        """What waits until the program has shown something, so many seconds at the longest."""
        return growth.heard(self.path / "output.log")

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
        with suppress(FileNotFoundError), (self.path / "output.log").open("rb") as file:
            # Not mapped into memory: it may be cut meanwhile.
            while more := file.read(1 << 20):
                part = part[-_LONGEST_SIGN:] + more
                last = next((found[1] for found in reversed(list(_BRACKETED.finditer(part)))), last)
        return last == b"h"

    def enter(self) -> None:
        """Press Enter, as the character that it is: some versions lose the key of that name."""
        self.ask("send-keys", "-l", "-t", self.target, "\r")

    def close(self) -> None:
        """Take the pane away; a program in it loses its terminal."""
        self.ask("kill-session", "-t", self.target.rstrip(":"))

    def ask(self, *words: str) -> list[str]:
        """What tmux answers. Raises Refused."""
        done = self._said(*words)
        if done.returncode:
            raise Refused(
                f"tmux: {' '.join(done.stderr) or f'exit {done.returncode}'}", f"liza agents {agent_of(self.run)}"
            )
        return done.stdout

    def _said(self, *words: str) -> libtmux.common.tmux_cmd:
        # It would be waited for without a limit.
        if witnesses.is_stopped(self.place.server):
            raise Refused(f"the tmux server of {self.run} stands still", f"kill -CONT {self.place.server}")
        return _cmd(self.place.socket, words)


def _cmd(path: str, words: Sequence[str]) -> libtmux.common.tmux_cmd:
    """What the server at a socket answers. Raises Refused where there is no tmux any more."""
    # Here, for it takes longer to load than most commands take in all.
    import libtmux

    try:
        # -u: what a screen holds is UTF-8, whatever the locale says.
        return libtmux.Server(socket_path=path).cmd("-u", *words)
    except libtmux.exc.LibTmuxException as error:
        raise Refused(f"tmux cannot be asked: {error or type(error).__name__}", "apt install tmux") from error


def _by_line(terminal: str) -> bool | None:
    """Whether the kernel edits the lines of this terminal."""
    try:
        handle = os.open(terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return bool(termios.tcgetattr(handle)[3] & termios.ICANON)
    except termios.error:
        return None
    finally:
        os.close(handle)


def _person(clients: Sequence[str]) -> float | None:
    """How many seconds ago a person who is attached, and may type, did something."""
    seen = [int(when) for readonly, _, when in (line.partition(" ") for line in clients) if readonly == "0" and when]
    return max(0.0, time.time() - max(seen)) if seen else None
