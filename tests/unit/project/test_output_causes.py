"""What the output of a command that fails only in a box says that it needs."""

from __future__ import annotations

import pytest

from liza.project.rules.output_causes import PathKind, find_needs, install_setup, missing_module, missing_runner

HOME = "/home/ann"
OUTSIDE = {
    "/run/postgresql/.s.PGSQL.5432": PathKind.SOCKET,
    "/run/docker.sock": PathKind.SOCKET,
    "/run/user/7/bus": PathKind.SOCKET,
    **dict.fromkeys(
        ("/", "/tmp", "/tmp/data", "/home", HOME, f"{HOME}/.cache", f"{HOME}/.cache/shop", "/usr"), PathKind.DIRECTORY
    ),
}


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
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?",
            ("/run/docker.sock",),
            "the socket /run/docker.sock",
        ),
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
    needs = find_needs(output, _examine, HOME, ())
    assert (tuple(needs.paths), needs.text) == (shares, text)


@pytest.mark.parametrize(
    ("text", "code", "tail", "missing"),
    [
        ("python -m pytest -q", 1, "No module named pytest", "the module pytest"),
        ("python -m pytest-x", 1, "No module named 'six'", None),
        ("x", 127, "bash: line 1: jest: command not found", "jest"),
        ("x", 127, "jest: not found", "jest"),
        ("x", 127, "sh: 2: ./a: No such file or directory", "./a"),
        ("x", 1, "error: failed to spawn: 'ruff'", "ruff"),
        ("x", 1, "command not found: tox", "tox"),
        ("x", 1, "make: npm: No such file or directory", "npm"),
        ("x", 2, "sh: 1: npm: not found\nmake: *** Error 127", "npm"),
        ("x", 127, "", "its program"),
        ("x", 1, "", None),
        ("x", None, "", None),
    ],
)
def test_a_missing_program_or_module_is_named(text: str, code: int | None, tail: str, missing: str | None) -> None:
    assert missing_runner(text, code, tail) == missing


@pytest.mark.parametrize(
    ("tail", "module"),
    [
        ("Error: Cannot find package 'vite'", "vite"),
        ("Cannot find module '/abs/x'", None),
        ("ModuleNotFoundError: No module named ''", None),
    ],
)
def test_a_missing_import_is_named_unless_it_is_a_path(tail: str, module: str | None) -> None:
    assert missing_module(tail) == module


@pytest.mark.parametrize(
    ("setup", "command", "module", "expected"),
    [
        ("npm ci", "npm test", "chai/register", "npm ci && npm install --no-save chai"),
        ("", "node --test", "@types/node", "npm install --no-save @types/node"),
        (
            "python3 -m venv .venv && .venv/bin/pip install -q -e .",
            ".venv/bin/pytest",
            "six.moves",
            "python3 -m venv .venv && .venv/bin/pip install -q -e . six",
        ),
        ("make deps", "make test", "six", None),
    ],
)
def test_a_missing_module_is_added_to_the_set_up(setup: str, command: str, module: str, expected: str | None) -> None:
    assert install_setup(setup, command, module) == expected
