"""How the server of a board does: its version, how long an answer takes, and how far the clock of this host differs."""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from liza.board.address import BoardAddress
from liza.board.postgresql.connection import SCHEMA, ServerConnection, connect_with_facts
from liza.model.value_classes import Value
from liza.system.clock import SystemClock, boottime

_QUESTIONS: Final = 5


class ServerCheck(Value):
    """``latency``: seconds of one answer. ``skew``: seconds by which the clock of this host is ahead of the server."""

    version: str
    schema: int
    latency: float
    skew: float
    warnings: tuple[str, ...]


def check_server(address: BoardAddress) -> ServerCheck:
    """Connect to a server and ask it. Raises BoardServerRefused, BoardUnavailable."""
    connection, facts = connect_with_facts(address)
    try:
        latency = median(_measure_answer(connection) for _ in range(_QUESTIONS))
    finally:
        connection.close()
    skew = (SystemClock().now() - facts.time).total_seconds() - (boottime() - facts.measured)
    version = f"{facts.version // 10_000}.{facts.version % 10_000}"
    return ServerCheck(version, SCHEMA, latency, skew, facts.warnings)


def _measure_answer(connection: ServerConnection) -> float:
    start = time.perf_counter()
    connection.fetch_one("SELECT 1")
    return time.perf_counter() - start
