"""Directory of a crew's slots: its choice, its record, and its repair after the repository was moved or copied.

It is beside the repository: ``shop.worktrees`` for ``shop``. Where that cannot be, it is below the user's state
directory, or where a person wants it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path, PurePath

from liza.git import slot_records
from liza.git.git_config import git_dirs, list_worktrees, read_gitfile, records_directory
from liza.git.runner import Git
from liza.git.survey import find_main_checkout
from liza.model.errors import GitFailed, NotRegularFile, Refused
from liza.model.paths import BOXES, Paths
from liza.model.value_classes import Value, replace
from liza.system import atomic, files, untrusted_files

_SUBMODULE_WORKTREE = re.compile(r'(?m)^(\s*worktree\s*=\s*)([^"\\#;\n]*[^"\\#;\s])\s*$')
_MAX_CONFIG = 64 * 1024  # bytes of a submodule's configuration


class SlotsRecord(Value):
    """The record ``.liza/worktrees.json``: the directory of this crew's slots.

    ``root`` is the path of the repository when the record was written; if it differs now, the repository was moved or
    copied. ``created_by_liza``: Liza created the directory, so a purge may remove it.
    """

    root: Path
    directory: Path
    created_by_liza: bool


class DirectoryFacts(Value):
    """Facts about a possible slots directory.

    ``nearest_existing``: the directory, or the nearest existing one above it. ``owned``, ``writable``: that one belongs
    to this user and accepts new entries. ``free``: it contains nothing but slots of this repository. ``checkout``: git
    checkout around it.
    """

    path: Path
    nearest_existing: Path
    is_directory: bool
    owned: bool
    writable: bool
    free: bool
    checkout: Path | None


def find_common_dir(root: Path) -> Path:
    """Return the git directory that all worktrees of a repository share, also of one that is to be made. Raises
    GitFailed.
    """
    git_dir = root / ".git"
    return git_dir if git_dir.is_dir() or not root.exists() else git_dirs(Git(root))[1]


def read_record(paths: Paths) -> SlotsRecord | None:
    """Return the record of the slots directory, or None if it is missing or invalid. Raises OSError."""
    try:
        fields = json.loads(untrusted_files.read_record(paths.slots_record))
        return SlotsRecord(Path(fields["root"]), Path(fields["place"]), fields.get("made") is True)
    except (FileNotFoundError, NotADirectoryError, PermissionError, NotRegularFile):
        return None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def write_record(paths: Paths, record: SlotsRecord) -> None:
    """Write the record atomically. Raises OSError."""
    fields = {"root": str(record.root), "place": str(record.directory), "made": record.created_by_liza}
    atomic.write(paths.slots_record, f"{json.dumps(fields, indent=1)}\n".encode("utf-8", "surrogateescape"))


def find_root(slot: Path) -> Path | None:
    """Return the repository of which a directory is a slot, as its ``.git`` file says; None if it is no slot.

    If that repository is gone, it was moved: it is searched for beside the slots. Raises GitFailed, OSError.
    """
    git_dir = read_gitfile(slot / ".git")
    if git_dir is None or git_dir.parent.name != records_directory(Path()).name:
        return None
    common = Path(os.path.normpath(git_dir)).parent.parent
    if common.is_dir():
        root = common.parent if common.name == ".git" else find_main_checkout(Git(common), common)
        roots = [] if root is None else [root]
    else:
        roots = list(slot.parent.parent.iterdir())
    own = [root for root in roots if _is_root_of(root, slot, git_dir)]
    return own[0] if len(own) == 1 else None


def _is_root_of(root: Path, slot: Path, git_dir: Path) -> bool:
    """Return whether a slot with this git directory is of the crew of a repository, or of one whose record is lost."""
    record = read_record(Paths(root))
    return slot_records.has_owner(git_dir) if record is None else record.directory.name == slot.parent.name


def refuse_line_break(root: Path) -> None:
    """Raise Refused if the path of a repository contains a line break: git stores paths as lines of text."""
    if "\n" in str(root):
        typed = str(root).replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        better = shlex.quote(str(root).replace("\n", "-"))
        raise Refused(f"the path of the repository contains a line break: {str(root)!r}", f"mv $'{typed}' {better}")


def propose_directories(root: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield possible slots directories, the best first: beside the repository, then below the user's state directory.

    For the root of the file system there is only the latter.
    """
    if root.name:
        yield Paths(root).slots
    home = environ.get("XDG_STATE_HOME", "")
    # A relative path is invalid by the XDG specification, and is ignored.
    state_home = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    yield state_home / "liza" / "worktrees" / f"{root.name}-{digest}"


