"""The parent of a program: outlives the supervisor, and leaves the program's beginning and end behind in files.

Run in a session of its own as ``python -I -S /abs/_shim.py RUNDIR LOCKFD`` with the launch as JSON on its stdin: argv,
cwd, env, and the path of what the program is to read. Or in the pane of a terminal, as ``_shim.py RUNDIR SOCKET``: then
launch and lock come through that socket, and the program has the terminal.
It imports the standard library only, and nothing of Liza: it may live longer than the installation that started it.

- ``session.json``  host, boot, pid and start time of shim and child; there before the program's first instruction
- ``exit.json``     code or signal, or the error that kept it from starting; there after all that it started is gone
- ``output.log``    what the program said
- ``output.times``  when it had which size, in seconds since the epoch and bytes
- LOCKFD            a lock held until the shim is gone, so that a run directory never holds two sessions
"""
# pathlib would double the time that this takes to start.
# ruff: noqa: PTH104, PTH123, PTH208

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

TERM_GRACE = 2.0  # seconds between TERM and KILL for what the program left running
KILL_LIMIT = 5.0  # seconds after KILL before the end is reported all the same
MAX_LOG_SIZE, KEPT_LOG_SIZE = 64 << 20, 4 << 20  # bytes of output.log at which it is cut, and that are left of it then
CHECK_INTERVAL, SHORT_CHECK_INTERVAL, FAST_GROWTH = (
    1.0,
    0.05,
    4 << 20,
)  # seconds between looks at it; bytes in one that make the next come soon
SUBREAPER, DEATH_SIGNAL = 36, 1
REPORTS_OFF = b"\x1b[?1004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l"
"""Switches off what a terminal reports by itself, focus and mouse; the screen stays."""
TERMINAL_STOP_SIGNALS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGQUIT, *TERMINAL_STOP_SIGNALS)


def main(run_dir: str, by: str) -> None:
    """Be the parent of one program. ``by`` is the descriptor of the lock, or the socket that it comes through."""
    if not by.isdigit():
        return run_in_pane(run_dir, by)
    os.set_inheritable(int(by), False)
    launch = json.load(sys.stdin)
    if os.fork():
        os._exit(0)  # The starter's child ends here: the shim is nobody's zombie.
    os.chdir(run_dir)
    return supervise_program(launch, os.dup(1))


def run_in_pane(run_dir: str, address: str) -> None:
    """The same with a terminal, whose session this process leads. No fork: the pane lives as long as this."""
    os.chdir(run_dir)
    starter = connect_to_starter(address)
    launch, lock = receive_launch(starter)
    os.set_inheritable(lock, False)
    launch["env"]["TERM"] = os.environ["TERM"]
    supervise_program(launch, starter.detach(), terminal=os.dup(0))


def connect_to_starter(address: str) -> socket.socket:
    """The line to the starter, which listens at ``address``. Raises OSError where it is gone."""
    import socket

    line = socket.socket(socket.AF_UNIX)
    line.connect(address)
    return line


def receive_launch(line: socket.socket) -> tuple[dict[str, Any], int]:
    """The launch, and the lock of the run. Raises where the starter died in the middle of it."""
    import socket

    said, handles, _, _ = socket.recv_fds(line, 1 << 16, 1)
    while part := line.recv(1 << 16):
        said += part
    return json.loads(said), handles[0]


def supervise_program(launch: dict[str, Any], report: int, terminal: int | None = None) -> None:
    """From before the program's first instruction until nothing of it is left."""
    ignore_signals()
    redirect_to_null(0, 1, 2)
    prctl(SUBREAPER, 1)
    child, go, failed = fork_program(launch, terminal)
    os.umask(0o077)  # Its own from here on; the program keeps the person's.
    forward_signals(child, (signal.SIGTERM,) if terminal is None else (signal.SIGTERM, signal.SIGHUP))
    write(
        "session.json", {"shim": identify_process(os.getpid()), "child": identify_process(child), "time": format_now()}
    )
    os.write(go, b"go")
    os.close(go)
    error = read_all(failed)
    with contextlib.suppress(OSError):  # The starter may be dead already; the files say the same.
        os.write(report, error or b"started")
    os.close(report)
    watch_output()
    status = wait_for_child(child, terminal)
    # Before it is swept: the server may go as well, meanwhile.
    unplugged = terminal is not None and is_hung_up(terminal)
    if terminal is not None and not unplugged:
        switch_off_reports(terminal)
    strays = kill_orphans()
    end = {**describe_exit(status, error.decode()), "strays": strays, "unplugged": unplugged, "time": format_now()}
    write("exit.json", end)


