"""Bring the files and the index of a worktree from one commit to another, also after a killed move.

A file is in transition if it has the content of either commit, is missing, or is a beginning of that content: all of
that is in git. Any other file is a person's and is never overwritten: ``find_blocking_files`` names those that are in
the way. git itself overwrites ignored files and the files of a submodule.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from liza.git.rules.git_operations import BlockingFile, BlockingKind
from liza.git.runner import Git, join_nul
from liza.git.survey import copy_index
from liza.model.value_classes import Value
from liza.system import files

_FLAGS = {"skip-worktree": "Ss", "assume-unchanged": "hs"}
"""Flags with which git hides changes of a file, and the letters of such an entry in ``git ls-files -v``."""
_ABSENT_MODE, _LINK_MODE, _SUBMODULE_MODE = "000000", "120000", "160000"


class _Change(Value):
    """A file that differs between two commits: its mode and blob in each."""

    path: str
    old_entry: tuple[str, str]
    new_entry: tuple[str, str]


class CheckoutState(Value):
    """What a person changed in a checkout: the names of its tracked ``changed`` files, also of those whose changes git
    hides, and the letter of each index entry in ``git ls-files -v``. ``ignores_case``: ``core.ignoreCase`` is set."""

    changed: Collection[str]
    tags: Mapping[str, str]
    ignores_case: bool


def read_checkout(git: Git, commit: str) -> CheckoutState:
    """Return what a person changed in a checkout of ``commit``. Raises GitFailed."""
    settings = git.run("config", "--type=bool", "--get-regexp", r"^core\.(sparsecheckout|ignorecase)$", codes=(0, 1))
    config = dict(line.split(" ", 1) for line in settings.stdout.decode().splitlines())
    with copy_index(git) as git_copy:
        tags = _read_tags(git_copy)
        hidden = [name for name, tag in tags.items() if _hiding_flags(tag)]
        if config.get("core.sparsecheckout") == "true":
            hidden = [name for name in hidden if os.path.lexists(git.directory / name)]
        for flag in _FLAGS if hidden else ():
            git_copy.out("update-index", f"--no-{flag}", "-z", "--stdin", stdin=join_nul(hidden))
        changed = _list_differing(git_copy, commit)
    return CheckoutState(changed, tags, config.get("core.ignorecase") == "true")


def _list_differing(git_copy: Git, commit: str) -> set[str]:
    """Return the names of tracked files that differ from a commit, in the checkout or in the index."""
    git_copy.run("update-index", "-q", "--refresh", codes=(0, 1))
    words = ("diff-index", "-z", "--name-only", "--no-renames", "--ignore-submodules=dirty")
    return {*git_copy.names(*words, commit), *git_copy.names(*words, "--cached", commit)}


def find_blocking_files(git: Git, state: CheckoutState, old: str, new: str) -> tuple[BlockingFile, ...]:
    """Return what is in the way of a move of a checkout from one commit to the other, by name.

    That is each file that the move changes and the person changed, and each path of the person, ignored or not, where
    the move writes. Raises GitFailed.
    """
    changes = _diff_commits(git, old, new)
    written = {change.path for change in changes if change.new_entry[0] != _ABSENT_MODE}
    blocking: dict[str, BlockingKind] = {}
    directories: list[str] = []
    fold = str.casefold if state.ignores_case else str
    unchanged = {*map(fold, state.tags)} - {*map(fold, state.changed)}
    disk = _Disk(git.directory, ignores_case=state.ignores_case)
    for change in _skip_finished(git, state, changes, new):
        was_submodule, is_submodule = (entry[0] == _SUBMODULE_MODE for entry in (change.old_entry, change.new_entry))
        if change.path in state.changed:
            is_own = change.old_entry[0] == _ABSENT_MODE
            kind = BlockingKind.MOVED_SUBMODULE if was_submodule else BlockingKind.CHANGED
            blocking[change.path] = BlockingKind.OWN if is_own else kind
        if was_submodule:
            if not is_submodule and _is_filled(git.directory / change.path) and _needs_path(written, change.path):
                blocking[change.path] = BlockingKind.FILLED_SUBMODULE
            continue
        obstacle, is_directory = disk.find_obstacle(change.path)
        if obstacle is not None and is_directory and obstacle in state.tags:
            blocking[f"{obstacle}/"] = BlockingKind.OWN  # instead of a file, so that git lists nothing in it
        elif obstacle is not None and is_directory:
            directories.append(obstacle)
        elif obstacle is not None and fold(obstacle) not in unchanged:
            blocking.setdefault(obstacle, BlockingKind.OWN)
    for name in _list_inside(git, state, directories) if directories else ():
        blocking.setdefault(name, BlockingKind.OWN)
    return tuple(_describe(git.directory, state, written, name, blocking[name]) for name in sorted(blocking))


def _skip_finished(git: Git, state: CheckoutState, changes: list[_Change], new: str) -> list[_Change]:
    """Return the changes without those that the person made already, and that are in the index."""
    changed = {change.path for change in changes if change.path in state.changed}
    if not changed:
        return changes
    with copy_index(git) as git_copy:
        finished = changed - _list_differing(git_copy, new)
    return [change for change in changes if change.path not in finished]


def _list_inside(git: Git, state: CheckoutState, directories: list[str]) -> Iterator[str]:
    """Yield what a person has in directories that become files: untracked, ignored and staged paths."""
    words = ("ls-files", "-z", "--others", "--directory", "--no-empty-directory")
    yield from git.names("--literal-pathspecs", *words, "--", *directories)
    parents = tuple(f"{name}/" for name in directories)
    yield from (name for name in state.changed if name.startswith(parents))


def _describe(top: Path, state: CheckoutState, written: Collection[str], name: str, kind: BlockingKind) -> BlockingFile:
    free_name, path = "", name.rstrip("/")
    if os.path.lexists(top / path):
        # Beside the first directory that becomes a file: inside of it would be in the way again.
        is_inside = any(path.startswith(f"{other}/") for other in written)
        wanted = top / f"{path.replace('/', '-') if is_inside else path}.saved"
        free_name = str(files.find_free_path(wanted).relative_to(top))
    return BlockingFile(name, kind, name in state.tags, _hiding_flags(state.tags.get(name)), free_name)


def _needs_path(written: Collection[str], submodule: str) -> bool:
    """Return whether the path of a submodule, or one above or below it, becomes a file."""
    return any(f"{name}/".startswith(f"{submodule}/") or submodule.startswith(f"{name}/") for name in written)


def _is_filled(directory: Path) -> bool:
    return _is_directory(directory) and any(directory.iterdir())


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _list_files(top: Path, directory: str) -> Iterator[str]:
    """Yield the paths of everything in a directory but directories."""
    for folder, directories, names in os.walk(top / directory):
        links = [name for name in directories if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118
        yield from (str(Path(folder, name).relative_to(top)) for name in (*names, *links))


class _Disk:
    """What is at the paths of a checkout. With ``ignores_case`` names are returned as they are on the disk."""

    def __init__(self, top: Path, *, ignores_case: bool = False) -> None:
        self._top, self._ignores_case = top, ignores_case
        self._parents: dict[str, tuple[str | None, bool]] = {"": ("", True)}

    def find_obstacle(self, name: str) -> tuple[str | None, bool]:
        """Return the path of what is at ``name``, and whether it is a directory: itself, or a parent that is no
        directory or is another repository. None if nothing is there."""
        parent, _, part = name.rpartition("/")
        directory, is_directory = self._parents.get(parent) or self._find_parent(parent)
        if directory is None or not is_directory:
            return directory, False
        names = os.listdir(self._top / directory) if self._ignores_case else ()  # noqa: PTH208 - names, not paths
        if names and part not in names:
            part = next((other for other in names if other.casefold() == part.casefold()), part)
        path = f"{directory}/{part}" if directory else part
        try:
            return path, stat.S_ISDIR((self._top / path).lstat().st_mode)
        except FileNotFoundError:
            return None, False
        except PermissionError:
            return path, False

    def _find_parent(self, name: str) -> tuple[str | None, bool]:
        path, is_directory = self.find_obstacle(name)
        if path is not None and is_directory and os.path.lexists(self._top / path / ".git"):
            is_directory = False
        self._parents[name] = path, is_directory
        return path, is_directory


def is_behind(git: Git, old: str, new: str) -> bool:
    """Return whether the index has an entry of ``old`` that differs in ``new``. Raises GitFailed."""
    index = _read_index(git)
    return any(index.get(change.path) == _index_entry(change.old_entry) for change in _diff_commits(git, old, new))


def find_user_changes(git: Git, index: Path, old: str, new: str) -> tuple[str, ...]:
    """Return the files that a person changed among those that differ between the commits.

    ``index`` is overwritten. Raises GitFailed.
    """
    transition = _Transition(git.with_environment(GIT_INDEX_FILE=str(index)), old, new)
    return tuple(change.path for change in transition.find_pending() if not transition.includes(change))


def update_files(git: Git, index: Path, old: str, new: str) -> None:
    """Bring files in transition, and ``index``, from ``old`` to ``new``. A person's changes stay, and the flags of
    index entries.

    Idempotent. Raises GitFailed.
    """
    git_copy = git.with_environment(GIT_INDEX_FILE=str(index))
    transition = _Transition(git_copy, old, new)
    tags = _read_tags(git_copy)
    pending = [change for change in transition.find_pending() if transition.includes(change)]
    for change in pending:
        if change.new_entry[0] == _ABSENT_MODE:
            _remove_file(git.directory, change.path)
    written = [change.path for change in pending if change.new_entry[0] not in (_ABSENT_MODE, _SUBMODULE_MODE)]
    if written:
        git_copy.out("checkout-index", "--force", "--index", "--quiet", "-z", "--stdin", stdin=join_nul(written))
    kept = [change.path for change in transition.changes if change.new_entry[0] != _ABSENT_MODE]
    for flag in _FLAGS:
        names = [name for name in kept if flag in _hiding_flags(tags.get(name))]
        if names:
            git_copy.out("update-index", f"--{flag}", "-z", "--stdin", stdin=join_nul(names))


def _read_tags(git: Git) -> dict[str, str]:
    """Return the letter of each index entry in ``git ls-files -v``."""
    return {row[2:]: row[0] for row in git.names("ls-files", "-v", "-z")}


def _hiding_flags(tag: str | None) -> tuple[str, ...]:
    """Return the flags of an index entry with which git hides changes of its file; none without an entry."""
    return tuple(flag for flag, letters in _FLAGS.items() if tag and tag in letters)


def _diff_commits(git: Git, old: str, new: str) -> list[_Change]:
    fields = iter(git.names("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new))
    changes = []
    for field in fields:
        mode_old, mode_new, blob_old, blob_new, _ = field.removeprefix(":").split(" ")
        changes.append(_Change(next(fields), (mode_old, blob_old), (mode_new, blob_new)))
    return changes


class _Transition:
    """The files of a move that may have been killed; ``git_copy`` has a copy of the index."""

    def __init__(self, git_copy: Git, old: str, new: str) -> None:
        self.changes = _diff_commits(git_copy, old, new)
        self._paths = {change.path for change in self.changes}
        self._git = git_copy
        self._disk = _Disk(git_copy.directory)

    def find_pending(self) -> list[_Change]:
        """Return the changes whose file does not have its new content.

        Writes the new entries into the index, except for files that a person has staged. Entries whose changes git
        would hide lose their flag. A file that skip-worktree keeps out of the checkout is not pending.
        """
        index, tags = _read_index(self._git), _read_tags(self._git)
        unstaged = [
            change
            for change in self.changes
            if index.get(change.path) in (_index_entry(change.old_entry), _index_entry(change.new_entry))
        ]
        hidden = {change.path for change in unstaged if _hiding_flags(tags.get(change.path))}
        absent = {name for name in hidden if tags[name] in _FLAGS["skip-worktree"] and not self._is_present(name)}
        rows = "".join(
            f"{change.new_entry[0]} {change.new_entry[1]} 0\t{change.path}\0"
            for change in unstaged
            if change.path in hidden - absent or index.get(change.path) != _index_entry(change.new_entry)
        )
        if rows:
            self._git.out("update-index", "-z", "--index-info", stdin=rows)
        self._git.run("update-index", "-q", "--refresh")
        differ = {*self._git.names("diff-files", "-z", "--name-only")}
        return [
            change
            for change in unstaged
            if change.path not in absent
            and (change.path in differ or (change.new_entry[0] == _ABSENT_MODE and self._is_present(change.path)))
        ]

    def _is_present(self, name: str) -> bool:
        return self._disk.find_obstacle(name)[0] == name

    def includes(self, change: _Change) -> bool:
        """Return whether the file of a change is in transition. A submodule never is."""
        if _SUBMODULE_MODE in (change.old_entry[0], change.new_entry[0]):
            return False
        obstacle, is_directory = self._disk.find_obstacle(change.path)
        if obstacle is None:
            return True
        if is_directory:
            # A directory that becomes a file: each of its tracked files is a change of its own.
            return self._paths.issuperset(_list_files(self._git.directory, obstacle))
        if obstacle != change.path:
            return change.new_entry[0] == _ABSENT_MODE or obstacle in self._paths
        path = self._git.directory / change.path
        if not path.is_symlink() and not path.is_file():
            return False  # a pipe would block
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        return any(
            _checkout_content(self._git, change.path, entry).startswith(content)
            for entry in (change.old_entry, change.new_entry)
            if entry[0] != _ABSENT_MODE
        )


def _read_index(git: Git) -> dict[str, tuple[str, str] | None]:
    rows = (row.partition("\t") for row in git.names("ls-files", "-s", "-z"))
    return {path: (facts.split(" ")[0], facts.split(" ")[1]) for facts, _, path in rows}


def _index_entry(entry: tuple[str, str]) -> tuple[str, str] | None:
    return None if entry[0] == _ABSENT_MODE else entry


def _checkout_content(git: Git, path: str, entry: tuple[str, str]) -> bytes:
    """Return the bytes that a checkout writes for this entry."""
    if entry[0] == _LINK_MODE:
        return git.raw("cat-file", "blob", entry[1])
    return git.raw("cat-file", "--filters", f"--path={path}", entry[1])


def _remove_file(top: Path, name: str) -> None:
    path = top / name
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        path.unlink()
    for parent in path.parents:
        if parent == top:
            return
        with suppress(OSError):
            parent.rmdir()