def choose_directory(root: Path, wanted: Path | None, environ: Mapping[str, str]) -> SlotsRecord:
    """Choose the directory for the slots of a new crew: the requested one, or the first suitable default.

    Slots that an earlier crew of this repository left in it are used again. Creates nothing. Raises Refused, GitFailed,
    OSError.
    """
    common = find_common_dir(root)
    proposed = [wanted] if wanted is not None else [*propose_directories(root, environ)]
    refused = []
    for directory in (path.resolve() for path in proposed):
        facts = inspect_directory(directory, common)
        objection = directory_objection(root, facts)
        if objection is None:
            return SlotsRecord(root, directory, created_by_liza=not directory.exists() or bool(_entries(directory)))
        refused.append(f"{directory}: {objection}")
    raise Refused("no directory for the worktrees: " + "; ".join(refused), 'liza init "…" --worktrees "…"')


def inspect_directory(path: Path, common: Path) -> DirectoryFacts:
    """Return the facts about a directory that may be used for slots of the repository ``common``. Raises OSError."""
    existing = next(candidate for candidate in (path, *path.parents) if candidate.exists())
    return DirectoryFacts(
        path=path,
        nearest_existing=existing,
        is_directory=existing.is_dir(),
        owned=existing.stat().st_uid == os.geteuid(),
        writable=os.access(existing, os.W_OK | os.X_OK),
        free=all(_is_slot(entry, common, common) for entry in _entries(path)),
        checkout=next((candidate for candidate in (path, *path.parents) if (candidate / ".git").exists()), None),
    )


def directory_objection(root: Path, facts: DirectoryFacts) -> str | None:
    """Return why the slots of ``root`` cannot be in a directory; None if they can."""
    path = facts.path
    if "\n" in str(path):
        return "its path contains a line break"
    if path.is_relative_to(root):
        return "it is inside the repository"
    if root.is_relative_to(path):
        return "the repository is inside it"
    if facts.checkout is not None:
        return f"it is inside the git checkout {facts.checkout}"
    if facts.nearest_existing == path:
        if not facts.is_directory:
            return "it is not a directory"
        if not facts.free:
            return "it is not empty"
        if not facts.owned:
            return "it belongs to another user"
    if not facts.writable:
        return f"{facts.nearest_existing} is not writable"
    return None


def ensure_directory(paths: Paths) -> None:
    """Create the slots directory, accessible to this user only. An existing one is kept. Raises OSError."""
    paths.slots.mkdir(mode=0o700, parents=True, exist_ok=True)


def foreign_error(paths: Paths, common: Path) -> Refused | None:
    """Return why the slots cannot be in their directory: other files took its place. None if they can.

    ``common`` is the git directory that the worktrees share. Raises OSError.
    """
    path = paths.slots
    if path.is_symlink() or not os.path.lexists(path):
        return None
    entries = [entry for entry in _entries(path) if entry.is_dir()]
    # A slot without its `.git` file is known by git's record of it.
    recorded = slot_records.git_dirs_below(path, common)
    own = [entry for entry in entries if entry.name in recorded and not (entry / ".git").is_dir()]
    if not path.is_dir():
        reason = "it is not a directory"
    elif entries and not own and not any(slot_records.is_worktree_of(entry, common) for entry in entries):
        reason = "it contains other directories and no worktree of this crew"
    else:
        return None
    return Refused(f"{path} cannot hold the worktrees: {reason}", move_away_command(path))


def _entries(directory: Path) -> list[Path]:
    """Return the entries of a directory, except the links to slots, and what boxes have. Raises OSError."""
    entries = directory.iterdir() if directory.is_dir() else ()
    return [entry for entry in entries if entry.name != BOXES and not slot_records.is_links_directory(entry)]


def _is_slot(path: Path, common: Path, named: Path) -> bool:
    """Return whether the ``.git`` file of a worktree names the git directory ``named``, and ``common`` has its record.

    They differ if the repository was moved. Raises OSError.
    """
    git_dir = read_gitfile(path / ".git")
    return (
        slot_records.is_worktree_of(path, named)
        and (records_directory(common) / str(git_dir and git_dir.name)).is_dir()
    )


def move_away_command(path: Path) -> str:
    """Return the command that gives a path a free name beside it, with short names in the current directory."""
    free, is_here = files.find_free_path(path.with_name(f"{path.name}-old")), path.parent == Path.cwd()
    return shlex.join(["mv", *(name.name if is_here else str(name) for name in (path, free))])


def remove_directory(paths: Paths) -> None:
    """Remove the slots directory if Liza created it and it is empty. Raises OSError."""
    record = read_record(paths)
    if record is not None and record.created_by_liza:
        with suppress(OSError):
            record.directory.rmdir()