def ignore_signals() -> None:
    """Neither a closed terminal nor a broken pipe nor Ctrl+C ends the shim."""
    for name in IGNORED_SIGNALS:
        signal.signal(name, signal.SIG_IGN)


def redirect_to_null(*handles: int) -> None:
    """Let these descriptors lead nowhere."""
    null = os.open(os.devnull, os.O_RDWR)
    for handle in handles:
        os.dup2(null, handle)


def fork_program(launch: dict[str, Any], terminal: int | None) -> tuple[int, int, int]:
    """The program's process, waiting for a word; the pipe for that word; the pipe that tells why it could not start."""
    heard, go = os.pipe()
    failed, fail = os.pipe()
    child = os.fork()
    if child:
        os.close(heard)
        os.close(fail)
        with contextlib.suppress(OSError):  # The child says it too; whoever comes first.
            os.setpgid(child, child)
        return child, go, failed
    try:
        os.setpgid(0, 0)
        if terminal is not None:
            os.tcsetpgrp(terminal, os.getpid())
        prctl(DEATH_SIGNAL, signal.SIGKILL)
        os.close(go)
        if os.read(heard, 2) == b"go":
            exec_program(launch, terminal)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent has to hear it
        os.write(fail, explain_error(error, launch["argv"][0]).encode(errors="replace"))
    finally:
        os._exit(127)


def explain_error(error: BaseException, command: str) -> str:
    """What kept the program from starting, for a person."""
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return f"{command}: the system cannot run this file; a script needs a first line such as #!/bin/sh"
    if isinstance(error, OSError) and error.strerror:
        name = error.filename if isinstance(error.filename, str) else command
        return f"{name}: {error.strerror}"
    return f"{command}: {type(error).__name__}: {error}"


