"""The parent of a program: outlives the supervisor, and records the program's start and end in files.

Run in a session of its own as ``python -I -S /abs/_shim.py RUNDIR LOCKFD`` with the launch as JSON on its stdin: argv,
cwd, env, and the path of the program's input. In the pane of a terminal, run as ``_shim.py RUNDIR SOCKET``: then launch
and lock are received from that socket, and the program uses the terminal.

It imports the standard library only, and `_session_socket.py` at its start, for a session in a box: it may outlive the
installation that started it. Therefore the rules of ``system/untrusted_files.py`` and ``system/atomic.py`` (O_NOFOLLOW;
write, rename) are repeated here.

- ``session.json``  host, boot, pid and start time of shim and child; written before the program's first instruction
- ``exit.json``     code or signal, or the start error; written after everything that it started is gone
- ``output.log``    the program's output
- ``output.times``  the sizes of output.log: seconds since the epoch, and bytes
- ``session.sock``  where commands from inside a box are answered
- LOCKFD            a lock held until the shim exits, so that a run directory never has two sessions
"""
# pathlib would double the time that this takes to start.
# ruff: noqa: PTH104, PTH108, PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from liza.programs.session._session_socket import SessionSocket

TERM_GRACE = 2.0  # seconds between SIGTERM and SIGKILL for processes that the program left running
KILL_LIMIT = 5.0  # seconds after SIGKILL until the end is recorded even if processes survive
MAX_LOG_SIZE, KEPT_LOG_SIZE = 64 << 20, 4 << 20  # bytes of output.log at which it is cut, and bytes kept then
CHECK_INTERVAL, SHORT_CHECK_INTERVAL = 1.0, 0.05  # seconds between checks of its size; the second after FAST_GROWTH
FAST_GROWTH = 4 << 20  # bytes in one interval
LEASE_LIMIT = 30.0
"""Seconds without a renewal of the host's lease after which the program ends: SESSION_LIMIT of the rules of leases."""
BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC))
"""The clock of ``sent_at``: seconds since boot, with the time asleep. macOS has it under another name."""
SUBREAPER, DEATH_SIGNAL = 36, 1
REPORTS_OFF = b"\x1b[?1004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l"
"""Escape sequences that switch off focus and mouse reports of a terminal; its contents stay."""
SIGNAL_BASE = 128
START_FAILURES = (1, 126, 127)
"""Exit codes of a box that could not be made, and of a program in it that could not be started."""
TERMINAL_STOP_SIGNALS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGQUIT, *TERMINAL_STOP_SIGNALS)


def main(run_dir: str, by: str) -> None:
    """Run as the parent of one program. ``by`` is the descriptor of the lock, or the socket that passes it."""
    if not by.isdigit():
        return run_in_pane(run_dir, by)
    os.set_inheritable(int(by), False)
    launch = json.load(sys.stdin)
    if os.fork():
        os._exit(0)  # The starter's child ends here, so that init reaps the shim and it is never a zombie.
    os.chdir(run_dir)
    return supervise_program(launch, os.dup(1))


def run_in_pane(run_dir: str, address: str) -> None:
    """Run as the parent of one program in a terminal, as its session leader. No fork: the pane exits with this
    process."""
    os.chdir(run_dir)
    starter = connect_to_starter(address)
    launch, lock = receive_launch(starter)
    os.set_inheritable(lock, False)
    launch["env"]["TERM"] = os.environ["TERM"]
    supervise_program(launch, starter.detach(), terminal=os.dup(0))


