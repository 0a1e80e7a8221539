"""Read what the mounts of a box depend on: the installation, the person's secrets, and what a box needs below /run."""

from __future__ import annotations

import os
import pwd
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import liza
from liza.box.run_mounts import REPLACED, SECRETS, Surroundings
from liza.model.paths import Paths, state_directory
from liza.system import peers

_NEEDED: Final = ("/run/systemd/resolve", "/run/current-system", "/etc/resolv.conf", "/etc/hosts")
"""DNS through systemd-resolved, the programs of NixOS, and files that some systems keep below /run."""
_SYSTEM_SECRETS: Final = ("/etc/shadow", "/etc/gshadow")
_SECRET_VARIABLES: Final = (
    "GNUPGHOME", "GH_CONFIG_DIR", "DOCKER_CONFIG", "KUBECONFIG", "AWS_SHARED_CREDENTIALS_FILE", "PGPASSFILE",
)  # fmt: skip
"""Variables that name another path of a secret."""
_BASE_DIRECTORIES: Final = {".config/": "XDG_CONFIG_HOME", ".local/share/": "XDG_DATA_HOME"}
_SOCKET_AGE: Final = 60.0
"""Seconds since a socket was made. A younger one is not hidden: if it went meanwhile, the box could not be made."""


def read_surroundings(
    program: str,
    paths: Paths,
    environ: Mapping[str, str],
    executables: Iterable[Path] = (),
    logins: Iterable[Path] = (),
) -> Surroundings:
    """Return the surroundings of boxes of a crew. ``program``: bubblewrap; ``executables``: what runs in the box;
    ``logins``: files of the person that have a login. Raises OSError.
    """
    homes = _list_homes(environ)
    needed = (
        *(Path(path) for path in (*_NEEDED, sys.prefix, sys.base_prefix)),
        Path(liza.__file__).parent,
        *homes,
        *_list_path_entries(environ),
        *(part for executable in executables for part in _list_parts(executable)),
    )
    hidden = _resolve((
        *(path for home in homes for secret in SECRETS for path in _list_places(home, secret)),
        *(Path(path) for path in _SYSTEM_SECRETS),
        # Of this process: a session inherits few variables.
        *(Path(os.environ[name]) for name in _SECRET_VARIABLES if os.environ.get(name, "").startswith("/")),
        *list_private_directories(homes[0]),
        *logins,
    ))  # fmt: skip
    shown = tuple(path for path in _resolve(needed) if _is_below_replaced(path))
    return Surroundings(
        program,
        paths,
        shown,
        tuple(path for path in hidden if path.is_dir()),
        (*(path for path in hidden if not path.is_dir()), *_list_sockets(paths, shown)),
        tuple(path for path in _resolve(home / ".npmrc" for home in homes) if path.is_file()),
    )


def _list_places(home: Path, secret: str) -> Iterator[Path]:
    """Yield the usual path of a secret, and the one below a directory that a variable of the person names."""
    yield home / secret
    for usual, variable in _BASE_DIRECTORIES.items():
        other = os.environ.get(variable, "")
        if secret.startswith(usual) and other.startswith("/"):
            yield Path(other) / secret.removeprefix(usual)


def list_private_directories(home: Path) -> tuple[Path, ...]:
    """Return directories that no box shows, and that may be made while one lives: a box can only hide what exists.

    They are Liza's state directory, and that of tmux, whose server runs what it is told.
    """
    tmux = os.environ.get("TMUX_TMPDIR", "")
    places = (Path(tmux) / f"tmux-{os.geteuid()}",) if tmux.startswith("/") else ()
    return (state_directory(os.environ, home), *places)


def _list_sockets(paths: Paths, shown: Iterable[Path]) -> Iterator[Path]:
    """Yield the sockets that a box would show: a tmux server, another crew, docker. A read-only mount stops none."""
    shown, own = (*shown, paths.root), (paths.liza, paths.slots)
    for name in peers.list_unix_listening().values():
        path = Path(name)
        is_seen = not _is_below_replaced(path) or any(part in path.parents for part in shown)
        if name.startswith("/") and is_seen and not any(part in path.parents for part in own):
            with suppress(OSError):
                status = path.stat()
                is_old = time.time() - status.st_mtime > _SOCKET_AGE
                if stat.S_ISSOCK(status.st_mode) and is_old and os.access(path, os.W_OK) and _is_reachable(path):
                    yield path.resolve()


def _is_open_in_box(path: Path) -> bool:
    """Return whether the directories above a path can be searched without capabilities. root has none in a box, and
    bubblewrap could not mount anything below such a directory of another user. Raises OSError."""
    user, groups = os.geteuid(), {os.getegid(), *os.getgroups()}

    def may_search(status: os.stat_result) -> bool:
        owned, grouped = status.st_uid == user, status.st_gid in groups
        bit = stat.S_IXUSR if owned else stat.S_IXGRP if grouped else stat.S_IXOTH
        return bool(status.st_mode & bit)

    return all(may_search(directory.stat()) for directory in path.parents)


def _list_homes(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return HOME, and the home directory of the user database: ssh reads only that one."""
    try:
        recorded = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        recorded = Path.home()
    home = environ.get("HOME", "")
    return tuple(dict.fromkeys((Path(home) if home.startswith("/") else recorded, recorded)))


def _list_path_entries(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the directories of PATH, for a virtual environment the whole."""
    for entry in environ.get("PATH", "").split(os.pathsep):
        if entry.startswith("/"):
            path = Path(entry)
            yield path.parent if _is_reachable(path.parent / "pyvenv.cfg") else path


def _list_parts(executable: Path) -> Iterator[Path]:
    """Yield the directory of a program, and what it is a link to: for a package of npm the packages beside it.

    Of one in /tmp itself only its file.
    """
    yield executable if executable.parent in REPLACED else executable.parent
    real = executable.resolve()
    packages = next((path for path in reversed(real.parents) if path.name == "node_modules"), None)
    yield packages or (real if real.parent in REPLACED else real.parent)


def _resolve(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the real paths of those that this user can reach."""
    return tuple(dict.fromkeys(path.resolve() for path in paths if _is_reachable(path)))


def _is_reachable(path: Path) -> bool:
    """Return whether a path exists; False also below a directory that is closed to this user in a box."""
    try:
        return path.exists() and (os.geteuid() != 0 or _is_open_in_box(path.resolve()))
    except OSError:
        return False


def _is_below_replaced(path: Path) -> bool:
    return any(replaced in path.parents for replaced in REPLACED)
