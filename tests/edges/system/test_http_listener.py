"""The limits of connections, on real sockets: a listener in this process, and a client in a thread."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from liza.system.http_listener import HeadRefusal, RefusalBody, listen, open_loopback, port_of
from tests.conftest import LONG

SHORT = 0.05
"""Seconds for a head that is never complete: the client waits until it is refused."""
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def _format_refusal(refusal: HeadRefusal) -> RefusalBody:
    return RefusalBody("text/x-refusal", refusal.code.encode())


def _converse(client: Callable[[socket.socket], None], head_seconds: float = LONG) -> None:
    """Listen, and let ``client`` use a connection."""
    listener = open_loopback(0)

    def connect() -> None:
        with socket.create_connection(("127.0.0.1", port_of(listener)), timeout=LONG) as connection:
            client(connection)

    async def converse(stop: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(connect)
        finally:
            stop()

    asyncio.run(
        listen(
            _answer,
            [listener],
            on_start=converse,
            on_stop=lambda: None,
            format_refusal=_format_refusal,
            head_seconds=head_seconds,
        )
    )


@pytest.mark.parametrize("begin", [b"G", REQUEST[:-2], REQUEST + REQUEST[:-1]], ids=["line", "headers", "second"])
def test_a_head_that_is_not_completed_ends_its_connection(begin: bytes) -> None:
    def client(connection: socket.socket) -> None:
        connection.sendall(begin)
        answers = connection.makefile("rb").read()
        assert answers.count(b"200 OK") == begin.count(REQUEST)
        assert b"HTTP/1.1 408" in answers
        assert answers.endswith(b"text/x-refusal\r\ncontent-length: 16\r\nconnection: close\r\n\r\nheaders-too-slow")

    _converse(client, SHORT)


def test_bytes_that_arrive_slowly_do_not_prolong_a_head() -> None:
    def client(connection: socket.socket) -> None:
        connection.settimeout(SHORT / 10)
        sent, answer = 0, b""
        while not answer and sent < 1000:
            connection.sendall(b"GET / HTTP/1.1\r\na: " if not sent else b"b")
            sent += 1
            try:
                answer = connection.recv(1 << 16)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408"), f"none after {sent} bytes"

    _converse(client, SHORT)


def test_the_pause_between_two_requests_is_not_part_of_a_head() -> None:
    def client(connection: socket.socket) -> None:
        connection.sendall(REQUEST[:-2])
        for rest in (REQUEST[-2:] + b"\r\n", REQUEST):  # servers ignore a line end before a request
            connection.sendall(rest)
            answer = b""
            while not answer.endswith(b"ok"):
                answer += connection.recv(1 << 16)
            connection.settimeout(4 * SHORT)
            with pytest.raises(TimeoutError):  # neither an answer nor the end of the connection
                connection.recv(1)
            connection.settimeout(LONG)

    _converse(client, SHORT)


@pytest.mark.parametrize(
    ("request_", "status"), [(b"hello\r\n\r\n", b"400"), (REQUEST[:-2] + b"a: b\r\n" * 20_000, b"431")]
)
def test_a_malformed_head_is_refused_in_the_format_asked_for(request_: bytes, status: bytes) -> None:
    def client(connection: socket.socket) -> None:
        connection.sendall(request_)
        answer = connection.recv(1 << 16)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"content-type: text/x-refusal" in answer

    _converse(client)