def connect_to_starter(address: str) -> socket.socket:
    """Connect to the starter, which listens at ``address``. Raises OSError if it is gone."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


def receive_launch(connection: socket.socket) -> tuple[dict[str, Any], int]:
    """Receive the launch, and the lock of the run. Raises an error if the starter died while sending."""
    data, handles, _, _ = socket.recv_fds(connection, 1 << 16, 1)
    while chunk := connection.recv(1 << 16):
        data += chunk
    return json.loads(data), handles[0]


def supervise_program(launch: dict[str, Any], report: int, terminal: int | None = None) -> None:
    """Start the program, wait for its end, and kill what it left running."""
    ignore_signals()
    redirect_to_null(0, 1, 2)
    prctl(SUBREAPER, 1)
    verbs = open_session_socket(launch)  # before the program starts: its box has the socket's file
    child, release, error_pipe = fork_program(launch, terminal)
    os.umask(0o077)  # For the shim's own files; the program has been forked with the person's umask.
    forward_signals(child, (signal.SIGTERM,) if terminal is None else (signal.SIGTERM, signal.SIGHUP))
    write(
        "session.json", {"shim": identify_process(os.getpid()), "child": identify_process(child), "time": format_now()}
    )
    os.write(release, b"go")
    os.close(release)
    error = read_all(error_pipe)
    with contextlib.suppress(OSError):  # The starter may be dead already; the files record the same.
        os.write(report, error or b"started")
    os.close(report)
    lease = HostLeaseWatch(launch["lease"]) if "lease" in launch else None
    watch_output(lease)
    status = wait_for_child(child, terminal, verbs)
    if verbs is not None:
        verbs.close()
        reap_children(TERM_GRACE)  # The kernel ends what is left in the box: these are no strays.
    # Before kill_orphans: the tmux server may exit meanwhile.
    unplugged = terminal is not None and is_hung_up(terminal)
    if terminal is not None and not unplugged:
        switch_off_reports(terminal)
    strays = kill_orphans()
    if verbs is None:
        described = describe_exit(status, error.decode())
    else:
        described = describe_exit_of_box(status, error.decode(), launch["verbs"]["start_errors"])
    if lease is not None and lease.is_over:
        described["fenced"] = True
    end = {**described, "strays": strays, "unplugged": unplugged, "time": format_now()}
    write("exit.json", end)


def open_session_socket(launch: dict[str, Any]) -> SessionSocket | None:
    """Return the listening socket of a session in a box; None for another session. Raises OSError."""
    if "verbs" not in launch:
        return None
    sys.path.append(os.path.abspath(f"{__file__}/../../../.."))  # noqa: PTH100
    from liza.programs.session._session_socket import SessionSocket

    return SessionSocket(launch["verbs"])


def ignore_signals() -> None:
    """Ignore signals from a closed terminal, a broken pipe or Ctrl+C."""
    for name in IGNORED_SIGNALS:
        signal.signal(name, signal.SIG_IGN)


def redirect_to_null(*handles: int) -> None:
    """Redirect these descriptors to /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for handle in handles:
        os.dup2(null, handle)


def fork_program(launch: dict[str, Any], terminal: int | None) -> tuple[int, int, int]:
    """Fork the program's process, which waits before it executes.

    Return its pid, the pipe that releases it, and the pipe from which its start error is read.
    """
    release_read, release = os.pipe()
    error_pipe, error_write = os.pipe()
    child = os.fork()
    if child:
        os.close(release_read)
        os.close(error_write)
        with contextlib.suppress(OSError):  # Parent and child both call setpgid: neither may rely on the other's order.
            os.setpgid(child, child)
        return child, release, error_pipe
    try:
        os.setpgid(0, 0)
        if terminal is not None:
            os.tcsetpgrp(terminal, os.getpid())
        prctl(DEATH_SIGNAL, signal.SIGKILL)
        os.close(release)
        if os.read(release_read, 2) == b"go":
            exec_program(launch, terminal)
    except BaseException as error:  # noqa: BLE001 - any error has to reach the parent
        os.write(error_write, explain_error(error, launch["argv"][0]).encode(errors="replace"))
    finally:
        os._exit(127)


def explain_error(error: BaseException, command: str) -> str:
    """Return for a person why the program could not be started."""
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return f"{command}: the system cannot run this file; a script needs a first line such as #!/bin/sh"
    if isinstance(error, OSError) and error.strerror:
        name = error.filename if isinstance(error.filename, str) else command
        return f"{name}: {error.strerror}"
    return f"{command}: {type(error).__name__}: {error}"


def exec_program(launch: dict[str, Any], terminal: int | None) -> None:
    """Replace this process with the program. Raises OSError."""
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
    """Read stdin from a file, and append output to the log. Raises OSError."""
    os.dup2(open_log("output.log"), 1)
    os.dup2(1, 2)
    os.dup2(os.open(stdin, os.O_RDONLY), 0)


