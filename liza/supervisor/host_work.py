"""The process of a host as `liza up` starts it: the lease, and what this host shares with the others.

``python -P -m liza.supervisor.host_work ROOT``. The work is in threads with connections of their own: what
takes long, or waits for a server, holds up no renewal. Each part of the work fails for itself.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from liza.board.shared_records import SharedLog, SharedRecords
from liza.briefs import shared_inbox
from liza.crew import history_export, shared_logs
from liza.crew.caller import require_person
from liza.crew.crew import Crew, open_crew
from liza.crew.result import Result
from liza.crew.shared_logs import LogSender
from liza.hosts import lease_file, local_sessions
from liza.hosts.host_process import HostProcess
from liza.hosts.host_start import require_host_address
from liza.model.errors import BoardUnavailable, HostFenced, LizaError, format_error
from liza.model.model import FINAL_STATUSES
from liza.model.value_classes import replace
from liza.system import file_growth
from liza.system.clock import boottime
from liza.tasks import shared_code
from liza.tasks.evidence import gather_evidence
from liza.usage import costs, shared_facts
from liza.usage.shared_facts import AgentReport
from liza.view import status
from liza.view.rules.structs import AgentRow

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks without news."""
REPORT_SECONDS: Final = 2.0
"""Seconds between two looks at the files of all sessions."""
EXPORT_SECONDS: Final = 10.0
"""Seconds from one export of the history to the next."""
_STOP_LIMIT: Final = 10.0  # seconds for the last look

WorkParts = Mapping[str, Callable[[bool], None]]
"""Parts of the work by name. Each gets whether it is done for the last time."""
ListParts = Callable[[Crew, SharedRecords], WorkParts]


class WorkThread:
    """A thread that does its parts of the work again and again. It opens the crew for itself."""

    def __init__(self, name: str, root: Path, list_parts: ListParts, say: Callable[[str], None]) -> None:
        self._root, self._list_parts, self._say = root, list_parts, say
        self._news, self._is_stopping = threading.Event(), threading.Event()
        self._failures: dict[str, str] = {}
        """The last failure of each part of the work that failed at the last look."""
        self._thread = threading.Thread(target=self._run, name=f"host-{name}", daemon=True)

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread.ident is None:
            self._thread.start()

    def look(self) -> None:
        """Look for news soon."""
        self._news.set()

    def stop(self) -> None:
        """Look once more, and end. A server that does not answer is waited for a short time only."""
        self._is_stopping.set()
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_LIMIT)

    def _run(self) -> None:
        crew = open_crew(self._root)
        shared = crew.board.shared
        assert shared is not None
        parts = self._list_parts(crew, shared)
        while crew.paths.board_address.exists():
            is_last = self._is_stopping.is_set()
            self._news.clear()
            for name, work in parts.items():
                self._try(name, partial(work, is_last))
            if is_last:
                return
            self._news.wait(LOOK_SECONDS)

    def _try(self, name: str, work: Callable[[], None]) -> None:
        """Do one part of the work. A failure is said once, until the part succeeds."""
        try:
            work()
        except (BoardUnavailable, HostFenced):
            return  # the lease says that
        except (LizaError, OSError) as error:
            reason = f"{name}: {error}"
            if self._failures.get(name) != reason:
                self._failures[name] = reason
                self._say(reason)
        else:
            self._failures.pop(name, None)


class HostExchange:
    """Sends to the server what is new on this host, brings here what is new on others, and exports the history.

    The remote of git may take minutes, so the export has a thread of its own.
    """

    def __init__(self, crew: Crew, say: Callable[[str], None]) -> None:
        root = crew.paths.root
        self._threads = (
            WorkThread("records", root, _list_record_parts, say),
            WorkThread("history", root, _list_history_parts, say),
        )

    def start(self) -> None:
        """Begin, unless it has begun."""
        for thread in self._threads:
            thread.start()

    def look(self) -> None:
        """Look for news soon."""
        for thread in self._threads:
            thread.look()

    def stop(self) -> None:
        """Look once more, and end."""
        for thread in self._threads:
            thread.stop()


