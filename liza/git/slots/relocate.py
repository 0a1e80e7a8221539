"""Repair git's records of slots after a repository, or its slots directory, was moved.

Does what ``git worktree repair`` does, but only for Liza's own worktrees. Records of people's worktrees stay as they
are.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path, PurePath

from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.git.slots import slot_records
from liza.git.worktree_records import list_worktrees, read_gitfile
from liza.model.errors import GitFailed, NotRegularFile
from liza.model.paths import Paths
from liza.system import atomic, untrusted_files

# The last two parts of a slots directory inside the repository.
_INSIDE_REPOSITORY = (".worktrees", ".slots")
_SUBMODULE_WORKTREE = re.compile(r'(?m)^(\s*worktree\s*=\s*)([^"\\#;\n]*[^"\\#;\s])\s*$')
_MAX_CONFIG = 64 * 1024  # bytes of a submodule's configuration


def find_common_dir(root: Path) -> Path:
    """Return the git directory that all worktrees of a repository share. Raises GitFailed."""
    git_dir = root / ".git"
    return git_dir if git_dir.is_dir() else git_dirs(Git(root))[1]


def recorded_slots(common: Path) -> dict[Path, Path]:
    """Return git directory and directory of each worktree that has an owner file or is in one of Liza's directories
    inside the repository.
    """
    return {
        git_dir: gitfile.parent
        for git_dir, gitfile in list_worktrees(common).items()
        if slot_records.has_owner(git_dir) or gitfile.parent.parent.parts[-2:] == _INSIDE_REPOSITORY
    }


def find_misplaced(common: Path, olds: Iterable[Path], directory: Path) -> dict[Path, Path]:
    """Return records of slots that do not point into ``directory``: those with an owner file, and all that point into
    one of ``olds``.

    A slot that still is where its record says was not moved. An earlier crew may have left it in another directory.
    """
    old_directories = set(olds)
    own = recorded_slots(common)
    worktrees = {git_dir: gitfile.parent for git_dir, gitfile in list_worktrees(common).items()}
    return {
        git_dir: worktree
        for git_dir, worktree in worktrees.items()
        if worktree.parent != directory
        and (git_dir in own or worktree.parent in old_directories)
        and not slot_records.points_to(worktree / ".git", git_dir)
    }


def repair_records(paths: Paths, common: Path, olds: Iterable[Path]) -> tuple[str, ...]:
    """Make git's records point to the slots in ``paths.slots``, and the slots to their records.

    The submodules of a slot and their repositories point to each other again. Other files in the slots are not changed.
    Idempotent. Return the names of the repaired slots. Raises OSError.
    """
    old_directories = set(olds)
    changed = []
    for git_dir, slot in find_misplaced(common, old_directories, paths.slots).items():
        if not _has_other_record(paths.slot(slot.name), git_dir, common):
            _point_to(git_dir, paths.slot(slot.name))
            changed.append(slot.name)
    for slot_name, git_dir in slot_records.git_dirs_below(paths.slots, common).items():
        path = paths.slot(slot_name)
        if path.is_dir() and not path.is_symlink():
            # If `.git` is a directory, the next user of the slot reports it.
            with suppress(GitFailed):
                slot_records.repair_gitfile(path, git_dir)
            _repair_submodules(path, git_dir, {directory.name for directory in (*old_directories, paths.slots)})
    return tuple(changed)


def shares_path(common: Path) -> bool:
    """Return whether several records name one path. Raises OSError."""
    paths = list(list_worktrees(common).values())
    return len(set(paths)) < len(paths)


def separate_records(common: Path, directories: Iterable[Path]) -> dict[Path, Path]:
    """Make records of slots that name one path name different paths: else git refuses every command for that path.

    A record gets the path of the slot in one of ``directories`` whose ``.git`` file names it. One record keeps the
    path; others without a slot get a free name beside it. Idempotent. Return the changed records with their slots.
    Raises OSError.
    """
    records_of = defaultdict(list)
    for git_dir, gitfile in list_worktrees(common).items():
        records_of[gitfile.parent].append(git_dir)
    changed: dict[Path, Path] = {}
    for slot, git_dirs_of_slot in records_of.items():
        if len(git_dirs_of_slot) == 1:
            continue
        others = [path / slot.name for path in directories if path / slot.name not in records_of]
        slots = {git_dir: _find_slot(git_dir, others) for git_dir in git_dirs_of_slot}
        at_path = [git_dir for git_dir in git_dirs_of_slot if slots[git_dir] is None]
        at_path.sort(key=lambda git_dir: not slot_records.points_to(slot / ".git", git_dir))
        for git_dir in git_dirs_of_slot:
            if git_dir not in at_path[:1] and slot_records.has_owner(git_dir):
                changed[git_dir] = slots[git_dir] or _free_path(slot, {*records_of, *changed.values()})
                _point_to(git_dir, changed[git_dir])
    return changed


def _find_slot(git_dir: Path, slots: Iterable[Path]) -> Path | None:
    """Return the slot whose ``.git`` file names a record, or None."""
    return next((slot for slot in slots if slot_records.points_to(slot / ".git", git_dir)), None)


def _free_path(slot: Path, used: set[Path]) -> Path:
    names = (slot.with_name(f"{slot.name}-{number}") for number in count(2))
    return next(path for path in names if path not in used and not os.path.lexists(path))


def _has_other_record(slot: Path, git_dir: Path, common: Path) -> bool:
    """Return whether a slot belongs to another record: that one names it, or its ``.git`` file names that one."""
    worktrees = list_worktrees(common)
    path = read_gitfile(slot / ".git")
    # A moved slot still names the former path of the repository: the names of the records count.
    named = None if path is None else git_dir.with_name(Path(os.path.normpath(path)).name)
    if named == git_dir:
        return False
    if named in worktrees and worktrees[named].parent.name == slot.name:
        return True
    return any(gitfile.parent == slot for other, gitfile in worktrees.items() if other != git_dir)


def _point_to(git_dir: Path, slot: Path) -> None:
    atomic.write(git_dir / "gitdir", os.fsencode(f"{slot}/.git\n"), 0o644, sync=False)


def _repair_submodules(slot: Path, git_dir: Path, directory_names: Iterable[str]) -> None:
    """Make the ``.git`` files of a slot's submodules and the configuration of their repositories name each other.

    git writes both as relative paths, so each move that changes the way from the slot to the repository breaks them.
    ``directory_names``: names that the slots directory has, or had. Files that an agent replaced stay. Raises OSError.
    """
    for repository in _submodule_repositories(git_dir / "modules"):
        config = repository / "config"
        try:
            text = os.fsdecode(untrusted_files.read(config, _MAX_CONFIG))
        except (FileNotFoundError, NotRegularFile):
            continue
        match = _SUBMODULE_WORKTREE.search(text)
        tail = match and _path_in_slot(PurePath(match[2]), slot.name, directory_names)
        if not match or not tail:
            continue
        worktree = slot / tail
        gitfile = worktree / ".git"
        named = read_gitfile(gitfile)
        is_same = named is not None and _ends_with(os.path.normpath(named), repository.relative_to(git_dir.parent))
        if not is_same or worktree.resolve() != slot.resolve() / tail:
            continue
        line = f"gitdir: {os.path.relpath(repository.resolve(), worktree.resolve())}\n"
        if not slot_records.points_to(gitfile, repository):
            atomic.write(gitfile, os.fsencode(line), 0o644, sync=False)
        path = os.path.relpath(worktree.resolve(), repository.resolve())
        if path != match[2]:
            changed = f"{text[: match.start()]}{match[1]}{path}{text[match.end() :]}"
            atomic.write(config, os.fsencode(changed), 0o644, sync=False)


def _submodule_repositories(modules: Path) -> Iterator[Path]:
    """Yield the repositories of a worktree's submodules, outer before nested ones. Does not follow links."""
    for directory, names, files in os.walk(modules):
        if "HEAD" in files:
            names.clear()
            yield Path(directory)
            yield from _submodule_repositories(Path(directory) / "modules")


def _path_in_slot(recorded: PurePath, slot_name: str, directory_names: Iterable[str]) -> PurePath | None:
    """Return the part of a recorded path below the slot, or None if the path leads to no slot of that name."""
    parents, parts = set(directory_names), recorded.parts
    for number, (parent, name) in enumerate(pairwise(parts)):
        if parent in parents and name == slot_name and ".." not in parts[number + 2 :]:
            return PurePath(*parts[number + 2 :]) if parts[number + 2 :] else None
    return None


def _ends_with(path: str, tail: Path) -> bool:
    return PurePath(path).parts[-len(tail.parts) :] == tail.parts