def open_log(name: str) -> int:
    """Open a regular file to append to. Agents can plant a pipe at this name: do not wait for its reader.

    Raises OSError.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = os.open(name, flags, 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", name)
    os.set_blocking(handle, True)
    return handle


def read_all(handle: int) -> bytes:
    """Read a pipe until end of file, and close it."""
    data = b""
    while chunk := os.read(handle, 4096):
        data += chunk
    os.close(handle)
    return data


def forward_signals(child: int, signals: tuple[signal.Signals, ...]) -> None:
    """Forward these signals to the program's group; the shim exits after it.

    SIGHUP is one of them in a terminal: the kernel sends it only to the session leader, which is the shim.
    """

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, number)

    for number in signals:
        signal.signal(number, forward)


def watch_output(lease: HostLeaseWatch | None) -> None:
    """Check the size of the output once per interval, so that the program cannot fill the disk; and the lease."""
    size = 0

    def check(_number: int, _frame: FrameType | None) -> None:
        nonlocal size
        before, size = size, cap("output.log")
        record_size(before, size)
        if lease is not None:
            lease.check()
        signal.setitimer(signal.ITIMER_REAL, SHORT_CHECK_INTERVAL if size - before > FAST_GROWTH else CHECK_INTERVAL)

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, CHECK_INTERVAL)


class HostLeaseWatch:
    """Ends the program if the lease of this host is not renewed: another host may take over its task then.

    The file has ``sent_at``, the CLOCK_BOOTTIME at which the last successful renewal was sent. Nothing here waits for a
    network, and it also holds while the supervisor and the process that renews are stopped or killed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.sent_at = time.clock_gettime(BOOT_CLOCK)
        self.is_over = False

    def check(self) -> None:
        """Stop all processes at once, and kill them, if the lease is over."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(self.path, "rb") as file:
            self.sent_at = float(json.load(file)["sent_at"])
        # A lease of the time before a boot was sent "later" than now.
        self.is_over = self.is_over or not 0 <= time.clock_gettime(BOOT_CLOCK) - self.sent_at < LEASE_LIMIT
        for number in (signal.SIGSTOP, signal.SIGKILL) if self.is_over else ():
            for pid in find_descendants(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)


def record_size(before: int, size: int) -> None:
    """Append the time and the size to ``output.times`` if the size has changed."""
    if size != before:
        with contextlib.suppress(OSError), os.fdopen(open_log("output.times"), "ab", buffering=0) as file:
            file.write(b"%d %d\n" % (time.time(), size))


def cap(path: str | os.PathLike[str], largest: int = MAX_LOG_SIZE, kept: int = KEPT_LOG_SIZE) -> int:
    """Cut a file that grew too large to its last part, and return its size.

    The writer opened it with O_APPEND, so its next write follows that part.
    """
    # O_NOFOLLOW: a link would cut a file outside the run directory.
    with contextlib.suppress(OSError), os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size <= largest:
            return size
        file.seek(size - kept)
        tail = file.read(kept)
        notice = f"[liza: this log was cut at {size} bytes; what follows is its last part]\n"
        os.ftruncate(file.fileno(), 0)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        with os.fdopen(handle, "ab", buffering=0) as end:
            end.write(notice.encode() + tail)
        return kept
    return 0


def wait_for_child(child: int, terminal: int | None, verbs: SessionSocket | None) -> int:
    """Return the child's wait status. Meanwhile reap orphans that the subreaper inherited, and answer the session's
    socket."""
    wakeup = open_wakeup_pipe()
    while True:
        status = reap(child, terminal, verbs)
        if status is not None:
            return status
        waiter = select.poll()
        for descriptor in (wakeup, *(verbs.waiting_descriptors() if verbs is not None else ())):
            waiter.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in waiter.poll()]
        if wakeup in ready:
            os.read(wakeup, 4096)
        if verbs is not None and ready != [wakeup]:
            verbs.accept()


def open_wakeup_pipe() -> int:
    """Return a descriptor that becomes readable when a signal arrives, such as that a child has ended."""
    wakeup, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return wakeup


def reap(child: int, terminal: int | None, verbs: SessionSocket | None) -> int | None:
    """Return the wait status of the child if it has ended. Also reap all others that have, and continue a child that
    stopped itself in a terminal."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG | (0 if terminal is None else os.WUNTRACED))
        if pid == 0:
            return None
        if terminal is not None and os.WIFSTOPPED(status):
            if pid == child and os.WSTOPSIG(status) in TERMINAL_STOP_SIGNALS:
                continue_child(child, terminal)
        elif pid == child:
            return status
        elif verbs is not None:
            verbs.forget(pid)


