"""The process that sends notices: ``python -P -m liza.alarms.notice_sender ROOT``.

Its input is one line: the plan as JSON, or ``null`` for the targets of ``config.notify``. It ends at the end of its
input. The only module that imports apprise: the extra ``liza[notify]``. Reasons of failures contain no part of a URL,
and nothing that the service answered.
"""

from __future__ import annotations

import html
import logging
import os
import queue
import re
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from liza.alarms import notices
from liza.alarms.current_alarms import find_alarms
from liza.alarms.notices import NoticePlan, NoticeTarget
from liza.alarms.rules import notice_rules
from liza.alarms.rules.notice_rules import Notice, PageLinks, clean_text
from liza.crew.crew import Crew, find_crew
from liza.hosts import lease_file
from liza.model.alarm_table import Alarm
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.setting_limits import DESKTOP, parse_hours
from liza.model.value_classes import decodable, replace
from liza.system import atomic, crash_points
from liza.system.limited_program import run_limited
from liza.system.locks import try_lock_path
from liza.tasks.evidence import gather_evidence

DUTY = "notices"
MAX_REASON = 200
SERVICE_LIMIT = 30.0
"""Seconds for one delivery by a service."""
COMMAND_LIMIT = 60.0
"""Seconds for a person's command."""


class TimedOut(BaseException):
    """A service took too long. No Exception: apprise catches those."""


class _StatusHandler(logging.Handler):
    """Keeps the HTTP status of the last failed request that apprise logs."""

    status = ""

    def emit(self, record: logging.LogRecord) -> None:
        match = re.search(r"\berror=(\d{3})\b", record.getMessage())
        self.status = match[1] if match else self.status


