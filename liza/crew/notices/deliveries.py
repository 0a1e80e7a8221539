"""Deliver one notice to one target, in a child process with a time limit."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from liza.crew.notices import desktop_notices
from liza.crew.notices.child_run import ChildEnd, ChildRunner
from liza.crew.notices.notice_targets import NoticeTarget, read_address, require_target
from liza.rules.errors import LizaError, Missing
from liza.rules.notices.notice_rules import Notice, clean_text
from liza.rules.notices.target_names import DESKTOP
from liza.rules.value_classes import Value

_CHILD = (sys.executable, "-P", "-m", "liza.crew.notices.apprise_child")
MAX_REASON = 200


class Limits(Value):
    """Seconds for one delivery: by a service, and by a person's command."""

    service: float = 30.0
    command: float = 60.0


def deliver(target: NoticeTarget, notice: Notice, root: Path, runner: ChildRunner, limits: Limits) -> str | None:
    """Deliver a notice; return None, or why it failed in one line without secrets. ``root``: the repository."""
    try:
        if target.is_command:
            return _run_command(target.text, notice, root, runner, limits.command)
        title = f"Liza {root.name}: {notice.kind.replace('_', ' ')}"
        if target.text == DESKTOP:
            command, no_input = desktop_notices.build_command(title, notice.text), b""
            end = runner.run(command, no_input, limits.service, Path("/"))
            return _failure("the desktop", end, limits.service)
        request = {"url": read_address(target.text), "title": title, "body": notice.text}
        return _run_apprise(request, runner, limits.service)
    except LizaError as error:
        return error.message
    except (OSError, ValueError) as error:
        # ValueError: a command with a NUL. The thread of the target must not end by it.
        return f"the sender could not be started: {getattr(error, 'strerror', None) or 'a text has a NUL'}"


def check_target(target: NoticeTarget, runner: ChildRunner, limits: Limits) -> None:
    """Raise UsageError or Missing if a target cannot be used, also if apprise does not accept its URL."""
    require_target(target)
    if target.is_command or target.text == DESKTOP:
        return
    problem = _run_apprise({"url": read_address(target.text)}, runner, limits.service)
    if problem is not None:
        raise Missing(f"{target.label}: {problem}", "liza watch --help")


def _run_apprise(request: dict[str, str], runner: ChildRunner, limit: float) -> str | None:
    # On stdin: other users can read the arguments of a process. Not in the repository, where agents can write modules.
    end = runner.run(_CHILD, msgspec.json.encode(request), limit, Path("/"))
    if end.code == 1 and end.errors:
        return clean_text(end.errors, MAX_REASON)
    return _failure("the service", end, limit, shows_errors=False)


def _run_command(command: str, notice: Notice, root: Path, runner: ChildRunner, limit: float) -> str | None:
    """Run a person's shell command. The texts of the notice are never part of the command line."""
    values = {"KIND": notice.kind, "ABOUT": notice.about, "MESSAGE": notice.message, "NEXT": notice.next}
    environ = {**os.environ, **{f"LIZA_ALARM_{name}": value for name, value in values.items()}}
    fields = ("kind", "about", "message", "next", "alarms")
    data = msgspec.json.encode({name: getattr(notice, name) for name in fields}) + b"\n"
    return _failure("the command", runner.run(["/bin/sh", "-c", command], data, limit, root, environ), limit)


def _failure(what: str, end: ChildEnd, limit: float, *, shows_errors: bool = True) -> str | None:
    if end.code == 0:
        return None
    if end.code is None:
        return f"{what} took longer than {limit:g} s and was ended"
    last = clean_text(end.errors.strip().rpartition("\n")[2], MAX_REASON) if shows_errors else ""
    cause = f"failed with exit status {end.code}" if end.code > 0 else f"was ended by signal {-end.code}"
    return f"{what} {cause}" + (f": {last}" if last else "")