def is_hung_up(terminal: int) -> bool:
    """Return whether the other end of a terminal is closed."""
    waiter = select.poll()
    waiter.register(terminal, 0)
    return any(event & select.POLLHUP for _, event in waiter.poll(0))


def switch_off_reports(terminal: int) -> None:
    """Switch off the reports that a program requested from its terminal: a killed program leaves them on.

    tmux 3.3a crashes, with all its panes, when it writes a focus report into a pane whose process is gone.
    """
    with contextlib.suppress(OSError):
        # Opened again with O_NONBLOCK: a stopped server reads nothing, and a write to it must not block.
        handle = os.open(os.ttyname(terminal), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            os.write(handle, REPORTS_OFF)
        finally:
            os.close(handle)


def continue_child(child: int, terminal: int) -> None:
    """Continue a program that stopped itself, for example by Ctrl+Z: there is no shell that could continue it."""
    with contextlib.suppress(OSError):
        os.tcsetpgrp(terminal, child)
        os.killpg(child, signal.SIGCONT)


def kill_orphans() -> int:
    """Kill what the program left running, so that nothing writes into its worktree. Return how many there were."""
    strays = find_descendants(os.getpid())
    for number, limit in ((signal.SIGTERM, TERM_GRACE), (signal.SIGKILL, KILL_LIMIT)):
        for pid in find_descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        if reap_children(limit):
            break
    return len(strays)


def reap_children(limit: float) -> bool:
    """Wait until no child is left, at most ``limit`` seconds. Return whether none is left."""
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
    """Return all descendants of ``top``; none if the system has no /proc."""
    children: dict[str, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    children.setdefault(read_stat_fields(name)[1], []).append(int(name))
    descendants: list[int] = []
    pending = list(children.get(str(top), []))
    while pending:
        pid = pending.pop()
        descendants.append(pid)
        pending.extend(children.get(str(pid), []))
    return descendants


def read_stat_fields(pid: int | str) -> list[str]:
    """Return the fields of /proc/<pid>/stat, from the state on. Raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2].decode().split()


def identify_process(pid: int) -> dict[str, str | int]:
    """Return the process identity as Liza writes it: host, boot, pid, start time."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        start = read_stat_fields(pid)[19]
    except OSError:
        boot = command_output("sysctl", "-n", "kern.boottime")
        start = command_output("ps", "-o", "lstart=", "-p", str(pid))
    return {"host": os.uname().nodename, "boot": boot, "pid": pid, "start": start}


def command_output(*words: str) -> str:
    """Return the output of a command. Limit: 10 s."""
    return subprocess.run(words, capture_output=True, text=True, timeout=10).stdout.strip()


def describe_exit(status: int, error: str) -> dict[str, Any]:
    """Return the exit code, the signal or the start error."""
    if error:
        return {"code": None, "signal": None, "error": error}
    if os.WIFSIGNALED(status):
        return {"code": None, "signal": os.WTERMSIG(status), "error": None}
    return {"code": os.WEXITSTATUS(status), "signal": None, "error": None}


def describe_exit_of_box(status: int, error: str, start_errors: list[str]) -> dict[str, Any]:
    """As ``describe_exit``, of a box: it exits with 128 and the number of the signal that ended its program, and it
    prints why it could not start it."""
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
    if code > SIGNAL_BASE and code - SIGNAL_BASE in signal.valid_signals():
        return {"code": None, "signal": code - SIGNAL_BASE, "error": None}
    line = read_first_line("output.log") if code in START_FAILURES else ""
    return describe_exit(status, error or (line if line.startswith(tuple(start_errors)) else ""))


def read_first_line(path: str) -> str:
    """Return the first line of the output; empty if it cannot be read."""
    with contextlib.suppress(OSError), os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        return file.readline(4096).decode(errors="replace").strip()
    return ""


def write(name: str, content: dict[str, Any]) -> None:
    """Write a file atomically: write a temporary file, fsync, rename."""
    # A new file: agents can plant a link or a pipe at this name.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name + ".aside")
    handle = os.open(name + ".aside", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(name + ".aside", name)


def format_now() -> str:
    """Return the time in Liza's format."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def prctl(option: int, value: int) -> None:
    """Call prctl on Linux; do nothing elsewhere: there the group and the lock must suffice."""
    with contextlib.suppress(Exception):  # no ctypes, no libc or no such call
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
