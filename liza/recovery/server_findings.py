"""What `liza doctor` finds about the server of a board, the clock of this host, and the remote of the crew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from liza.board.address import BoardAddress, read_address
from liza.board.server_health import check_server
from liza.crew.crew import Crew
from liza.model.configuration import Config
from liza.model.errors import Finding, LizaError
from liza.model.model import State
from liza.recovery import remote_findings

_SLOW: Final = 0.1  # seconds of an answer; a command asks two to five times
_LARGEST_SKEW: Final = 5.0  # seconds


def inspect_server(crew: Crew, state: State | None) -> Iterator[Finding]:
    """Yield whether the server, the clock and the remote can be used; nothing for a board in a file.

    ``state``: the board; None if it cannot be read.
    """
    try:
        address = read_address(crew.paths.board_address)
    except LizaError as error:
        yield Finding("server", error.message, False, error.hint)
        return
    if address is not None:
        yield from _inspect_postgresql(address)
        yield from remote_findings.inspect_remote(crew, Config() if state is None else state.config)


def _inspect_postgresql(address: BoardAddress) -> Iterator[Finding]:
    try:
        health = check_server(address)
    except LizaError as error:
        yield Finding("server", error.message, False, error.hint)
        return
    milliseconds = f"{health.latency * 1000:.1f} ms an answer{'; commands are slow' if health.latency > _SLOW else ''}"
    text = f"PostgreSQL {health.version} at {address.server}, schema {health.schema}, {milliseconds}"
    yield Finding("server", f"{text}: crew {address.crew}, this host is {address.host or 'without a name'}")
    for warning in health.warnings:
        yield Finding("server", warning, True, f"psql '{address.url}' -c 'SHOW fsync' -c 'SHOW synchronous_commit'")
    if abs(health.skew) > _LARGEST_SKEW:
        direction = "ahead of" if health.skew > 0 else "behind"
        text = f"the clock of this host is {abs(health.skew):.0f} s {direction} that of the server, which counts"
        yield Finding("clock", text, True, "date")
