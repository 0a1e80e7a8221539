"""The process of a host as `liza up` starts it: the lease, and what this host shares with the others.

``python -P -m liza.supervisor.host_work ROOT``. The work is a thread with a connection of its own: what takes long, or
waits for a server, holds up no renewal. Each part of the work fails for itself.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.board.shared_records import SharedLog, SharedRecords
from liza.briefs import shared_inbox
from liza.crew import shared_logs
from liza.crew.caller import require_person
from liza.crew.crew import Crew, open_crew
from liza.crew.log_sender import LogSender
from liza.crew.result import Result
from liza.hosts.host_process import HostProcess
from liza.hosts.host_start import require_host_address
from liza.model.errors import BoardUnavailable, LizaError, format_error
from liza.supervisor.agent_reports import AgentReporter
from liza.system import file_growth

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks without news."""
_STOP_LIMIT: Final = 10.0  # seconds for the last look


class HostExchange:
    """The thread that sends to the server what is new on this host, and brings here what is new on others."""

    def __init__(self, crew: Crew, say: Callable[[str], None]) -> None:
        self._crew, self._say = crew, say
        self._news, self._is_stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failures: dict[str, str] = {}
        """The last failure of each part of the work that failed at the last look."""

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="host-exchange", daemon=True)
            self._thread.start()

    def look(self) -> None:
        """Look for news soon."""
        self._news.set()

    def stop(self) -> None:
        """Look once more, and end. A server that does not answer is waited for a short time only."""
        self._is_stopping.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(_STOP_LIMIT)

    def _run(self) -> None:
        shared = self._crew.board.shared
        assert shared is not None
        parts = _list_parts(self._crew, shared)
        while True:
            is_last = self._is_stopping.is_set()
            self._news.clear()
            for name, work in parts.items():
                self._try(name, work)
            if is_last:
                return
            self._news.wait(LOOK_SECONDS)

    def _try(self, name: str, work: Callable[[], None]) -> None:
        """Do one part of the work. A failure is said once, until the part succeeds."""
        try:
            work()
        except BoardUnavailable:
            return  # the lease says that
        except (LizaError, OSError) as error:
            reason = f"{name}: {error}"
            if self._failures.get(name) != reason:
                self._failures[name] = reason
                self._say(reason)
        else:
            self._failures.pop(name, None)


def _list_parts(crew: Crew, shared: SharedRecords) -> Mapping[str, Callable[[], None]]:
    """Return the parts of the work by name."""
    senders = [LogSender(crew.paths, log) for log in SharedLog]

    def exchange_logs() -> None:
        for sender in senders:
            sender.send(shared)
        if sum(shared_logs.copy_lines(shared, crew.paths, log) for log in SharedLog):
            file_growth.wake_watchers(crew.paths, file_growth.BOARD)

    return {
        "messages": lambda: shared_inbox.deliver_messages(crew, shared),
        "logs": exchange_logs,
        "agents": AgentReporter(crew, shared).tell,
    }


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
