"""Targets of notices, the record of what each was sent, and the process that sends."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import msgspec

from liza.alarms.rules.notice_rules import NoticeRecord, failure_alarm
from liza.model.alarm_table import Alarm
from liza.model.configuration import NotifySettings
from liza.model.errors import LizaError, Missing, UsageError
from liza.model.paths import Paths
from liza.model.setting_limits import (
    DESKTOP,
    EXEC_LABEL,
    FILE_PREFIX,
    VARIABLE_PREFIX,
    is_url,
    target_label,
    target_problem,
)
from liza.model.value_classes import Value
from liza.programs.session.run_directory import read_struct
from liza.system import atomic, installation, program_path, untrusted_files
from liza.system.locks import is_flock_held

_HELP = "liza watch --help"
STOP_LIMIT = 3.0
"""Seconds to wait for the end of the process that sends; then it is killed."""


class NoticeTarget(Value):
    """A target as it was typed, or a shell command (``is_command``)."""

    text: str
    is_command: bool = False

    @property
    def label(self) -> str:
        """The name of the target without its address."""
        return EXEC_LABEL if self.is_command else target_label(self.text)

    @property
    def key(self) -> str:
        """The name of the files of the target: a digest, because the text may be a credential."""
        return hashlib.sha256(f"{self.label}\0{self.text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


class NoticePlan(Value):
    """Where to send alarms. ``quiet``: local hours in which nothing is sent. ``is_trial``: send a test, and end."""

    targets: tuple[NoticeTarget, ...]
    quiet: str | None = None
    is_trial: bool = False


def configured_plan(settings: NotifySettings) -> NoticePlan:
    """Return the targets of ``config.notify``. A URL is not one: the board must not have it."""
    targets = [NoticeTarget(text) for text in settings.targets if not is_url(text)]
    command = (settings.exec or "").strip()
    if command:
        targets.append(NoticeTarget(command, is_command=True))
    return NoticePlan(tuple(targets), settings.quiet)


def require_target(target: NoticeTarget, environ: Mapping[str, str]) -> None:
    """Raise UsageError if the target has no valid form, Missing if it cannot be used on this machine."""
    if target.is_command:
        return
    problem = target_problem(target.text)
    if problem is not None:
        raise UsageError(f"--notify: {problem}", _HELP)
    if target.text == DESKTOP:
        find_desktop_program()
        runtime = environ.get("XDG_RUNTIME_DIR", "")
        if not environ.get("DBUS_SESSION_BUS_ADDRESS") and not (runtime and os.path.lexists(Path(runtime) / "bus")):
            raise Missing("the desktop cannot be reached: DBUS_SESSION_BUS_ADDRESS is not set", _HELP)
        return
    read_address(target.text, environ)
    if find_spec("apprise") is None:
        message = f"{target.label} needs the extra notify, which is not installed"
        raise Missing(message, installation.extra_command("notify"))


def is_usable(target: NoticeTarget, environ: Mapping[str, str]) -> bool:
    """Return whether a target can be used on this machine."""
    try:
        require_target(target, environ)
    except (Missing, UsageError):
        return False
    return True


def find_desktop_program() -> str:
    """Return the path of the program that shows a notice on the desktop. Raises Missing."""
    try:
        return program_path.find_program("notify-send")
    except Missing:
        message = "the desktop cannot be reached: notify-send is not installed"
        raise Missing(message, "sudo apt install libnotify-bin") from None


def read_address(text: str, environ: Mapping[str, str]) -> str:
    """Return the URL that a target is or names. Raises Missing; its message has no part of the URL."""
    if text.startswith(VARIABLE_PREFIX):
        name = text.removeprefix(VARIABLE_PREFIX)
        address = environ.get(name, "").strip()
        source, hint = f"the environment variable {name}", f"export {name}=…"
    elif text.startswith(FILE_PREFIX):
        path = Path(text.removeprefix(FILE_PREFIX)).expanduser()
        source, hint = str(path), f"chmod 600 {path}"
        try:
            address = untrusted_files.read_record(path).decode("utf-8", "replace").strip()
        except (OSError, LizaError):
            raise Missing(f"the address of {text} cannot be read", f"ls -l {path}") from None
    else:
        return text
    if not is_url(address) or "\n" in address:
        raise Missing(f"{source} has no URL", hint)
    return address


def record_path(paths: Paths, key: str) -> Path:
    """Path of the record of a target."""
    return paths.notices / f"{key}.json"


def read_notice_record(paths: Paths, key: str) -> NoticeRecord:
    """Return the record of a target; an empty one if it is missing or damaged: then alarms are sent again."""
    with suppress(LizaError, OSError):
        return read_struct(record_path(paths, key), NoticeRecord) or NoticeRecord()
    return NoticeRecord()


def write_notice_record(paths: Paths, key: str, record: NoticeRecord) -> None:
    """Replace the record of a target. Raises OSError."""
    atomic.write(record_path(paths, key), msgspec.json.encode(record) + b"\n", sync=False)


def failure_alarms(paths: Paths, now: datetime) -> Iterator[Alarm]:
    """Yield an alarm for each target whose last delivery failed."""
    for path in sorted(paths.notices.glob("*.json")):
        alarm = failure_alarm(read_notice_record(paths, path.stem), now)
        if alarm is not None:
            yield alarm


def board_lock(paths: Paths) -> Path:
    """Path of the lock of the process that sends to the targets of ``config.notify``."""
    return paths.notices / "crew.lock"


def is_sent_for_board(paths: Paths) -> bool:
    """Return whether a process sends to the targets of ``config.notify``."""
    return is_flock_held(board_lock(paths))


class NoticeProcess:
    """The child process that sends alarms of a crew; without a plan to the targets of ``config.notify``.

    It ends when this process ends, however that ends: its standard input is a pipe of this process.
    """

    def __init__(self, paths: Paths, environ: Mapping[str, str], plan: NoticePlan | None = None) -> None:
        self._root, self._environ, self._plan = paths.root, environ, plan
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> NoticeProcess:
        self.keep()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def keep(self) -> None:
        """Start the process if it does not run. Raises OSError."""
        if self._process is not None and self._process.poll() is None:
            return
        self._process = self._start(subprocess.DEVNULL)

    def stop(self) -> None:
        """End the process, also if a service hangs. What was not sent is sent by the next process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def run_trial(self) -> Iterator[str]:
        """Send a test to each target; yield a line for each. Raises Missing if a target failed."""
        process = self._start(subprocess.PIPE)
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                yield line.decode("utf-8", "replace").rstrip("\n")
        if process.returncode:
            raise Missing("not every target could be notified", _HELP)

    def _start(self, output: int) -> subprocess.Popen[bytes]:
        # The plan is on stdin: other users can read the arguments of a process. Not started in the repository, where
        # agents can write modules. A group of its own: Ctrl+C ends it through its parent.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "liza.alarms.notice_sender", str(self._root)],
            cwd="/",
            env=dict(self._environ),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(self._plan) + b"\n")
            process.stdin.flush()
        return process
