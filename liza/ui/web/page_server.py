"""`liza web`: the process of the page, its port on 127.0.0.1, and the codes that it prints on the person's terminal."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.model.errors import SystemRefused
from liza.model.value_classes import Value
from liza.printing.columns import strip_controls
from liza.system import http_listener, locks, peers, untrusted_files
from liza.system.http_listener import HeadRefusal, RefusalBody, open_loopback, port_of
from liza.ui.web.login import CODE_LIFE, Browsers, LoginCodes
from liza.ui.web.page_actions import PageWork
from liza.ui.web.page_application import PageOptions, PageServer, make_application
from liza.ui.web.page_feed import PageFeed
from liza.ui.web.page_guards import HEADERS, parse_host_name
from liza.ui.web.pages import render_refusal

MAX_PORTS: Final = 50
"""Ports after a taken one that are tried for the hint."""


class WebOptions(Value, kw_only=True):
    """``host_name``: a name under which a tunnel of the person forwards https to this port."""

    port: int
    host_name: str = ""
    is_read_only: bool = False


def check_packages() -> None:
    """Draw something. Raises any error if jinja2 is too old."""
    render_refusal(status=404, text="", assets="")


def serve_page(crew: Crew, options: WebOptions, notify: Callable[[str], None]) -> int:
    """Serve the page until a signal arrives. Return the exit status.

    ``notify`` prints a line on the terminal of the person. Raises Refused inside a session, SystemRefused if the port
    is taken.
    """
    require_person(crew, planner=False)
    # A merge does not count the holders of this lock as servers of the checkout. Shared: a crew may have several pages.
    path = crew.paths.page_lock
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = untrusted_files.open_regular(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        locks.try_flock(descriptor, fcntl.LOCK_SH)
        return _serve(crew, options, notify)
    finally:
        os.close(descriptor)


def _serve(crew: Crew, options: WebOptions, notify: Callable[[str], None]) -> int:
    host_name = parse_host_name(options.host_name) if options.host_name else ""
    listener = _listen(options)
    browsers, codes = Browsers(crew), LoginCodes()
    address = f"https://{host_name}" if host_name else f"http://127.0.0.1:{port_of(listener)}"
    page_options = PageOptions(host_name=host_name, is_read_only=options.is_read_only)

    def print_code() -> None:
        minutes = int(CODE_LIFE.total_seconds() // 60)
        code = codes.issue(crew.clock.now())
        notify(f"{address}/login#t={code}   (for one browser, {minutes} min; Enter: a new one instead)")

    async def run() -> None:
        feed = PageFeed(crew, PageWork(), options.is_read_only)
        server = PageServer(crew, page_options, browsers, codes, feed)

        async def start(stop: Callable[[], None]) -> None:
            feed.start()
            if host_name:
                notify(f"forward https://{host_name} to 127.0.0.1:{port_of(listener)}")
            print_code()
            # A job in the background that reads the terminal would be stopped, and no page answered: it gets an error.
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)
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
    return RefusalBody("text/plain; charset=utf-8", f"{refusal.detail}\n".encode(), HEADERS)


def _print_at_enter(print_code: Callable[[], None]) -> None:
    """Print a new code each time the person presses Enter."""
    while True:
        with suppress(OSError):
            if os.read(0, 4096).endswith(b"\n"):
                print_code()
                continue
        time.sleep(1)  # at the end of the input, and in the background: no event tells that it can be read again


def _listen(options: WebOptions) -> socket.socket:
    """Return a socket that listens on 127.0.0.1. Raises SystemRefused."""
    port = options.port
    try:
        return open_loopback(port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise SystemRefused(f"port {port} cannot be opened: {os.strerror(error.errno or 0)}", "liza web") from error
        step = f"liza web --port {_find_free(port)}"
        step += f" --host-name {options.host_name}" if options.host_name else ""
        step += " --read-only" if options.is_read_only else ""
        raise SystemRefused(f"port {port} is taken{_describe_owner(port)}", step) from error


def _describe_owner(port: int) -> str:
    """Return which process listens on a port, as far as this user can see it."""
    inodes = {inode for inode, name in peers.list_listening().items() if name == str(port)}
    for pid in peers.list_pids():
        if inodes & set(peers.iter_sockets(pid)):
            return f" by process {pid} ({_read_name(pid)})"
    return ""


def _read_name(pid: int) -> str:
    """Return the name of a process; empty if it has ended."""
    with suppress(OSError):
        return strip_controls(Path(f"/proc/{pid}/comm").read_text(errors="replace").strip())
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
