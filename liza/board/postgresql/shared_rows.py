"""The records beside the board, as rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from liza.board.postgresql import crew_lock, signal_rows
from liza.board.postgresql.crew_statements import BEGIN, COMMIT, CrewStatement
from liza.board.postgresql.links import Links
from liza.board.shared_records import NumberedLine, SharedFacts, SharedLog, SharedMessage, SharedRecords

_APPEND: Final = """
WITH lock AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtext('liza log'), hashtext(%(crew)s)))
INSERT INTO log_line (crew, log, line)
SELECT %(crew)s, %(log)s, row.line
FROM lock, unnest(%(lines)s::text[]) WITH ORDINALITY AS row (line, place) ORDER BY row.place
ON CONFLICT (crew, log, digest) DO NOTHING RETURNING number"""
"""The lock comes before the numbers, and ends after they can be read: no reader passes over a number."""
_READ: Final = """
SELECT number, line FROM log_line WHERE crew = %(crew)s AND log = %(log)s AND number > %(after)s
ORDER BY number LIMIT %(limit)s"""
_PLACE: Final = """
SELECT coalesce((SELECT number FROM log_line WHERE crew = %(crew)s AND log = %(log)s
                 ORDER BY number DESC OFFSET %(newest)s LIMIT 1), 0),
       coalesce((SELECT max(number) FROM log_line WHERE crew = %(crew)s AND log = %(log)s), 0)"""

_POST: Final = """
INSERT INTO message (crew, id, agent, body) VALUES (%(crew)s, %(id)s, %(agent)s, %(body)s) ON CONFLICT DO NOTHING"""
_LIST: Final = "SELECT id, agent, body FROM message WHERE crew = %(crew)s AND agent = ANY(%(agents)s) ORDER BY id"
_TAKE: Final = f"{_LIST} FOR UPDATE SKIP LOCKED"
_REMOVE: Final = "DELETE FROM message WHERE crew = %(crew)s AND id = ANY(%(ids)s)"

_WRITE_FACTS: Final = """
WITH gone AS (
  DELETE FROM agent_fact WHERE crew = %(crew)s AND host = %(host)s AND agent <> ALL(%(agents)s::text[])
)
INSERT INTO agent_fact (crew, agent, host, body, time)
SELECT %(crew)s, agent, %(host)s, body, clock_timestamp()
FROM unnest(%(agents)s::text[], %(bodies)s::text[]) AS row (agent, body)
ON CONFLICT (crew, agent) DO UPDATE SET host = excluded.host, body = excluded.body, time = excluded.time"""
_READ_FACTS: Final = "SELECT agent, host, body, time FROM agent_fact WHERE crew = %(crew)s"
_FACTS_SECONDS: Final = 1.0  # a picture of a crew asks for each agent


class SharedRows(SharedRecords):
    """The records of a crew in PostgreSQL."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._facts: tuple[float, Mapping[str, SharedFacts]] | None = None

    def append_lines(self, log: SharedLog, lines: Sequence[str]) -> int:
        count = len(self._links.ask(_APPEND, log=log.value, lines=list(lines))) if lines else 0
        if count:
            signal_rows.notify(self._links)
        return count

    def read_lines(self, log: SharedLog, after: int, limit: int) -> list[NumberedLine]:
        return [NumberedLine(*row) for row in self._links.ask(_READ, log=log.value, after=after, limit=limit)]

    def find_place(self, log: SharedLog, newest: int) -> tuple[int, int]:
        ((start, last),) = self._links.ask(_PLACE, log=log.value, newest=newest)
        return start, last

    def post_message(self, message: SharedMessage) -> None:
        self._links.ask(_POST, **message._asdict())
        signal_rows.notify(self._links)

    def list_messages(self, agents: Iterable[str]) -> list[SharedMessage]:
        return [SharedMessage(*row) for row in self._links.ask(_LIST, agents=list(agents))]

    def take_messages(self, agents: Iterable[str], store: Callable[[SharedMessage], None]) -> int:
        names = list(agents)
        if not self.list_messages(names):
            return 0
        connection, values = self._links.take(), {"crew": self._links.crew, "agents": names}
        try:
            rows = connection.run_together([BEGIN, CrewStatement(_TAKE, values)])[1]
            for row in rows:
                store(SharedMessage(*row))
            ids = {"crew": self._links.crew, "ids": [row[0] for row in rows]}
            connection.run_together([CrewStatement(_REMOVE, ids), COMMIT])
            return len(rows)
        finally:
            crew_lock.end_transaction(connection)
            self._links.give_back(connection)

    def remove_message(self, message: str) -> None:
        self._links.ask(_REMOVE, ids=[message])

    def write_facts(self, host: str, bodies: Mapping[str, str]) -> None:
        self._links.ask(_WRITE_FACTS, host=host, agents=list(bodies), bodies=list(bodies.values()))

    def read_facts(self) -> Mapping[str, SharedFacts]:
        now = time.monotonic()
        if self._facts is None or now - self._facts[0] > _FACTS_SECONDS:
            self._facts = now, {row[0]: SharedFacts(*row) for row in self._links.ask(_READ_FACTS)}
        return self._facts[1]
