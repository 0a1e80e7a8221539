"""The board of a crew on a server, as `init`, `join` and `board import` choose it for a clone."""

from __future__ import annotations

import re
import socket

from liza.board.address import BoardAddress, check_host_name, parse_url
from liza.git.root_commits import choose_remote
from liza.git.runner import Git
from liza.model.value_classes import Value

_MAX_HOST = 32  # characters


class NewServerCrew(Value):
    """A crew that the database does not have yet: its address, the root commits of its repository, and the branch of
    its merges, which begins at ``tip``."""

    address: BoardAddress
    repository: tuple[str, ...]
    branch: str
    tip: str


def choose_address(git: Git, url: str, host: str | None = None) -> BoardAddress:
    """Return the address of a board for this clone. ``host``: the name of this host; default: that of the machine.

    Raises UsageError, Refused without a usable remote, GitFailed.
    """
    name = propose_host_name(socket.gethostname()) if host is None else check_host_name(host)
    return parse_url(url, name, choose_remote(git))


def propose_host_name(machine: str) -> str:
    """Return a name for a host from the name of its machine."""
    name = re.sub(r"[^a-z0-9]+", "-", machine.partition(".")[0].lower()).strip("-")
    return name[:_MAX_HOST].strip("-") or "host"
