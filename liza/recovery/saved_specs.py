"""Save what people wrote into .liza (specs, table of programs) as commits before a purge deletes it.

Files are saved byte by byte, links as links.
"""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from pathlib import Path
from typing import NoReturn

from liza.crew import layout
from liza.crew.crew import Crew
from liza.crew.layout import default_goal_text
from liza.git.runner import Git
from liza.model.errors import NotRegularFile, Refused
from liza.model.value_classes import Value
from liza.system import untrusted_files

SPECS_REF = "refs/liza/specs"
PROGRAMS_REF = "refs/liza/programs"
MAX_FILE_SIZE = 100 * 1000 * 1000
"""Maximum size of a saved file, in bytes: the limit of common git hosts."""

_MAX_OPEN_FILES = 64  # files that one git reads; their descriptors are open meanwhile


class SaveResult(Value):
    """Whether there was anything to save, and the names of special files that were skipped."""

    saved: bool
    skipped: tuple[str, ...]


def save_specs(crew: Crew) -> SaveResult:
    """Save specs that differ from what Liza shipped, on top of what an earlier purge saved.

    Raises Refused for a file that cannot be saved, GitFailed, Missing. Then the repository has new objects at most.
    """
    specs = _SpecsWalk(crew)
    specs.walk()
    if specs.rows:
        _commit_tree(specs.git, specs.write_tree(), SPECS_REF, "The specs that were in .liza/specs")
    return SaveResult(bool(specs.rows), tuple(specs.skipped))


def save_programs(crew: Crew) -> SaveResult:
    """Save this crew's table of programs, on top of what an earlier purge saved. Raises as ``save_specs``."""
    path = crew.paths.liza / "programs.toml"
    try:
        is_link = path.is_symlink()
        data = os.fsencode(path.readlink()) if is_link else untrusted_files.read_if_exists(path, MAX_FILE_SIZE)
    except (NotRegularFile, OSError) as error:
        if isinstance(error, NotRegularFile) and not path.is_file():
            return SaveResult(False, (".liza/programs.toml",))
        quoted_path, root = shlex.quote(str(path)), shlex.quote(str(crew.paths.root))
        raise Refused(f".liza/programs.toml cannot be saved: {error}", f"mv -n {quoted_path} {root}") from error
    if data is None:
        return SaveResult(False, ())
    git: Git = crew.git.with_timeout(600)
    blob = git.out("hash-object", "-w", "--stdin", stdin=data).strip()
    tree = git.out("mktree", stdin=f"{'120000' if is_link else '100644'} blob {blob}\tprograms.toml\n").strip()
    _commit_tree(git, tree, PROGRAMS_REF, "The table of programs that was .liza/programs.toml")
    return SaveResult(True, ())


