"""PAUSE, CHECKPOINT and ABORT as rows, and the notification that a crew has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from liza.board.postgresql import crew_lock
from liza.board.postgresql.connection import ServerConnection
from liza.board.postgresql.crew_statements import BEGIN, COMMIT, NOTIFY_MS, CrewStatement
from liza.board.postgresql.hosts_table import COUNT_HOSTS
from liza.board.postgresql.links import Links, repeat
from liza.board.signals import SIGNALS, Signal, check_name, parse_signal
from liza.model.errors import LizaError, LockTimeout

_READ: Final = "SELECT name, text, time FROM signal WHERE crew = %(crew)s"
_RAISE: Final = """
INSERT INTO signal (crew, name, text, time) VALUES (%(crew)s, %(name)s, %(text)s, clock_timestamp())
ON CONFLICT (crew, name) DO UPDATE SET text = excluded.text, time = excluded.time"""
_CLEAR: Final = "DELETE FROM signal WHERE crew = %(crew)s AND name = %(name)s RETURNING name"
_MARKS: Final = f"""
SELECT change, (SELECT string_agg(name || ' ' || time, ' ' ORDER BY name) FROM signal WHERE crew = id), {COUNT_HOSTS}
FROM crew WHERE id = %s"""
LOOK_AGAIN_SECONDS: Final = 2 * NOTIFY_MS / 1000
"""Seconds after a notification or a change until a watcher looks again: what follows may not be notified."""
_SHORT_WAIT: Final = CrewStatement("SET LOCAL lock_timeout = '2s'")
"""The holder reads and writes a few rows."""
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('liza signals'), hashtext(%(crew)s))"


def channel(crew: str) -> str:
    """Return the name of the channel on which changes of a crew are notified: a name that PostgreSQL allows."""
    return f"liza_{hashlib.sha256(crew.encode()).hexdigest()[:32]}"


def notify(links: Links) -> None:
    """Tell the watchers that the crew has changed. In a transaction, the one who ends it does this.

    A notification that is lost is made up for by the looks of the watchers: the change is made. Of many changes not
    each is notified; see ``crew_statements.NOTIFY_MS``.
    """
    if not links.is_in_transaction:
        with suppress(LizaError):
            links.use(lambda connection: connection.notify(channel(links.crew)))


class CrewMarks(NamedTuple):
    """What differs after each change of a crew: the number of its newest change, its signals with their times, and the
    number of its hosts that are not lost."""

    change: int = 0
    signals: str = ""
    hosts: int = 0


def read_marks(connection: ServerConnection, crew: str) -> CrewMarks:
    """Return the marks of a crew."""
    change, signals, hosts = connection.fetch_one(_MARKS, crew) or (0, None, 0)
    return CrewMarks(change, signals or "", hosts)


def read_signals(links: Links) -> Mapping[str, Signal]:
    """Return the signals that are set, the strongest first."""
    rows = {name: (text, time) for name, text, time in links.ask(_READ)}
    return {name: parse_signal(name, *rows[name]) for name in SIGNALS if name in rows}


def raise_signal(links: Links, name: str, text: str) -> None:
    """Set a signal; replace an existing one. Raises UsageError for an unknown name."""
    check_name(name)
    repeat(lambda: links.ask(_RAISE, name=name, text=text.replace("\0", "")), lambda: not links.is_in_transaction)
    notify(links)


def clear_signal(links: Links, name: str) -> bool:
    """Remove a signal; False if it is not set. Raises UsageError for an unknown name."""
    check_name(name)
    is_cleared = bool(repeat(lambda: links.ask(_CLEAR, name=name), lambda: not links.is_in_transaction))
    notify(links)
    return is_cleared


@contextmanager
def lock_signals(links: Links, *, is_stop: bool) -> Iterator[bool]:
    """Hold the lock of the signals for a short transaction; yield whether it is held. See ``Board.lock_signals``."""
    connection = repeat(links.take)
    is_held = False
    try:
        try:
            connection.run_together([BEGIN, _SHORT_WAIT, CrewStatement(_LOCK, {"crew": links.crew})])
            is_held = True
        except LockTimeout:
            if not is_stop:
                raise
        if not is_held:
            yield False
            return
        with links.hold(connection):
            yield True
        connection.run_together([COMMIT])
    finally:
        crew_lock.end_transaction(connection)
        links.give_back(connection)
        notify(links)
