"""The process of a host: renew its lease, and wake the supervisors of this host when the board has changed.

It holds the only connection of this host that listens. That of a `liza up` ends when no supervisor is left. `liza host
run` goes on until it is stopped. `liza/supervisor/host_work.py` starts both, with what they do beside the lease.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol
from uuid import uuid4

from liza.board.address import BoardAddress
from liza.board.postgresql.connection import ServerConnection, connect
from liza.board.postgresql.hosts_table import HostsTable
from liza.board.postgresql.signal_rows import LOOK_AGAIN_SECONDS, CrewMarks, channel, read_marks
from liza.board.rules.host_leases import LEFT_LIMIT, RENEWAL, Begin, Continue, HostLease, NameTaken, decide_start
from liza.hosts import lease_file
from liza.hosts.local_sessions import end_sessions, has_sessions, has_supervisors, list_supervised
from liza.model.backoff import backoff
from liza.model.errors import BoardUnavailable, HostFenced, LockTimeout, Refused, WriteFailed
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.programs import liveness
from liza.programs.session.run_directory import RunDir
from liza.system import file_growth
from liza.system.clock import boottime
from liza.system.locks import Lock, describe_holder
from liza.system.processes import boot_id, host_name
from liza.text.formats import format_time

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks for changes of which no notification came."""
IDLE_SECONDS: Final = 30.0
"""Seconds without a supervisor after which the process of a `liza up` ends."""
ANSWER_LIMIT: Final = 5.0
"""Seconds after which a server that does not answer is given up: then another connection is tried."""
FIRST_RETRY, MAX_RETRY = 0.5, 5.0  # seconds between two tries to connect


class HostWork(Protocol):
    """What the process of a host does beside the lease, in a thread of its own: no work holds a renewal up."""

    def start(self) -> None:
        """Begin."""

    def look(self) -> None:
        """Look for news soon."""

    def stop(self) -> None:
        """Do what is left, in a short time, and end."""


