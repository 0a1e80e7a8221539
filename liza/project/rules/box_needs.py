"""Find out from an output what a command needs: of a box, or of a set-up that failed. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from liza.model.value_classes import Value

_PATH: Final = re.compile(r"(?<![\w.:/])/(?:[\w.@%+,~=-]+/)*[\w.@%+,~=-]*[\w@%+~=-]")
_READ_ONLY: Final = re.compile(r"read-only file system|EROFS", re.IGNORECASE)
_WORD: Final = re.compile(r"[a-z]{4,}")
_COMMON_WORDS: Final = frozenset(
    ("sock", "socket", "sockets", "local", "private", "user", "home", "root", "system", "service", "daemon", "notify")
)
"""Words in paths of sockets that say nothing about their program."""
_ABSENT: Final = re.compile(r"does not exist|No such file|not found|ENOENT", re.IGNORECASE)
_HIDDEN: Final = ("/tmp", "/var/tmp", "/run")
"""Directories that a box has for itself."""
_NO_KEYS: Final = re.compile(r"Permission denied \(publickey|Host key verification failed|could not read Username")
_SYSTEM: Final = ("/bin", "/dev", "/etc", "/lib", "/opt", "/proc", "/sbin", "/sys", "/usr")
"""Nothing below these is proposed to be shared: it is not the person's."""


class PathKind(StrEnum):
    """What is at a path outside of the box."""

    SOCKET = "socket"
    DIRECTORY = "directory"
    OTHER = "other"
    ABSENT = "absent"


Examine = Callable[[str], tuple[PathKind, str]]
"""Returns what is at a path outside of the box, and its real path."""


class BoxNeeds(Value):
    """What a command needs beside its box. ``hidden``: files and directories below those that a box has for itself.
    ``written``: directories outside that it writes; ``absent``: those that it would create. ``keys``: whether a host
    wants keys or a password of the person.
    """

    sockets: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    keys: bool = False

    @property
    def shares(self) -> tuple[str, ...]:
        """The paths that a person can share."""
        return (*self.sockets, *self.hidden, *self.written, *self.absent)

    @property
    def text(self) -> str:
        """The needs in a few words; empty without one."""
        parts = [f"the socket {path}" for path in self.sockets]
        parts += [f"{path}, which is not in a box" for path in self.hidden]
        parts += [f"{path}, which it writes" for path in (*self.written, *self.absent)]
        parts += ["keys or a password of yours, which a box hides"] if self.keys else []
        return ", and ".join(parts)


def find_needs(output: str, listening: Sequence[str], examine: Examine, home: str, own: Iterable[str]) -> BoxNeeds:
    """Return what the output of a command that failed in a box says that it needs.

    ``listening``: the paths of all Unix sockets of this machine. ``own``: directories of Liza.
    """
    sockets = tuple(dict.fromkeys(_find_sockets(output, listening, examine)))
    written = dict.fromkeys(_find_written(output, examine, home, tuple(own)))
    hidden = dict.fromkeys(_find_hidden(output, examine, (home, *own)))
    existing = tuple(path for path, exists in written if exists)
    absent = tuple(path for path, exists in written if not exists)
    return BoxNeeds(sockets, tuple(hidden), existing, absent, _NO_KEYS.search(output) is not None)


def _find_sockets(output: str, listening: Sequence[str], examine: Examine) -> Iterator[str]:
    """Yield the sockets whose paths are in the output, or else those that listen and whose name has a word of it."""
    named = [real for kind, real in map(examine, _PATH.findall(output)) if kind is PathKind.SOCKET]
    yield from named
    if named:
        return
    words = frozenset(_WORD.findall(output.lower())) - _COMMON_WORDS
    for path in listening:
        name = "/".join(path.lower().split("/")[-2:])
        kind, real = examine(path) if words & frozenset(_WORD.findall(name)) else (PathKind.OTHER, "")
        if kind is PathKind.SOCKET:
            yield real


def _find_hidden(output: str, examine: Examine, shown: tuple[str, ...]) -> Iterator[str]:
    """Yield what the output calls absent although it exists outside, below a directory that a box has for itself."""
    for line in output.splitlines():
        for path in _PATH.findall(line) if _ABSENT.search(line) else ():
            kind, real = examine(path)
            is_hidden = any(Path(real).is_relative_to(directory) for directory in _HIDDEN)
            is_shown = any(Path(real).is_relative_to(directory) for directory in shown)
            if kind in (PathKind.DIRECTORY, PathKind.OTHER) and is_hidden and not is_shown and real not in _HIDDEN:
                yield real


def _find_written(output: str, examine: Examine, home: str, own: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """Yield the directories of the paths that the output names as read-only, and whether they exist."""
    for line in output.splitlines():
        for name in _PATH.findall(line) if _READ_ONLY.search(line) else ():
            path = Path(name)
            if any(path.is_relative_to(directory) for directory in (*_SYSTEM, *own)):
                continue
            directory, below = _split_existing(path, examine)
            if directory == home and below and not Path(below).suffix:
                yield str(Path(home) / below), False
            elif directory not in ("/", "/home", home):
                yield directory, True


def _split_existing(path: Path, examine: Examine) -> tuple[str, str]:
    """Return the nearest directory at or above a path that exists, and the name of what is absent below it."""
    below = ""
    for directory in (path, *path.parents):
        kind, real = examine(str(directory))
        if kind is PathKind.DIRECTORY:
            return real, below
        below = directory.name
    return "/", below


_REFUSED_FILE_URL = re.compile(r"(?m)^fatal: transport 'file' not allowed$")
# These tools trust a configuration file by its path: in each new worktree it is not trusted.
_TRUST_COMMANDS = (
    (re.compile(r"\bConfig files? .*\bnot trusted\b"), "mise trust"),
    (re.compile(r"\.envrc is blocked\b"), "direnv allow"),
)
_MISSING_COMMIT = re.compile(r"Fetched in submodule path '([^'\n]+)', but it did not contain ([0-9a-f]{40,64})")


class UnpushedSubmodule(Value):
    """A commit of a submodule that is not in the repository from which a set-up fetches it."""

    path: str
    commit: str

    @property
    def reason(self) -> str:
        return f"commit {self.commit[:10]} of submodule {self.path} was not pushed to the submodule's repository"

    def push_command(self, task: str) -> str:
        """Return the command that pushes the commit from the worktree of the task, to a branch named like it."""
        directory = f'"$(liza path {task})"/{shlex.quote(self.path)}'
        return f"git -C {directory} push origin {self.commit}:refs/heads/task/{task}"


def suggest_setup(setup: str, output: str) -> str | None:
    """Return the set-up without the cause that its output, or that of the tests, names; None if it names none."""
    for pattern, command in _TRUST_COMMANDS:
        if pattern.search(output) and command not in setup:
            return f"{command} && {setup}" if setup else command
    # Since 2.38.1 git fetches no submodule from a path of this machine, unless the person allows it.
    if not _REFUSED_FILE_URL.search(output):
        return None
    allowed = "git -c protocol.file.allow=always submodule"
    own = setup.replace("git submodule", allowed)
    return own if own != setup else f"{allowed} update --init --recursive && {setup}"


def find_unpushed_submodule(output: str) -> UnpushedSubmodule | None:
    """Return the submodule commit that git could not fetch, by git's own message; None without one."""
    match = _MISSING_COMMIT.search(output)
    return UnpushedSubmodule(match[1], match[2]) if match else None
