"""What is wrong with the addresses of a running server of the worker API. Pure."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from liza.model.value_classes import Value

MAX_ADDRESS = 107
"""Bytes of the address of a Unix socket, a limit of the system."""
PRIVATE_DIRECTORY, PRIVATE_SOCKET = 0o700, 0o600


class AddressFacts(Value):
    """``directory_mode`` and ``socket_mode`` are ``st_mode``, None if the file does not exist. ``port``: as recorded.

    ``silence`` is why the server did not answer at its socket; empty: it answered.
    """

    pid: int | None
    socket: Path
    directory_mode: int | None
    socket_mode: int | None
    port: int | None
    silence: str = ""


class AddressFault(Value):
    """``hint`` is the command that removes the cause."""

    text: str
    hint: str


def find_address_faults(facts: AddressFacts) -> Iterator[AddressFault]:
    """Yield what keeps workers from a server that runs, or lets others in. It is started again after its end."""
    again = f"kill {facts.pid}" if facts.pid is not None else "liza down"
    if facts.socket_mode is None:
        yield AddressFault(f"{facts.socket} is gone, and its server, process {facts.pid}, runs", again)
    elif not stat.S_ISSOCK(facts.socket_mode):
        yield AddressFault(f"{facts.socket} is not a socket any more", again)
    elif facts.silence:
        # A process that was stopped gets no SIGTERM.
        text = f"the server, process {facts.pid}, does not answer: {facts.silence}"
        yield AddressFault(text, again.replace("kill ", "kill -9 "))
    elif stat.S_IMODE(facts.socket_mode) & ~PRIVATE_SOCKET:
        yield _open_to_others(facts.socket, facts.socket_mode, PRIVATE_SOCKET)
    if facts.directory_mode is not None and stat.S_IMODE(facts.directory_mode) & ~PRIVATE_DIRECTORY:
        yield _open_to_others(facts.socket.parent, facts.directory_mode, PRIVATE_DIRECTORY)
    if facts.port is None:
        yield AddressFault("the record of its port is gone or damaged", again)


def _open_to_others(path: Path, mode: int, wanted: int) -> AddressFault:
    text = f"{path} has the mode {stat.S_IMODE(mode):04o}, so other users may reach it; it is {wanted:04o}"
    return AddressFault(text, shlex.join(["chmod", f"{wanted:o}", str(path)]))


def describe_long_address(socket: Path) -> str:
    """Return a sentence if the whole path of the socket is too long for an address, else an empty string."""
    size = len(str(socket).encode())
    if size <= MAX_ADDRESS:
        return ""
    return (
        f"the path of its socket has {size} bytes and an address at most {MAX_ADDRESS}: "
        f"connect to {socket.name} from {socket.parent}, or to the port"
    )