class HostProcess:
    """Renews the lease of a host until it is stopped.

    ``say`` prints a line. ``work``: what it does beside. ``until_idle``: end when no supervisor of this host is left.
    """

    def __init__(
        self,
        paths: Paths,
        address: BoardAddress,
        say: Callable[[str], None],
        work: HostWork | None = None,
        *,
        until_idle: bool = False,
    ) -> None:
        self._paths, self._address, self._say, self._until_idle = paths, address, say, until_idle
        self._work = work
        self._is_stopped = False
        self._wakeup, self._wakeup_end = os.pipe()
        os.set_blocking(self._wakeup_end, False)
        self._left_agents = LeftAgents(paths)
        self._seen = CrewMarks()
        self._last_busy = boottime()
        self._failures = 0

    def run(self) -> None:
        """Run until it is stopped. Raises Refused if another process has the name of this host."""
        lock = Lock(self._paths.host_lock)
        if not lock.try_acquire():
            holder = describe_holder(self._paths.host_lock)
            raise Refused(f"the host process of this clone runs already: {holder}", "liza host list")
        try:
            with self._catch_signals():
                while not self._is_over():
                    self._try_to_serve()
        finally:
            lock.release()

    @contextmanager
    def _catch_signals(self) -> Iterator[None]:
        def stop(_number: int, _frame: object) -> None:
            self._is_stopped = True

        former = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        former_wakeup = signal.set_wakeup_fd(self._wakeup_end, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(former_wakeup)
            for number, handler in former.items():
                signal.signal(number, handler)

    def _try_to_serve(self) -> None:
        """Connect, and serve as long as the connection lasts; wait after a failure."""
        try:
            connection = connect(self._address, ANSWER_LIMIT)
            try:
                self._serve(connection)
            finally:
                connection.close()
        except (BoardUnavailable, LockTimeout, WriteFailed) as error:
            self._failures += 1
            if self._failures == 1:
                self._say(error.message)
            # A server that does not come back must not keep this process for ever.
            self._is_stopped = self._is_over() or self._is_idle()
            self._wait(0 if self._is_stopped else backoff(self._failures, FIRST_RETRY, MAX_RETRY))

    def _serve(self, connection: ServerConnection) -> None:
        table = HostsTable(connection, self._address.crew)
        connection.listen(channel(self._address.crew))
        lease = self._begin_or_continue(table)
        if self._failures:
            self._say(f"PostgreSQL at {self._address.server} answers again")
        self._failures = 0
        if self._work is not None:
            self._work.start()
        renew_at = look_at = 0.0
        while not self._is_over():
            if boottime() >= renew_at:
                lease, renew_at = self._renew(table, lease), boottime() + RENEWAL.total_seconds()
                for agent in self._left_agents.release(table, lease):
                    self._say(f"{agent} has no supervisor here: other hosts may have it")
            is_notified = connection.take_notifications() > 0
            if is_notified or boottime() >= look_at:
                is_busy = self._look(connection) or is_notified
                if self._work is not None:
                    self._work.look()
                look_at = boottime() + (LOOK_AGAIN_SECONDS if is_busy else LOOK_SECONDS)
                if self._is_idle():
                    break
                continue  # A notification may have come with the answer to a statement.
            self._wait(min(renew_at, look_at) - boottime(), connection)
        if self._work is not None and self._paths.board_address.exists():
            self._work.stop()
        self._leave(table, lease)

    def _begin_or_continue(self, table: HostsTable) -> HostLease:
        """Return the lease of this host, which may be as old as its last renewal. Raises HostFenced."""
        while True:
            lease, boot = lease_file.read_lease(self._paths), boot_id()
            sent, address = boottime(), f"{host_name()}:{self._paths.root}"
            with table.lock_host(self._address.host) as (row, now, started):
                decision = decide_start(lease, row, boot, address, now, started)
                if isinstance(decision, Continue):
                    assert lease is not None
                    assert row is not None
                    return replace(lease, tokens=(row.token,))
                if isinstance(decision, NameTaken):
                    raise name_taken(decision)
                if not has_sessions(self._paths):
                    lease = HostLease(
                        host=self._address.host, incarnation=uuid4(), boot=boot, sent_at=sent, tokens=(uuid4(),)
                    )
                    table.begin(lease.host, lease.incarnation, lease.tokens[0], boot, address)
            if isinstance(decision, Begin) and lease is not None and lease.sent_at == sent:
                self._write_lease(lease)
                self._say(f"the host {lease.host} begins")
                return lease
            for run in end_sessions(self._paths):
                self._say(f"ended the session of {run}: the lease of this host is over")

    def _renew(self, table: HostsTable, lease: HostLease) -> HostLease:
        """Renew the lease, and write when this was sent. A renewal that was refused begins a new incarnation."""
        pending = replace(lease, tokens=(lease.tokens[0], uuid4()))
        self._write_lease(pending)
        sent = boottime()
        if not table.renew(lease.host, lease.incarnation, pending.tokens, pending.tokens[1], self._seen.change):
            return self._begin_or_continue(table)
        renewed = replace(pending, sent_at=sent, tokens=pending.tokens[1:])
        self._write_lease(renewed)
        return renewed

    def _write_lease(self, lease: HostLease) -> None:
        """Write the file of the lease. In a clone that is being deleted this fails: then the host leaves the crew."""
        try:
            lease_file.write_lease(self._paths, lease)
        except WriteFailed:
            if not self._is_over():
                raise

    def _look(self, connection: ServerConnection) -> bool:
        """Wake the supervisors if the board has changed; return whether it has."""
        marks = read_marks(connection, self._address.crew)
        if marks == self._seen:
            return False
        self._seen = marks
        with suppress(OSError):  # A full disk: the supervisors look by themselves, only later.
            file_growth.wake_watchers(self._paths, file_growth.BOARD)
        return True

    def _is_over(self) -> bool:
        """Whether this process was stopped, or its clone is no host any more: it was deleted, or left the crew.

        To write there would make another `.liza`, which no command understands.
        """
        return self._is_stopped or not self._paths.board_address.exists()

    def _is_idle(self) -> bool:
        if has_supervisors(self._paths):
            self._last_busy = boottime()
        return self._until_idle and boottime() - self._last_busy >= IDLE_SECONDS

    def _leave(self, table: HostsTable, lease: HostLease) -> None:
        """Let other hosts take over at once what this one held, unless sessions go on here."""
        if not has_supervisors(self._paths) and not has_sessions(self._paths):
            table.leave(lease.host, lease.incarnation)
            self._paths.host_lease.unlink(missing_ok=True)

    def _wait(self, seconds: float, connection: ServerConnection | None = None) -> None:
        """Wait for a notification or a signal, at most so many seconds."""
        poll = select.poll()
        for descriptor in (self._wakeup, *([connection.fileno()] if connection is not None else ())):
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)]
        if self._wakeup in ready:
            os.read(self._wakeup, 4096)


def name_taken(taken: NameTaken) -> HostFenced:
    """Return the error for the name of a host that another process uses."""
    row = taken.row
    return HostFenced(
        f"the host name {row.name} is used by {row.address} since {format_time(row.since)}, heard at "
        f"{format_time(row.seen)}; each host needs a name of its own",
        "liza host list",
    )


class LeftAgents:
    """Releases agents of this host whose supervisor was killed and not started again: other hosts may have them.

    It remembers since when an agent has no supervisor.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._left: dict[str, float] = {}

    def release(self, table: HostsTable, lease: HostLease) -> tuple[str, ...]:
        """Release each agent that has had no supervisor for LEFT_LIMIT and no session; return them."""
        # In this order: a supervisor has its lock before it takes its agent, and that gives a new ``since``.
        held = [row for row in table.read().agents if (row.host, row.incarnation) == (lease.host, lease.incarnation)]
        supervised, now = list_supervised(self._paths), boottime()
        gone = [row for row in held if row.agent not in supervised]
        self._left = {row.agent: self._left.get(row.agent, now) for row in gone}
        due = [
            row
            for row in gone
            if now - self._left[row.agent] >= LEFT_LIMIT.total_seconds()
            and (not row.run or liveness.is_proved_over(RunDir(self._paths, row.run)))
        ]
        for row in due:
            table.release_left(row)
        return tuple(row.agent for row in due)
