"""What people wrote into .liza, its specs and its table of programs, saved as commits before a purge takes it away: as
bytes, and links as links."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from liza.crew import agent_texts
from liza.crew.crew import Crew
from liza.crew.layout import default_goal_text
from liza.repo.runner import Git
from liza.rules.errors import NotRegularFile, Refused
from liza.system import atomic

SPECS_REF = "refs/liza/specs"
PROGRAMS_REF = "refs/liza/programs"
MAX_FILE_SIZE = 100 * 1000 * 1000
"""Bytes of a file that is saved: what hosts of repositories take, too."""

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_OPEN_FILES = 64  # files that are open for one git


@dataclass(frozen=True)
class SaveResult:
    """Whether there was anything to save, and the names of what is neither file nor link and was not read."""

    saved: bool
    skipped: tuple[str, ...]


def save_specs(crew: Crew) -> SaveResult:
    """Save what is not as Liza laid it, on top of what an earlier purge saved.

    Raises Refused for what cannot be saved, GitFailed, Missing: then the repository has new objects at most.
    """
    found = _SpecsWalk(crew)
    found.walk()
    if found.rows:
        _commit_tree(found.git, found.write_tree(), SPECS_REF, "The specs that were in .liza/specs")
    return SaveResult(bool(found.rows), tuple(found.skipped))


def save_programs(crew: Crew) -> SaveResult:
    """Save the table of programs of this crew, on top of what an earlier purge saved. Raises as ``keep``."""
    place = crew.paths.liza / "programs.toml"
    try:
        link = place.is_symlink()
        data = os.fsencode(place.readlink()) if link else atomic.read_if_exists(place, MAX_FILE_SIZE)
    except (NotRegularFile, OSError) as error:
        if isinstance(error, NotRegularFile) and not place.is_file():
            return SaveResult(False, (".liza/programs.toml",))
        path, root = shlex.quote(str(place)), shlex.quote(str(crew.paths.root))
        raise Refused(f".liza/programs.toml cannot be saved: {error}", f"mv -n {path} {root}") from error
    if data is None:
        return SaveResult(False, ())
    git: Git = crew.git.with_timeout(600)
    blob = git.out("hash-object", "-w", "--stdin", stdin=data).strip()
    tree = git.out("mktree", stdin=f"{'120000' if link else '100644'} blob {blob}\tprograms.toml\n").strip()
    _commit_tree(git, tree, PROGRAMS_REF, "The table of programs that was .liza/programs.toml")
    return SaveResult(True, ())


class _SpecsWalk:
    """A walk below .liza/specs in which each directory is held open: a link put in its place leads nowhere."""

    def __init__(self, crew: Crew) -> None:
        self.git: Git = crew.git.with_timeout(600)
        self.rows: list[str] = []
        self.skipped: list[str] = []
        self._paths = crew.paths
        self._goal = default_goal_text(crew.board.read().goal.description).encode("utf-8", "surrogateescape")
        self._shipped = agent_texts.find_texts("specs")
        self._open_files: list[tuple[int, str, str]] = []

    def walk(self) -> None:
        """Put every file and link into the repository that is not as Liza laid it. Raises Refused, GitFailed."""
        top = self._paths.specs
        if not os.path.lexists(top):
            return
        if top.is_symlink() or not top.is_dir():
            self.skipped.append(".liza/specs")
            return
        try:
            for place, directories, files, descriptor in os.fwalk(top, onerror=self._unreadable):
                directories.sort()
                for name in sorted([*directories, *files]):
                    self._add(Path(place, name).relative_to(top).as_posix(), name, descriptor)
            self._hash_open_files()
        finally:
            self._close_open_files()

    def write_tree(self) -> str:
        """The tree of all that was found. Raises Refused for a name that no tree may have, such as .git."""
        with tempfile.TemporaryDirectory(dir=self._paths.tx) as place:
            aside = self.git.with_environment(GIT_INDEX_FILE=f"{place}/index")
            aside.out("update-index", "-z", "--index-info", stdin="".join(self.rows))
            # git passes over such names with a word on stderr, and exits with 0.
            taken = set(aside.names("ls-files", "-z"))
            for name in (row.rstrip("\0").partition("\t")[2] for row in self.rows):
                if name not in taken:
                    self._refuse(name, "git takes no such name")
            return aside.out("write-tree")

    def _add(self, name: str, last: str, directory: int) -> None:
        try:
            mode = os.stat(last, dir_fd=directory, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                text = os.fsencode(os.readlink(last, dir_fd=directory))
                self._add_row("120000", self.git.out("hash-object", "-w", "--stdin", stdin=text), name)
            elif stat.S_ISREG(mode):
                self._add_file(name, os.open(last, _OPEN_FLAGS, dir_fd=directory))
            elif not stat.S_ISDIR(mode):
                self.skipped.append(f".liza/specs/{name}")
        except OSError as error:
            self._refuse(name, error.strerror or str(error))

    def _add_file(self, name: str, file: int) -> None:
        found = os.fstat(file)
        mode = "100755" if found.st_mode & stat.S_IXUSR else "100644"
        self._open_files.append((file, mode, name))
        if not stat.S_ISREG(found.st_mode):
            self._refuse(name, "it is no plain file any more")
        if found.st_size > MAX_FILE_SIZE:
            self._refuse(name, f"it has {found.st_size} bytes, and {MAX_FILE_SIZE} are the most")
        if self._is_unchanged(name, file, found.st_size):
            os.close(self._open_files.pop()[0])
        elif len(self._open_files) >= _MAX_OPEN_FILES:
            self._hash_open_files()

    def _is_unchanged(self, name: str, file: int, size: int) -> bool:
        if name == "goal.md":
            return size == len(self._goal) and os.pread(file, size, 0) == self._goal
        laid = self._shipped / name
        if name.split("/")[0] not in agent_texts.SPEC_DIRECTORIES or not laid.is_file() or laid.stat().st_size != size:
            return False
        return os.pread(file, size, 0) == laid.read_bytes()

    def _hash_open_files(self) -> None:
        """git reads the open files by their descriptors: no name can be turned, and none has a line end in it."""
        if self._open_files:
            given = "".join(f"/dev/fd/{file}\n" for file, _, _ in self._open_files)
            git = self.git.inheriting(*(file for file, _, _ in self._open_files))
            blobs = git.out("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=given).split()
            for blob, (_, mode, name) in zip(blobs, self._open_files, strict=True):
                self._add_row(mode, blob, name)
        self._close_open_files()

    def _close_open_files(self) -> None:
        while self._open_files:
            os.close(self._open_files.pop()[0])

    def _add_row(self, mode: str, blob: str, name: str) -> None:
        self.rows.append(f"{mode} {blob}\t{name}\0")

    def _unreadable(self, error: OSError) -> NoReturn:
        # The walk tells of a directory by the last part of its name only.
        raise Refused(
            f"{error.filename} in .liza/specs cannot be saved: {error.strerror}",
            f"ls -lAR {shlex.quote(str(self._paths.specs))}",
        ) from error

    def _refuse(self, name: str, why: str) -> NoReturn:
        path, root = (shlex.quote(str(path)) for path in (self._paths.specs / name, self._paths.root))
        raise Refused(f".liza/specs/{name} cannot be saved: {why}", f"mv -n {path} {root}")


def _commit_tree(git: Git, tree: str, ref: str, message: str) -> None:
    there = git.out("for-each-ref", "--format=%(refname)", ref).split()
    old = git.out("rev-parse", "--verify", f"{ref}^{{commit}}") if ref in there else None
    if old is not None and git.out("rev-parse", f"{old}^{{tree}}") == tree:
        return
    parent = () if old is None else ("-p", old)
    made = git.with_identity().out("commit-tree", tree, *parent, "-m", message)
    git.out("update-ref", ref, made, old or "0" * len(made))
