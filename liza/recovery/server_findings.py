"""What `liza doctor` finds about the server of a board, the clock of this host, and the remote of the crew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from liza.board.address import BoardAddress, read_address
from liza.board.server_health import check_server
from liza.crew.crew import Crew
from liza.git import branch_moves, git_refs
from liza.git.shared_remote import SharedRemote, list_probe_refs
from liza.model.configuration import Config
from liza.model.errors import Finding, LizaError
from liza.model.model import State
from liza.tasks import shared_code

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
        yield from inspect_remote(crew, Config() if state is None else state.config)


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


def inspect_remote(crew: Crew, config: Config) -> Iterator[Finding]:
    """Yield what prevents this clone from sharing code, and what was tried; nothing for a crew on one host."""
    try:
        remote = shared_code.find_remote(crew)
        if remote is not None:
            yield from _inspect_code(crew, remote, config.integration_branch)
    except LizaError as error:
        yield Finding("remote", error.message, False, error.hint)


def _inspect_code(crew: Crew, remote: SharedRemote, branch: str) -> Iterator[Finding]:
    tip = remote.fetch(branch)[branch]
    local = branch_moves.branch_tip(crew.git, branch) or crew.git.find_commit("HEAD")
    if tip is None:
        missing = shared_code.missing_branch(remote, branch)
        yield Finding("remote", missing.message, False, missing.hint)
    elif local is not None and not git_refs.has_merge_base(crew.git, tip, local):
        text = f"{branch} of {remote.name} ({remote.address}) has no commit in common with {branch} here"
        yield Finding("remote", f"{text}: it is another repository", False, f"git remote get-url {remote.name}")
        return
    refused = remote.probe(crew.host)
    if refused is not None:
        text = f"nothing can be merged through {remote.name}: {refused.message}"
        yield Finding("remote", text, False, refused.hint)
        return
    tried = " and ".join(list_probe_refs(crew.host))
    text = f"{remote.name} ({remote.address}) takes refs together: {tried} were pushed and deleted"
    yield Finding("remote", f"{text}; whether it protects {branch} is seen at the first merge")
    if tip is not None:
        obstacle = shared_code.fetch_target(crew, remote, branch)[1]
        if obstacle is not None:
            yield Finding("remote", f"no merger of this host can work: {obstacle.message}", False, obstacle.hint)