def main(root: Path) -> int:
    """Send alarms until the end of the input or SIGTERM; return the exit status."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=decodable(NoticePlan) | None)
    crew = find_crew(root)
    atomic.make_directory(crew.paths.root, crew.paths.notices)
    if plan is None:
        with try_lock_path(notices.board_lock(crew.paths), 0o600) as is_locked:
            return follow(crew, None) if is_locked else 0
    return send_trial(crew, plan) if plan.is_trial else follow(crew, plan)


def follow(crew: Crew, plan: NoticePlan | None) -> int:
    """Send each alarm once, until the input ends or the board names no target; return the exit status."""
    changes: queue.Queue[Any] = queue.Queue()
    checked: NoticePlan | None = None
    with crew.board.watch() as watch:
        watch.subscribe(changes)
        while True:
            seconds = 1
            # A board that cannot be read is reported by the supervisors.
            with suppress(LizaError, OSError):
                state = crew.board.read()
                current = notices.configured_plan(state.config.notify) if plan is None else plan
                if not current.targets:
                    return 0
                if current != checked:
                    check_urls(crew, current)
                    checked = current
                if plan is not None or has_duty(crew, current):
                    look(crew, state, current)
                seconds = state.config.poll_interval
            if _wait(changes, seconds):
                return 0


def has_duty(crew: Crew, plan: NoticePlan) -> bool:
    """Return whether this host sends for the crew: the only host, or the one of several that has the duty.

    A host takes it if no other one has it, and if it can use one of the targets. Raises HostFenced, BoardUnavailable.
    """
    if not crew.is_on_server:
        return True
    if not any(notices.is_usable(target, os.environ) for target in plan.targets):
        return False
    lease_file.act_for_host(crew)
    return crew.board.take_duty(DUTY) is not None


def _wait(changes: queue.Queue[Any], seconds: int) -> bool:
    """Wait for a change of the board, at least one second and at most ``seconds``; return whether the input ended."""
    for step in range(max(1, seconds)):
        if select.select([sys.stdin], [], [], 1.0)[0]:
            return True
        if not changes.empty() or step + 1 == seconds:
            break
    while not changes.empty():
        changes.get()
    return False


def check_urls(crew: Crew, plan: NoticePlan) -> None:
    """Record a failure for each target whose URL apprise does not accept. Raises OSError."""
    for target in plan.targets:
        if target.is_command or target.text == DESKTOP:
            continue
        try:
            reason = "" if _add_service(target) else _UNKNOWN_URL
        except LizaError as error:
            reason = error.message
        if reason:
            record = notices.read_notice_record(crew.paths, target.key)
            record = notice_rules.record_failure_of(record, reason, crew.clock.now())
            notices.write_notice_record(crew.paths, target.key, _labelled(record, target))


def look(crew: Crew, state: State, plan: NoticePlan) -> None:
    """Send what is new to each target. Raises LizaError, OSError."""
    alarms = find_alarms(crew, state, gather_evidence(crew, state))
    hours = parse_hours(plan.quiet) if plan.quiet is not None else None
    is_quiet = hours is not None and hours.contains(crew.clock.now().astimezone())
    links = notice_rules.page_links(state)
    for target in dict.fromkeys(plan.targets):
        send_new(crew, target, alarms, links, is_quiet=is_quiet)


def send_new(
    crew: Crew,
    target: NoticeTarget,
    alarms: Sequence[Alarm],
    links: PageLinks = notice_rules.NO_LINKS,
    *,
    is_quiet: bool = False,
) -> None:
    """Send the alarms that this target was not sent. Nothing is done while another process does it. Raises OSError."""
    with try_lock_path(crew.paths.notices / f"{target.key}.lock", 0o600) as is_locked:
        if not is_locked:
            return
        before = notices.read_notice_record(crew.paths, target.key)
        wanted = notice_rules.select_alarms(alarms, target.label)
        record = notice_rules.without_cleared(_labelled(before, target), wanted)
        if record.sent != before.sent:
            notices.write_notice_record(crew.paths, target.key, record)
        for notice in () if is_quiet else notice_rules.plan_notices(wanted, record, crew.clock.now(), links):
            reason = deliver(target, notice, crew.paths.root)
            if reason is None:
                crash_points.point("notices", "sent")
                record = notice_rules.record_delivery(record, notice)
            else:
                record = notice_rules.record_failure_of(record, reason, crew.clock.now())
            notices.write_notice_record(crew.paths, target.key, record)
            if reason is not None:
                return


def send_trial(crew: Crew, plan: NoticePlan) -> int:
    """Send a test to each target and print a line for each; return the exit status. A success ends the alarm of a
    target."""
    paths, links = crew.paths, notice_rules.NO_LINKS
    with suppress(LizaError, OSError):  # a target can be tried while the board cannot be read
        links = notice_rules.page_links(crew.board.read())
    trial = Alarm("test", "crew", "this is a test of liza watch --notify", "liza status")
    notice = notice_rules.build_notice(trial, links)
    has_failed = False
    for target in plan.targets:
        reason = deliver(target, notice, paths.root)
        sys.stdout.write(f"{target.label}: {reason or 'sent'}\n")
        sys.stdout.flush()
        has_failed = has_failed or reason is not None
        record = notices.read_notice_record(paths, target.key)
        if reason is None and record.failed_at is not None:
            notices.write_notice_record(paths, target.key, replace(record, failed_at=None))
    return int(has_failed)


def _labelled(record: notice_rules.NoticeRecord, target: NoticeTarget) -> notice_rules.NoticeRecord:
    return replace(record, label=target.label)


def deliver(target: NoticeTarget, notice: Notice, root: Path) -> str | None:
    """Deliver a notice; return None, or why it failed in one line without secrets. ``root``: the repository."""
    title = f"Liza {root.name}: {notice.kind.replace('_', ' ')}"
    try:
        if target.is_command:
            return _run_command(target.text, notice, root)
        if target.text == DESKTOP:
            # Services of the desktop read the body as markup: text of an agent must not become a link.
            body = html.escape(notice.text, quote=False)
            words = [notices.find_desktop_program(), "--app-name=liza", "--", title, body]
            return _run("the desktop", words, b"", SERVICE_LIMIT, Path("/"), os.environ)
        return _run_apprise(target, title, notice.text)
    except LizaError as error:
        return error.message
    except (OSError, ValueError) as error:
        # ValueError: a command with a NUL.
        return f"the sender could not be started: {getattr(error, 'strerror', None) or 'a text has a NUL'}"


_UNKNOWN_URL = "apprise does not accept this URL; to send JSON by POST, write json:// or jsons://"


def _add_service(target: NoticeTarget) -> Any:
    """Return apprise with the service of a target; None if it does not accept the URL. Raises Missing."""
    # Here, because it is an optional package.
    import apprise

    service = apprise.Apprise()
    return service if service.add(notices.read_address(target.text, os.environ)) else None


def _run_apprise(target: NoticeTarget, title: str, body: str) -> str | None:
    def end(number: int, frame: object) -> None:
        raise TimedOut

    handler, logger = _StatusHandler(), logging.getLogger("apprise")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING)
    service = _add_service(target)
    if service is None:
        return _UNKNOWN_URL
    signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, SERVICE_LIMIT)
        if service.notify(body, title, body_format="text"):
            return None
    except TimedOut:
        return f"the service took longer than {SERVICE_LIMIT:g} s and was ended"
    except (OSError, TypeError, ValueError) as error:
        # Without the message, which could show the URL.
        return f"the service failed: {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return f"the service answered HTTP {handler.status}" if handler.status else "the service gave no answer"


def _run_command(command: str, notice: Notice, root: Path) -> str | None:
    """Run a person's shell command. The texts of the notice are never part of the command line."""
    fields = ("kind", "about", "message", "next", "link")
    values = {name: getattr(notice, name) for name in fields}
    environ = {**os.environ, **{f"LIZA_ALARM_{name.upper()}": value for name, value in values.items()}}
    data = msgspec.json.encode({**values, "alarms": notice.alarms}) + b"\n"
    return _run("the command", ["/bin/sh", "-c", command], data, COMMAND_LIMIT, root, environ)


def _run(what: str, words: list[str], data: bytes, limit: float, cwd: Path, environ: Any) -> str | None:
    """Run a program, at most ``limit`` seconds, and end what is left of its process group. Raises OSError."""
    try:
        process = run_limited(words, limit, directory=cwd, environ=environ, data=data)
    except TimeoutError:
        return f"{what} took longer than {limit:g} s and was ended"
    if process.returncode == 0:
        return None
    last = clean_text(process.stderr.strip().rpartition("\n")[2], MAX_REASON)
    code = process.returncode
    cause = f"failed with exit status {code}" if code > 0 else f"was ended by signal {-code}"
    return f"{what} {cause}" + (f": {last}" if last else "")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