def _list_record_parts(crew: Crew, shared: SharedRecords) -> WorkParts:
    senders, reporter = [LogSender(crew.paths, log) for log in SharedLog], AgentReporter(crew, shared)

    def exchange_logs(_is_last: bool) -> None:
        for sender in senders:
            sender.send(shared)
        if sum(shared_logs.copy_lines(shared, crew.paths, log) for log in SharedLog):
            file_growth.wake_watchers(crew.paths, file_growth.BOARD)

    return {
        "messages": lambda _is_last: shared_inbox.deliver_messages(crew, shared),
        "logs": exchange_logs,
        "agents": lambda _is_last: reporter.tell(),
    }


def _list_history_parts(crew: Crew, _shared: SharedRecords) -> WorkParts:
    exporter = HistoryExporter(crew)
    open_tasks: frozenset[str] | None = None

    def forget_closed(_is_last: bool) -> None:
        nonlocal open_tasks
        now_open = frozenset(task.id for task in crew.board.read().tasks if task.status not in FINAL_STATUSES)
        if now_open != open_tasks:
            shared_code.forget_fetched(crew, now_open)
            open_tasks = now_open

    return {"history": lambda is_last: exporter.export(now=is_last), "closed tasks": forget_closed}


class HistoryExporter:
    """Exports the history every EXPORT_SECONDS, if this host has the duty."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._exported_at = float("-inf")
        self._has_failed = False

    def export(self, *, now: bool) -> None:
        """Export what waits if it is time, or ``now``. Raises LizaError, OSError."""
        crew, time = self._crew, boottime()
        if not now and time - self._exported_at < EXPORT_SECONDS:
            return
        self._exported_at = time
        if not self._has_failed and not history_export.has_news(crew):
            return
        lease_file.act_for_host(crew)
        if crew.board.take_duty(history_export.DUTY) is not None:
            self._has_failed = True
            history_export.export_history(crew)
            self._has_failed = False


class AgentReporter:
    """Tells the other hosts of the agents here, for their `liza status`: each change, and every WRITE_SECONDS."""

    def __init__(self, crew: Crew, shared: SharedRecords) -> None:
        self._crew, self._shared = crew, shared
        self._looked_at = self._sent_at = float("-inf")
        self._sent: dict[str, AgentRow] = {}

    def tell(self) -> None:
        """Tell what is new. Raises LizaError, OSError."""
        now, agents = boottime(), local_sessions.list_supervised(self._crew.paths)
        if now - self._looked_at < REPORT_SECONDS or not (agents or self._sent):
            return
        self._looked_at = now
        state = self._crew.board.read()
        evidence, signals = gather_evidence(self._crew, state), tuple(self._crew.board.signals())
        here = [agent for agent in agents if agent in state.agents]
        rows = {agent: status.agent_row(self._crew, state, agent, evidence, signals) for agent in here}
        # Times that only pass are told with the next change.
        steady = {agent: replace(row, seconds=None, lease_expires=None) for agent, row in rows.items()}
        if steady == self._sent and now - self._sent_at < shared_facts.WRITE_SECONDS:
            return
        living = costs.list_living(self._crew, state)
        reports = {
            agent: AgentReport(row=msgspec.Raw(msgspec.json.encode(row)), living=living.get(agent))
            for agent, row in rows.items()
        }
        shared_facts.write_reports(self._shared, self._crew.host, reports)
        self._sent, self._sent_at = steady, now


def run_host(crew: Crew, say: Callable[[str], None]) -> Result:
    """Run the host process of a crew until it is stopped. Raises Refused, UsageError, BoardServerRefused."""
    require_person(crew, planner=False)
    address, work = require_host_address(crew.paths), HostExchange(crew, say)
    HostProcess(crew.paths, address, say, work).run()
    return Result("changed", None, None, "liza host list", {}, "the host process has ended")


def main(root: Path, *, until_idle: bool = True) -> int:
    """Run the host process of a crew, by default until no supervisor is left; return its exit status."""

    def say(line: str) -> None:
        with suppress(OSError):
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    try:
        crew = open_crew(root)
        address, work = require_host_address(crew.paths), HostExchange(crew, say)
        HostProcess(crew.paths, address, say, work, until_idle=until_idle).run()
    except LizaError as error:
        say(format_error("liza host", error.message, error.hint))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
