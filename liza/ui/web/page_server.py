"""`liza web`: the process of the page, its port on 127.0.0.1, and the codes that it prints on the person's terminal."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Final

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.model.errors import SystemRefused
from liza.model.value_classes import Value
from liza.system import http_listener, peers
from liza.system.http_listener import HeadRefusal, RefusalBody, open_loopback, port_of
from liza.ui.seen import state_file
from liza.ui.web.login import CODE_LIFE, Browsers, LoginCodes
from liza.ui.web.page_actions import PageWork
from liza.ui.web.page_application import PageOptions, PageServer, make_application
from liza.ui.web.page_feed import PageFeed

PORT: Final = 8420
"""The port without ``--port``."""
MAX_PORTS: Final = 50
"""Ports after a taken one that are tried for the hint."""


class WebOptions(Value, kw_only=True):
    """``host_name``: a name under which a tunnel of the person forwards https to this port."""

    port: int = PORT
    host_name: str = ""
    is_read_only: bool = False


def serve_page(crew: Crew, options: WebOptions, notify: Callable[[str], None]) -> int:
    """Serve the page until a signal arrives. Return the exit status.

    ``notify`` prints a line on the terminal of the person. Raises Refused inside a session, SystemRefused if the port
    is taken.
    """
    require_person(crew, planner=False)
    listener = _listen(options.port)
    port = port_of(listener)
    names = [f"127.0.0.1:{port}", f"localhost:{port}", *([options.host_name.lower()] if options.host_name else [])]
    page_options = PageOptions(
        hosts=frozenset(names),
        origins=frozenset(
            (f"http://127.0.0.1:{port}", f"http://localhost:{port}", f"https://{options.host_name.lower()}")
        ),
        cookie=f"liza_{state_file(crew.paths, 'web').stem[:8]}",
        is_read_only=options.is_read_only,
    )
    browsers, codes = Browsers(state_file(crew.paths, "web")), LoginCodes()
    address = f"https://{options.host_name}" if options.host_name else f"http://127.0.0.1:{port}"

    def print_code() -> None:
        minutes = int(CODE_LIFE.total_seconds() // 60)
        code = codes.issue(crew.clock.now())
        notify(f"{address}/login#t={code}   (for one browser, {minutes} min; Enter: a new one)")

    async def run() -> None:
        feed = PageFeed(crew, PageWork(), options.is_read_only)
        server = PageServer(crew, page_options, browsers, codes, feed)

        async def start(stop: Callable[[], None]) -> None:
            feed.start()
            print_code()
            if sys.stdin.isatty():
                threading.Thread(target=_print_at_enter, args=(print_code,), daemon=True).start()

        application = make_application(server)
        await http_listener.listen(
            application,
            [listener],
            on_start=start,
            on_stop=server.stop,
            format_refusal=_format_refusal,
            identifies_tcp=True,
        )

    asyncio.run(run())
    return 0


def _format_refusal(refusal: HeadRefusal) -> RefusalBody:
    return RefusalBody("text/plain; charset=utf-8", f"{refusal.detail}\n".encode())


def _print_at_enter(print_code: Callable[[], None]) -> None:
    """Print a new code each time the person presses Enter."""
    for _ in sys.stdin:
        print_code()


def _listen(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1. Raises SystemRefused."""
    try:
        return open_loopback(port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise SystemRefused(f"port {port} cannot be opened: {os.strerror(error.errno or 0)}", "liza web") from error
        step = f"liza web --port {_find_free(port)}"
        raise SystemRefused(f"port {port} is taken{_describe_owner(port)}", step) from error


def _describe_owner(port: int) -> str:
    """Return which process listens on a port, as far as this user can see it."""
    inodes = {inode for inode, name in peers.list_listening().items() if name == str(port)}
    for pid in peers.list_pids():
        if inodes & set(peers.iter_sockets(pid)):
            return f" by process {pid}"
    return ""


def _find_free(port: int) -> int:
    """Return the next port that is free now; 0, which means any, if none of the next ones is."""
    for candidate in range(port + 1, min(port + MAX_PORTS, 1 << 16)):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            return candidate
    return 0
