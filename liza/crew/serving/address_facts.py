"""Read the facts about the running server that `rules/worker_api/address_checks.py` judges."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Final

from liza.crew.crew import Crew
from liza.crew.serving import api_server
from liza.rules.worker_api.address_checks import AddressFacts

ANSWER_LIMIT: Final = 3.0
"""Seconds for the server to answer."""
_REQUEST = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def read_address_facts(crew: Crew, pid: int | None) -> AddressFacts:
    """Return the facts about the server, process ``pid``."""
    address = crew.paths.api_socket
    return AddressFacts(
        pid=pid,
        socket=address,
        directory_mode=_mode(address.parent),
        socket_mode=_mode(address),
        port=api_server.read_port(crew),
        silence=_ask(address),
    )


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None


def _ask(address: Path) -> str:
    """Ask the server for its health. Return why there was no answer; an empty string if there was one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_LIMIT)
        try:
            # The path of the directory may be too long for the address of a socket.
            with contextlib.chdir(address.parent):
                connection.connect(address.name)
            connection.sendall(_REQUEST)
            answer = connection.recv(64)
        except TimeoutError:
            return f"no answer within {ANSWER_LIMIT:.0f} s"
        except OSError as error:
            return error.strerror or str(error)
    return "" if answer.startswith(b"HTTP/1.1 ") else "it closed the connection"