def exec_program(launch: dict[str, Any], terminal: int | None) -> None:
    """Turn this process into the program. Raises OSError."""
    for name in (*IGNORED_SIGNALS, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if terminal is None:
        redirect_stdio(launch["stdin"])
    else:
        for handle in (0, 1, 2):
            os.dup2(terminal, handle)
    os.chdir(launch["cwd"])
    os.execvpe(launch["argv"][0], launch["argv"], launch["env"])


def redirect_stdio(stdin: str) -> None:
    """Read a file, and write to the log. Raises OSError."""
    os.dup2(os.open("output.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), 1)
    os.dup2(1, 2)
    os.dup2(os.open(stdin, os.O_RDONLY), 0)


def read_all(handle: int) -> bytes:
    """All that comes from a pipe until its end."""
    said = b""
    while part := os.read(handle, 4096):
        said += part
    os.close(handle)
    return said


def forward_signals(child: int, signals: tuple[signal.Signals, ...]) -> None:
    """Who asks the shim to end asks the program; the shim ends after it. Of a terminal that is gone the kernel tells
    only the leader of its session."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, number)

    for number in signals:
        signal.signal(number, pass_on)


def watch_output() -> None:
    """Keep the program's output from filling the disk, for as long as it runs."""
    size = 0

    def look(_number: int, _frame: FrameType | None) -> None:
        nonlocal size
        before, size = size, cap("output.log")
        record_size(before, size)
        signal.setitimer(signal.ITIMER_REAL, SHORT_CHECK_INTERVAL if size - before > FAST_GROWTH else CHECK_INTERVAL)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, CHECK_INTERVAL)


def record_size(before: int, size: int) -> None:
    """Append the time at which the log had this size to ``output.times``, where it is another one than before."""
    if size != before:
        with contextlib.suppress(OSError):
            handle = os.open("output.times", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "ab", buffering=0) as file:
                file.write(b"%d %d\n" % (time.time(), size))


def cap(path: str | os.PathLike[str], largest: int = MAX_LOG_SIZE, kept: int = KEPT_LOG_SIZE) -> int:
    """Cut a file that grew too large to its last part; its size then. Who writes has it open for appending, so the
    next word comes after that part."""
    # Not through a link: that would cut a file of somebody else.
    with contextlib.suppress(OSError), os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size <= largest:
            return size
        file.seek(size - kept)
        last = file.read(kept)
        told = f"[liza: this log was cut at {size} bytes; what follows is its last part]\n"
        os.ftruncate(file.fileno(), 0)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        with os.fdopen(handle, "ab", buffering=0) as end:
            end.write(told.encode() + last)
        return kept
    return 0


def wait_for_child(child: int, terminal: int | None) -> int:
    """The child's end; orphans that came to the subreaper are reaped on the way."""
    while True:
        pid, status = os.waitpid(-1, 0 if terminal is None else os.WUNTRACED)
        if terminal is not None and os.WIFSTOPPED(status):
            if pid == child and os.WSTOPSIG(status) in TERMINAL_STOP_SIGNALS:
                continue_child(child, terminal)
        elif pid == child:
            return status


def is_hung_up(terminal: int) -> bool:
    """Whether nobody is at the other end of a terminal any more."""
    import select

    waiter = select.poll()
    waiter.register(terminal, 0)
    return any(event & select.POLLHUP for _, event in waiter.poll(0))


def switch_off_reports(terminal: int) -> None:
    """Take back the reports that a program asked its terminal for, which one that was killed leaves switched on: tmux
    3.3a writes a report of focus into a pane whose process is gone, and crashes, with every other agent's terminal."""
    with contextlib.suppress(OSError):
        # Opened again: a server that is stopped reads nothing, and a write to it must not block.
        handle = os.open(os.ttyname(terminal), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            os.write(handle, REPORTS_OFF)
        finally:
            os.close(handle)


def continue_child(child: int, terminal: int) -> None:
    """No shell stands behind the program that could fetch it back from Ctrl+Z."""
    with contextlib.suppress(OSError):
        os.tcsetpgrp(terminal, child)
        os.killpg(child, signal.SIGCONT)


def kill_orphans() -> int:
    """End what the program left running, so that nothing writes into its worktree any more; how many there were."""
    strays = find_descendants(os.getpid())
    for number, limit in ((signal.SIGTERM, TERM_GRACE), (signal.SIGKILL, KILL_LIMIT)):
        for pid in find_descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        if reap_children(limit):
            break
    return len(strays)


def reap_children(limit: float) -> bool:
    """Wait until no child is left, at most ``limit`` seconds; whether none is."""
    end = time.monotonic() + limit
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return True
        left = end - time.monotonic()
        if left <= 0:
            return False
        if hasattr(signal, "sigtimedwait"):
            signal.sigtimedwait({signal.SIGCHLD}, left)
        else:
            return False


def find_descendants(top: int) -> list[int]:
    """Every descendant of ``top``; none where the system has no /proc."""
    children: dict[str, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    children.setdefault(read_stat_fields(name)[1], []).append(int(name))
    found: list[int] = []
    ahead = list(children.get(str(top), []))
    while ahead:
        pid = ahead.pop()
        found.append(pid)
        ahead.extend(children.get(str(pid), []))
    return found


def read_stat_fields(pid: int | str) -> list[str]:
    """What /proc says of a process, from its state on. Raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2].decode().split()


def identify_process(pid: int) -> dict[str, str | int]:
    """The process as Liza names it: host, boot, pid, start time."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        start = read_stat_fields(pid)[19]
    except OSError:
        boot = command_output("sysctl", "-n", "kern.boottime")
        start = command_output("ps", "-o", "lstart=", "-p", str(pid))
    return {"host": os.uname().nodename, "boot": boot, "pid": pid, "start": start}


def command_output(*words: str) -> str:
    """The output of a command."""
    import subprocess

    return subprocess.run(words, capture_output=True, text=True, timeout=10).stdout.strip()


def describe_exit(status: int, error: str) -> dict[str, int | str | None]:
    """How the program ended."""
    if error:
        return {"code": None, "signal": None, "error": error}
    if os.WIFSIGNALED(status):
        return {"code": None, "signal": os.WTERMSIG(status), "error": None}
    return {"code": os.WEXITSTATUS(status), "signal": None, "error": None}


def write(name: str, content: dict[str, Any]) -> None:
    """Aside, synced, renamed: whoever sees the file sees all of it."""
    with open(name + ".aside", "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(name + ".aside", name)


def format_now() -> str:
    """The time, as Liza writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the group and the lock have to do."""
    with contextlib.suppress(Exception):  # No ctypes, no libc, no such call: all the same.
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