class _SpecsWalk:
    """A walk below .liza/specs. Each directory is held open: a link that replaces it has no effect."""

    def __init__(self, crew: Crew) -> None:
        self.git: Git = crew.git.with_timeout(600)
        self.rows: list[str] = []
        self.skipped: list[str] = []
        self._paths = crew.paths
        self._goal = default_goal_text(crew.board.read().goal.description).encode("utf-8", "surrogateescape")
        self._shipped = layout.find_texts("specs")
        self._open_files: list[tuple[int, str, str]] = []

    def walk(self) -> None:
        """Store every file and link that differs from what Liza shipped. Raises Refused, GitFailed."""
        top = self._paths.specs
        if not os.path.lexists(top):
            return
        if top.is_symlink() or not top.is_dir():
            self.skipped.append(".liza/specs")
            return
        try:
            for directory, directories, files, descriptor in os.fwalk(top, onerror=self._unreadable):
                directories.sort()
                for name in sorted([*directories, *files]):
                    self._add(Path(directory, name).relative_to(top).as_posix(), name, descriptor)
            self._hash_open_files()
        finally:
            self._close_open_files()

    def write_tree(self) -> str:
        """Return the tree of the stored files. Raises Refused for a name that git does not allow, such as .git."""
        with tempfile.TemporaryDirectory(dir=self._paths.tx) as directory:
            git_copy = self.git.with_environment(GIT_INDEX_FILE=f"{directory}/index")
            git_copy.out("update-index", "-z", "--index-info", stdin="".join(self.rows))
            # git skips such names with a message on stderr and exit status 0.
            accepted = set(git_copy.names("ls-files", "-z"))
            for name in (row.rstrip("\0").partition("\t")[2] for row in self.rows):
                if name not in accepted:
                    self._refuse(name, "git does not allow this name")
            return git_copy.out("write-tree")

    def _add(self, name: str, last: str, directory: int) -> None:
        try:
            mode = os.stat(last, dir_fd=directory, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                text = os.fsencode(os.readlink(last, dir_fd=directory))
                self._add_row("120000", self.git.out("hash-object", "-w", "--stdin", stdin=text), name)
            elif stat.S_ISREG(mode):
                self._add_file(name, untrusted_files.open_regular(Path(last), dir_fd=directory))
            elif not stat.S_ISDIR(mode):
                self.skipped.append(f".liza/specs/{name}")
        except NotRegularFile:
            self._refuse(name, "it is not a regular file any more")
        except OSError as error:
            self._refuse(name, error.strerror or str(error))

    def _add_file(self, name: str, file: int) -> None:
        status = os.fstat(file)
        mode = "100755" if status.st_mode & stat.S_IXUSR else "100644"
        self._open_files.append((file, mode, name))
        if status.st_size > MAX_FILE_SIZE:
            self._refuse(name, f"it has {status.st_size} bytes; the maximum is {MAX_FILE_SIZE}")
        if self._is_unchanged(name, file, status.st_size):
            os.close(self._open_files.pop()[0])
        elif len(self._open_files) >= _MAX_OPEN_FILES:
            self._hash_open_files()

    def _is_unchanged(self, name: str, file: int, size: int) -> bool:
        if name == "goal.md":
            return size == len(self._goal) and os.pread(file, size, 0) == self._goal
        shipped = self._shipped / name
        if name.split("/")[0] not in layout.SPEC_DIRECTORIES or not shipped.is_file() or shipped.stat().st_size != size:
            return False
        return os.pread(file, size, 0) == shipped.read_bytes()

    def _hash_open_files(self) -> None:
        """Hash the open files by descriptor: names may change or contain newlines."""
        if self._open_files:
            paths = "".join(f"/dev/fd/{file}\n" for file, _, _ in self._open_files)
            git = self.git.inheriting(*(file for file, _, _ in self._open_files))
            blobs = git.out("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=paths).split()
            for blob, (_, mode, name) in zip(blobs, self._open_files, strict=True):
                self._add_row(mode, blob, name)
        self._close_open_files()

    def _close_open_files(self) -> None:
        while self._open_files:
            os.close(self._open_files.pop()[0])

    def _add_row(self, mode: str, blob: str, name: str) -> None:
        self.rows.append(f"{mode} {blob}\t{name}\0")

    def _unreadable(self, error: OSError) -> NoReturn:
        # os.fwalk reports only the last part of the directory's path.
        raise Refused(
            f"{error.filename} in .liza/specs cannot be saved: {error.strerror}",
            f"ls -lAR {shlex.quote(str(self._paths.specs))}",
        ) from error

    def _refuse(self, name: str, reason: str) -> NoReturn:
        path, root = (shlex.quote(str(path)) for path in (self._paths.specs / name, self._paths.root))
        raise Refused(f".liza/specs/{name} cannot be saved: {reason}", f"mv -n {path} {root}")


def _commit_tree(git: Git, tree: str, ref: str, message: str) -> None:
    old = git.find_commit(ref)
    if old is not None and git.out("rev-parse", f"{old}^{{tree}}") == tree:
        return
    parent = () if old is None else ("-p", old)
    commit = git.with_identity().out("commit-tree", tree, *parent, "-m", message)
    git.out("update-ref", ref, commit, old or "0" * len(commit))
