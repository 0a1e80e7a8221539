"""The addresses of the server: a Unix socket in `.liza/run`, and a port on 127.0.0.1 whose number is in a file.

The caller holds the server's lock, so a socket file that exists was left by a server that died, and is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from liza.model.errors import LizaError, SystemRefused
from liza.model.paths import Paths
from liza.system import atomic, crash_points, untrusted_files

BACKLOG: Final = 1024
"""Connections that the kernel queues: 200 workers may reconnect at the same moment."""
_PORT_PREFIX, _PORT_SUFFIX = "worker-", ".port"


def open_sockets(paths: Paths) -> list[socket.socket]:
    """Return the listening sockets, the Unix socket first. Raises SystemRefused, OSError."""
    listening = [_listen_unix(paths)]
    try:
        listening.append(_listen_tcp(read_port(paths.api_port)))
    except OSError as error:
        listening[0].close()
        raise SystemRefused(f"no port on 127.0.0.1 can be opened: {os.strerror(error.errno or 0)}") from error
    atomic.write(paths.api_port, _format_port(port_of(listening[1])), sync=False)
    return listening


def _listen_unix(paths: Paths) -> socket.socket:
    """Listen on `api.sock`, mode 0600, in a directory of mode 0700.

    The name is relative to the directory: a socket's address has at most 107 bytes, whatever the depth of the
    repository. Call this before any thread is started: it changes the working directory for a moment.
    """
    directory = paths.runs
    atomic.make_directory(paths.root, directory)
    if not stat.S_ISDIR(directory.lstat().st_mode):
        raise SystemRefused(f"{directory} is not a directory", f"ls -ld {directory}")
    directory.chmod(0o700)
    _remove_stale(paths.api_socket)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0))
    former_mask = os.umask(0o177)
    try:
        with contextlib.chdir(directory):
            listener.bind(paths.api_socket.name)
        crash_points.point("server", "bound")
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SystemRefused(f"{paths.api_socket} cannot be opened: {os.strerror(error.errno or 0)}") from error
    finally:
        os.umask(former_mask)
    return listener


def _remove_stale(path: Path) -> None:
    try:
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise SystemRefused(f"{path} cannot be replaced: {os.strerror(error.errno or 0)}", f"ls -ld {path}") from error


def _listen_tcp(preferred: int | None) -> socket.socket:
    """Listen on 127.0.0.1, on the port of the last server if it is free: workers that know it reconnect."""
    for port in (preferred or 0, 0):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if port == 0 or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            continue
        return listener
    raise AssertionError("port 0 is tried last")


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def read_port(path: Path) -> int | None:
    """Return the port in a port file; None if there is no such file, or it is damaged."""
    with contextlib.suppress(OSError, ValueError, LizaError):
        text = untrusted_files.read_record(path).decode()
        return port if 0 < (port := int(text)) < 1 << 16 else None
    return None


def write_worker_ports(paths: Paths, runs: Iterable[str], port: int) -> None:
    """Write the port file of each of these living runs, and remove those of other runs. Raises OSError."""
    wanted = {paths.worker_port(run) for run in runs}
    for path in wanted:
        if read_port(path) != port:
            # What an agent put in the place of one file keeps no other run from its own.
            with contextlib.suppress(OSError, LizaError):
                atomic.write(path, _format_port(port), sync=False, label="worker.port")
    for path in paths.runs.glob(f"{_PORT_PREFIX}*{_PORT_SUFFIX}"):
        if path not in wanted:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def remove_addresses(paths: Paths) -> None:
    """Remove the socket and the port files of a server that ends. Its port stays on record for the next one."""
    for path in (paths.api_socket, *paths.runs.glob(f"{_PORT_PREFIX}*{_PORT_SUFFIX}")):
        with contextlib.suppress(OSError):
            path.unlink()


def _format_port(port: int) -> bytes:
    return f"{port}\n".encode()
