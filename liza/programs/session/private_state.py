"""The directories of a program's settings and conversations that a box has for itself, instead of the person's.

Writable in a box, those of the person would carry a hook into the person's next session. A box gets copies of the
settings and logins that the program's row names, anew at each start. Its conversations stay for a resume. What comes
back are renewed values of a login, and the file with the usage of a session.

An agent can write everything in the private directories, so nothing here follows a link in them. No process of the box
lives while the copies are made.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from liza.box.box import Mount, MountKind
from liza.box.slot_directories import remove_tree
from liza.model.errors import LizaError
from liza.model.paths import BoxPaths
from liza.model.value_classes import FrozenStruct, Value
from liza.programs.presets.preset import Preset, StateDirectory
from liza.programs.session.run_directory import RunDir, RunRecord, read_struct
from liza.system import atomic, untrusted_files

MAX_FILE: Final = 16 << 20
"""Maximum size of a file that is copied, in bytes."""
MAX_COPIED: Final = 64 << 20
"""Maximum size of all copies of one directory, in bytes."""
MAX_FILES: Final = 5000
MAX_LOGIN: Final = 1 << 20
"""Maximum size of a file with a login, in bytes."""
COPIES_FILE: Final = "copied-logins.json"
"""File in a run's directory: the logins that its box got, and their digests."""


class PrivateDirectory(Value):
    """A directory of the box, ``path``, and the person's directory, ``source``, of which it has copies.

    ``is_default``: the person's is at its usual path.
    """

    row: StateDirectory
    path: Path
    source: Path
    is_default: bool

    def find_source(self, name: str) -> Path:
        """Return the path of a file of the person."""
        elsewhere = self.row.elsewhere.get(name) if self.is_default else None
        return self.source / name if elsewhere is None else Path(elsewhere)


class CopiedLogin(FrozenStruct, frozen=True, kw_only=True):
    """A login in a box: its file there, the person's file, and the sha256 of the person's file when it was copied."""

    own: str
    name: str
    source: str
    digest: str
    renewed: tuple[str, ...]


def list_directories(
    preset: Preset, box: BoxPaths, environ: Mapping[str, str], home: Path
) -> tuple[PrivateDirectory, ...]:
    """Return the private directories of a program. ``environ`` is that of the session, with the person's variables."""
    top, directories = box.program_state(preset.name), []
    for row in preset.state:
        named = environ.get(row.variable, "") if row.variable else ""
        source = Path(named) if named.startswith("/") else _expand(row.path, home)
        expanded = {name: str(_expand(path, home)) for name, path in row.elsewhere.items()}
        name = row.variable or re.sub(r"\W+", "-", row.path).strip("-")
        changed = msgspec.structs.replace(row, elsewhere=expanded)
        directories.append(PrivateDirectory(changed, top / name, source, not named.startswith("/")))
    return tuple(directories)


def _expand(path: str, home: Path) -> Path:
    return home if path == "~" else home / path.removeprefix("~/")


def state_variables(directories: Sequence[PrivateDirectory]) -> dict[str, str]:
    """Return the variables that name the private directories to the program."""
    return {each.row.variable: str(each.path) for each in directories if each.row.variable}


def state_mounts(directories: Sequence[PrivateDirectory]) -> tuple[Mount, ...]:
    """Return the mounts of the private directories that no variable names to the program."""
    return tuple(
        Mount(MountKind.WRITABLE, each.source.resolve(), each.path)
        for each in directories
        if not each.row.variable and each.source.is_dir()
    )


def bring_state(
    directories: Sequence[PrivateDirectory], top: Path, run_dir: RunDir, notify: Callable[[str], None]
) -> None:
    """Copy the person's settings and logins into the private directories below ``top``. Raises OSError."""
    _make_directory(top)
    logins: list[CopiedLogin] = []
    for each in directories:
        _make_directory(each.path)
        budget = _Budget()
        for name in each.row.copies:
            source, target = each.find_source(name), each.path / name
            _make_parents(each.path, name)
            remove_tree(target)
            data = _copy(source, target, budget)
            if data is not None and name in each.row.renewed:
                digest, renewed = hashlib.sha256(data).hexdigest(), each.row.renewed[name]
                login = CopiedLogin(
                    own=str(each.path), name=name, source=str(source.resolve()), digest=digest, renewed=renewed
                )
                logins.append(login)
        if budget.is_spent:
            notify(f"! the box has only a part of {each.source}: more than {MAX_COPIED >> 20} MB or {MAX_FILES} files")
    atomic.write(run_dir.path / COPIES_FILE, msgspec.json.encode(logins))


