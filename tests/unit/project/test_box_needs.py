"""What the output of a command that fails only in a box says that it needs."""

from __future__ import annotations

import pytest

from liza.project.rules.box_needs import PathKind, find_needs

HOME = "/home/ann"
OUTSIDE = {
    "/run/postgresql/.s.PGSQL.5432": PathKind.SOCKET,
    "/run/docker.sock": PathKind.SOCKET,
    "/run/user/7/bus": PathKind.SOCKET,
    **dict.fromkeys(
        ("/", "/tmp", "/tmp/data", "/home", HOME, f"{HOME}/.cache", f"{HOME}/.cache/shop", "/usr"), PathKind.DIRECTORY
    ),
}
LISTENING = tuple(path for path, kind in OUTSIDE.items() if kind is PathKind.SOCKET)


def _examine(path: str) -> tuple[PathKind, str]:
    real = path.replace("/var/run/", "/run/")
    return OUTSIDE.get(real, PathKind.ABSENT), real


@pytest.mark.parametrize(
    ("output", "shares", "text"),
    [
        (
            'connection to server on socket "/var/run/postgresql/.s.PGSQL.5432" failed: No such file or directory',
            ("/run/postgresql/.s.PGSQL.5432",),
            "the socket /run/postgresql/.s.PGSQL.5432",
        ),
        ("Cannot connect to the Docker daemon. Is it running?", ("/run/docker.sock",), "the socket /run/docker.sock"),
        (
            f"OSError: [Errno 30] Read-only file system: '{HOME}/.cache/shop/index.db'",
            (f"{HOME}/.cache/shop",),
            f"{HOME}/.cache/shop, which it writes",
        ),
        (
            f"Error: EROFS: read-only file system, mkdir '{HOME}/.shop/logs'",
            (f"{HOME}/.shop",),
            f"{HOME}/.shop, which it writes",
        ),
        (
            "fatal: repository '/tmp/data' does not exist\nin '/tmp/other', not found",
            ("/tmp/data",),
            "/tmp/data, which is not in a box",
        ),
        (f"touch: cannot touch '{HOME}/shop.json': Read-only file system", (), ""),
        ("/bin/sh: 1: cannot create /usr/lib/x: Read-only file system", (), ""),
        ("git@host: Permission denied (publickey).", (), "keys or a password of yours, which a box hides"),
        ("assert 1 == 2", (), ""),
    ],
)
def test_the_output_names_what_a_command_needs_beside_its_box(output: str, shares: tuple[str, ...], text: str) -> None:
    needs = find_needs(output, LISTENING, _examine, HOME, ())
    assert (needs.shares, needs.text) == (shares, text)