def reconstruct_record(paths: Paths, environ: Mapping[str, str]) -> SlotsRecord:
    """Return the record of a crew that lost it: the newest directory in which git records slots, or a new one.

    Raises Refused, GitFailed, OSError.
    """
    records = list_worktrees(find_common_dir(paths.root)).items()
    recorded = {gitfile.parent.parent for git_dir, gitfile in records if slot_records.has_owner(git_dir)}
    directories = sorted(filter(Path.is_dir, recorded), key=lambda path: path.stat().st_mtime_ns)
    if directories:
        return SlotsRecord(paths.root, directories[-1], created_by_liza=True)
    return choose_directory(paths.root, None, environ)


def is_copied(record: SlotsRecord) -> bool:
    """Return whether the repository of a record with another root was copied: the original is there with its crew."""
    original = read_record(Paths(record.root))
    # Another crew at the former path has another directory.
    return original is not None and (original.root, original.directory) == (record.root, record.directory)


def record_after_move(paths: Paths, record: SlotsRecord, environ: Mapping[str, str]) -> SlotsRecord:
    """Return the record of a repository that was moved or copied.

    ``record`` is the record from before. Raises Refused, GitFailed, OSError.
    """
    directory = _find_moved(paths, record, environ)
    if directory is not None:
        return replace(record, root=paths.root, directory=directory)
    # It has no slots: none were created yet, they were deleted, or this is a copy and the original has them.
    if not record.directory.exists() and record.directory not in propose_directories(record.root, environ):
        # A person chose it. It is created again when it is needed.
        return replace(record, root=paths.root)
    return choose_directory(paths.root, None, environ)


def _find_moved(paths: Paths, record: SlotsRecord, environ: Mapping[str, str]) -> Path | None:
    """Return the slots directory of a repository that was moved, or None if it has none of its own.

    The directory stays where it was if only the repository moved. If both moved, it is beside the repository, under the
    same name or a name derived from the new one. Raises GitFailed, OSError.
    """
    common = find_common_dir(paths.root)
    former = record.root / common.relative_to(paths.root) if common.is_relative_to(paths.root) else common
    beside = Path(os.path.normpath(paths.root / os.path.relpath(record.directory, record.root)))
    is_copy = is_copied(record)
    for path in (record.directory, beside, *propose_directories(paths.root, environ)):
        # A copy leaves the slots of its original alone. If they were copied with it, they are beside it.
        is_other = is_copy and path == record.directory
        entries = _entries(path) if path.resolve() == path and not is_other else []
        if any(_is_slot(entry, common, named) for entry in entries for named in (common, former)):
            return path
    return None


def repair_records(paths: Paths, former: Path) -> tuple[str, ...]:
    """Make git's records of the slots in ``former`` name the slots in ``paths.slots``, and the slots their records.

    The submodules of a slot and their repositories name each other again, too. Other files in the slots and the
    worktrees of people are not changed. Idempotent. Return the names of the slots. Raises GitFailed, OSError.
    """
    names = []
    for git_dir, gitfile in list_worktrees(find_common_dir(paths.root)).items():
        recorded = gitfile.parent
        if recorded.parent not in (former, paths.slots):
            continue
        slot = paths.slot(recorded.name)
        if recorded != slot:
            atomic.write(git_dir / "gitdir", os.fsencode(f"{slot}/.git\n"), 0o644, sync=False)
        names.append(slot.name)
        if slot.is_dir() and not slot.is_symlink():
            # If `.git` is a directory, the next user of the slot reports it.
            with suppress(GitFailed):
                slot_records.repair_gitfile(slot, git_dir)
            _repair_submodules(slot, git_dir, {former.name, paths.slots.name})
    return tuple(names)


def _repair_submodules(slot: Path, git_dir: Path, directory_names: set[str]) -> None:
    """Make the ``.git`` files of a slot's submodules and the configuration of their repositories name each other.

    git writes both as relative paths, so each move that changes the way from the slot to the repository breaks them.
    ``directory_names``: names that the slots directory has, or had. Raises OSError.
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
        if read_gitfile(gitfile) is None or worktree.resolve() != slot.resolve() / tail:
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
    for directory, names, file_names in os.walk(modules):
        if "HEAD" in file_names:
            names.clear()
            yield Path(directory)
            yield from _submodule_repositories(Path(directory) / "modules")


def _path_in_slot(recorded: PurePath, slot_name: str, directory_names: set[str]) -> PurePath | None:
    """Return the part of a recorded path below the slot, or None if the path leads to no slot of that name."""
    parts = recorded.parts
    for number, (parent, name) in enumerate(pairwise(parts)):
        if parent in directory_names and name == slot_name and ".." not in parts[number + 2 :]:
            return PurePath(*parts[number + 2 :]) if parts[number + 2 :] else None
    return None