class _Budget:
    """What may still be copied."""

    def __init__(self) -> None:
        self._bytes, self._files, self.is_spent = MAX_COPIED, MAX_FILES, False

    def take(self, size: int) -> bool:
        self._bytes, self._files = self._bytes - size, self._files - 1
        self.is_spent = self.is_spent or self._bytes < 0 or self._files < 0
        return not self.is_spent


def _copy(source: Path, target: Path, budget: _Budget) -> bytes | None:
    """Copy a file, or a directory without the links in it; return the bytes of a file. What cannot be read is left out.

    The person may have made a link of ``source`` itself.
    """
    with suppress(OSError, LizaError):
        if source.is_dir():
            for path in _walk(source):
                part = target / path.relative_to(source)
                part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _copy_file(path, part, budget, follow_links=False)
            return None
        return _copy_file(source, target, budget, follow_links=True)
    return None


def _walk(directory: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if entry.is_symlink():
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _copy_file(source: Path, target: Path, budget: _Budget, *, follow_links: bool) -> bytes | None:
    status = source.stat(follow_symlinks=follow_links)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE or not budget.take(status.st_size):
        return None
    data = untrusted_files.read(source, MAX_FILE, follow_links=follow_links)
    mode = 0o700 if status.st_mode & stat.S_IXUSR else 0o600
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return data


def _make_parents(top: Path, name: str) -> None:
    directory = top
    for part in Path(name).parent.parts:
        directory /= part
        _make_directory(directory)


def _make_directory(path: Path) -> None:
    """Make a directory; what an agent put there instead of one is removed."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def collect_state(run_dir: RunDir, record: RunRecord, preset: Preset, notify: Callable[[str], None]) -> None:
    """Take back what a session in a box leaves: renewed values of a login, and the file with its usage. Idempotent."""
    if not record.is_confined:
        return
    box = find_box(run_dir, record)
    for login in read_struct(run_dir.path / COPIES_FILE, list[CopiedLogin]) or ():
        try:
            if _renew_login(login, box):
                notify(f"the login in {login.source} was renewed by {run_dir.run}")
        except (LizaError, OSError, ValueError, RecursionError) as error:
            notify(f"! the login of {run_dir.run} was not taken back: {error}")
    if preset.usage.file:
        name = run_dir.path.relative_to(run_dir.paths.liza) / preset.usage.file
        with suppress(LizaError, OSError):
            data = untrusted_files.read_below(box.liza, str(name), MAX_FILE)
            if data is not None:
                _make_parents(run_dir.path, preset.usage.file)
                atomic.write(run_dir.path / preset.usage.file, data)


def find_box(run_dir: RunDir, record: RunRecord) -> BoxPaths:
    """Return the paths of the box in which a run is, or was."""
    return run_dir.paths.box(Path(record.worktree).name)


def _renew_login(login: CopiedLogin, box: BoxPaths) -> bool:
    """Write the renewed values of a login into the person's file; return whether there were any.

    Only values that the row names may differ, and the person's file must be as it was copied. Raises LizaError,
    OSError, ValueError.
    """
    before = untrusted_files.read(login.source, MAX_LOGIN)
    name = (Path(login.own) / login.name).relative_to(box.state)
    own = untrusted_files.read_below(box.state, str(name), MAX_LOGIN)
    if own in (None, before) or hashlib.sha256(before).hexdigest() != login.digest:
        return False
    wanted, renewed = json.loads(before), json.loads(own)
    paths = tuple(tuple(path.split(".")) for path in login.renewed)
    if wanted == renewed or not _differs_only(wanted, renewed, paths):
        return False
    # Not the bytes of the box: another reader may take other values from a file with one key twice.
    data = json.dumps(renewed, indent=2).encode()
    atomic.write(login.source, data, stat.S_IMODE(Path(login.source).stat().st_mode))
    return True


def _differs_only(before: Any, after: Any, paths: tuple[tuple[str, ...], ...]) -> bool:
    """Return whether two JSON values differ only in the texts and numbers at ``paths``."""
    if isinstance(before, dict) and isinstance(after, dict):
        if before.keys() != after.keys():
            return False
        return all(
            _differs_only(before[key], after[key], tuple(path[1:] for path in paths if path and path[0] in (key, "*")))
            for key in before
        )
    if before == after and type(before) is type(after):
        return True
    if () not in paths or type(before) is not type(after) or isinstance(before, bool):
        return False
    return isinstance(after, int | float) or (isinstance(after, str) and after.isprintable())
