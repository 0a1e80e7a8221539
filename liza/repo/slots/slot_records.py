"""What git keeps about a slot: where, in which state, and whose it is. Nothing here believes what lies in the slot."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from liza.repo import stale_locks
from liza.repo.runner import Git
from liza.rules.errors import GitFailed, SharedPathBlocked
from liza.rules.paths import Paths
from liza.system import crash_points, small_file

_OWNER_FILE = "liza"
_MAX_GITFILE = 8192  # bytes in a file `.git`: a path
_COMMON_DIR = b"../.."
"""Where the shared git directory lies, seen from that of a work tree."""
_TASK_HEAD = "ref: refs/heads/task/"
_LOCK_FILES = ("index.lock", "HEAD.lock", "MERGE_HEAD.lock", "config.worktree.lock")


@dataclass(frozen=True)
class SlotOwner:
    """Who has a slot: the file ``liza`` in its git directory.

    ``commit`` is where work starts, or where a detached slot was put. ``salvage`` is what has yet to be laid back,
    ``done`` that finishing was carried through, ``before`` the owner that a claim which is undone gives the slot
    back to.
    """

    task: str
    run: str
    commit: str | None = None
    salvage: str | None = None
    done: bool = False
    before: SlotOwner | None = None


def find_git_dir(slot: Path, common: Path) -> Path | None:
    """The git directory of the work tree at ``slot``, found by what the repository itself says; None without one."""
    # git notes the real place of the parent; the slot itself is never followed.
    wanted = slot.parent.resolve() / slot.name / ".git"
    places = common / "worktrees"
    first = places / slot.name
    others = sorted(places.iterdir()) if places.is_dir() else []
    return next((place for place in (first, *others) if recorded_path(place) == wanted), None)


def refuse_links(slot: Path) -> None:
    """Raises PlaceBroken where a slot, or a directory that it lies in, is a link: it would be made somewhere else."""
    refuse_linked_directory(slot.parent)
    _refuse_link(slot)


def refuse_linked_directory(place: Path) -> None:
    """Raises PlaceBroken where the directory of the slots, or the one that it lies in, is a link."""
    for one in (place.parent, place):
        _refuse_link(one)


def _refuse_link(place: Path) -> None:
    if place.is_symlink():
        raise SharedPathBlocked(f"{place} is a link, and worktrees are made in real directories only", f"rm {place}")


def is_half_made(admin: Path) -> bool:
    """Whether ``git worktree add`` was killed before it ended: it holds this lock until then."""
    try:
        return small_file.read_small_file(admin / "locked").strip() == b"initializing"
    except (FileNotFoundError, GitFailed):
        return False


def repair_gitfile(slot: Path, admin: Path) -> None:
    """Have ``slot/.git`` be the file that leads to ``admin``, whatever an agent made of it.

    Raises GitFailed where it is a directory, which may hold a repository that was not saved.
    """
    place = slot / ".git"
    line = f"gitdir: {admin}\n"
    if place.is_symlink() or not place.is_dir():
        if place.is_symlink() or not place.is_file() or _read_gitfile(place) != admin:
            aside = slot / f".git.{os.getpid()}"
            aside.write_bytes(os.fsencode(line))
            aside.replace(place)
        return
    raise GitFailed(f"{place} is a directory: somebody made a repository of the slot", f"mv {place} {slot}.git-saved")


def is_worktree_of(slot: Path, common: Path) -> bool:
    """Whether the ``.git`` in a directory is the file of a worktree of the repository with this git directory."""
    place = slot / ".git"
    if place.is_symlink() or not place.is_file() or place.stat().st_size > _MAX_GITFILE:
        return False
    admin = _read_gitfile(place)
    return admin is not None and admin.parent == common / "worktrees"


def repair_commondir(admin: Path) -> None:
    """Have the git directory of a slot say that its repository is the one it lies in, whatever an agent made of it.

    Raises GitFailed where a directory is in the way.
    """
    place = admin / "commondir"
    if (
        place.is_symlink()
        or not place.is_file()
        or place.stat().st_size > 100
        or place.read_bytes().strip() != _COMMON_DIR
    ):
        if place.is_dir() and not place.is_symlink():
            raise GitFailed(f"{place} is a directory", f"mv {place} {place}.saved")
        aside = admin / f"commondir.{os.getpid()}"
        aside.write_bytes(_COMMON_DIR + b"\n")
        aside.replace(place)


def remove_slot_locks(admin: Path) -> None:
    """Remove what a killed git left locked. Only for who has proved that no session lives in the slot.

    Raises GitFailed where something else stands there.
    """
    for name in _LOCK_FILES:
        stale_locks.refuse_directory_at_lock(admin / name)
        (admin / name).unlink(missing_ok=True)


def git_dirs_below(place: Path, common: Path) -> dict[str, Path]:
    """The git directories of all work trees directly below ``place``, there or not, by the name of the slot."""
    real = place.resolve()
    admins = common / "worktrees"
    found = ((recorded_path(admin), admin) for admin in (sorted(admins.iterdir()) if admins.is_dir() else ()))
    return {path.parent.name: admin for path, admin in found if path is not None and path.parent.parent == real}


def find_slot_name(path: Path, place: Path) -> str | None:
    """The slot that ``path`` is the directory of, if it lies in ``place``."""
    return path.name if path.parent.resolve() == place.resolve() else None


def remove_half_made(git: Git, slot: Path, admin: Path) -> None:
    """Remove what a killed ``git worktree add`` left: it was given to nobody, so nothing of anybody is in it."""
    git.run("worktree", "remove", "--force", "--force", str(slot))
    # Killed early enough, there is too little of it for git to recognise.
    for left in (slot, admin):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)


def link_task(paths: Paths, task: str, slot: str) -> None:
    """Make ``.worktrees/<task>``, for people: always there or absent, never half. Raises GitFailed, OSError."""
    place, target = paths.task_link(task), paths.link_target(slot)
    if place.is_symlink() and str(place.readlink()) == target:
        return
    if place.exists() and not place.is_symlink():
        raise GitFailed(f"{place} is in the way of a link to the slot", f"mv {place} {place}.saved")
    paths.worktrees.mkdir(exist_ok=True)
    aside = place.with_name(f".{place.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    crash_points.point("written", "link")
    aside.replace(place)
    crash_points.point("renamed", "link")


def unlink_task(paths: Paths, task: str, slot: str) -> None:
    """Remove the link of a task if it leads to ``slot``. Raises OSError."""
    place = paths.task_link(task)
    if place.is_symlink() and str(place.readlink()) == paths.link_target(slot):
        place.unlink()


def list_links(paths: Paths) -> tuple[tuple[Path, str], ...]:
    """The links to slots, each with the slot that it leads to. Raises OSError."""
    return tuple((entry, slot) for entry, slot in _iter_links(paths) if not entry.name.startswith("."))


def remove_links(paths: Paths) -> None:
    """Remove the links to slots, and ``.worktrees`` if nothing else is in it. Raises OSError."""
    for entry, _ in _iter_links(paths):
        entry.unlink()
    # Whatever else is there is not ours to remove.
    for directory in (paths.worktrees / ".slots", paths.worktrees):
        with suppress(OSError):
            directory.rmdir()


def retarget_links(paths: Paths, olds: set[Path]) -> None:
    """Turn the links that lead to slots in one of ``olds`` to the slots of the same name here. Raises OSError."""
    for entry in sorted(paths.worktrees.iterdir()) if paths.worktrees.is_dir() else ():
        target = entry.readlink() if entry.is_symlink() else None
        if target is not None and target.parent in olds and not entry.name.startswith("."):
            link_task(paths, entry.name, target.name)


def _iter_links(paths: Paths) -> Iterator[tuple[Path, str]]:
    places = {os.path.dirname(paths.link_target("x")), ".slots"}  # noqa: PTH120 the text of a link, which may be relative
    for entry in sorted(paths.worktrees.iterdir()) if paths.worktrees.is_dir() else ():
        if entry.is_symlink():
            place, _, slot = str(entry.readlink()).rpartition("/")
            if place in places:
                yield entry, slot


def read_owner(admin: Path) -> SlotOwner | None:
    """Who has the slot; None where nobody has. Raises GitFailed where the file cannot be understood."""
    try:
        return _owner_from_json(json.loads(small_file.read_small_file(admin / _OWNER_FILE)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError, GitFailed) as error:
        raise GitFailed(f"{admin / _OWNER_FILE} cannot be read: {error}", "liza doctor --fix") from error


def has_owner(admin: Path) -> bool:
    """Whether the record is of a slot that somebody has: no other worktree has such a file."""
    return os.path.lexists(admin / _OWNER_FILE)


def find_owner(admin: Path) -> SlotOwner | None:
    """As ``read_owner``; where the file is gone or cannot be understood, the branch in the slot tells whose it is.

    For who saves all that lies in the slot before anything is done with it.
    """
    try:
        known = read_owner(admin)
    except GitFailed:
        known = None
    head = small_file.read_small_file(admin / "HEAD").decode(errors="replace").strip()
    if known is not None or not head.startswith(_TASK_HEAD):
        return known
    return SlotOwner(head.removeprefix(_TASK_HEAD), "unknown", done=True)


def recreate_record(slot: Path, common: Path, commit: str) -> Path:
    """Have git know a work tree again whose records are gone, standing at ``commit``; its files stay as they are.

    The new git directory, there whole or not at all. Raises OSError.
    """
    aside = common / f"liza-{slot.name}.{os.getpid()}"
    aside.mkdir(exist_ok=True)
    leads = slot.parent.resolve() / slot.name / ".git"
    for name, text in (("HEAD", commit), ("commondir", "../.."), ("gitdir", leads)):
        (aside / name).write_bytes(os.fsencode(f"{text}\n"))
    place = common / "worktrees" / slot.name
    number = 1
    while os.path.lexists(place):
        # Another work tree of that name, which a person made.
        place = place.with_name(f"{slot.name}-{(number := number + 1)}")
    place.parent.mkdir(exist_ok=True)
    aside.rename(place)
    crash_points.point("renamed", "records")
    return place


def write_owner(admin: Path, owner: SlotOwner | None) -> None:
    """Write aside and rename; None takes the file away. A directory in its place is kept under another name."""
    place = admin / _OWNER_FILE
    if place.is_dir() and not place.is_symlink():
        names = (place.with_name(f"{_OWNER_FILE}.odd{number or ''}") for number in count())
        place.rename(next(name for name in names if not os.path.lexists(name)))
    if owner is None:
        place.unlink(missing_ok=True)
        crash_points.point("unlinked", "owner")
        return
    aside = admin / f"{_OWNER_FILE}.{os.getpid()}"
    with aside.open("w") as stream:
        json.dump(_owner_to_json(owner), stream, indent=1)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    crash_points.point("synced", "owner")
    aside.replace(place)
    crash_points.point("renamed", "owner")


def _owner_to_json(owner: SlotOwner) -> dict[str, object]:
    words: dict[str, object] = {"task": owner.task, "run": owner.run, "done": owner.done}
    words |= {name: value for name in ("commit", "salvage") if (value := getattr(owner, name)) is not None}
    return words | ({"before": _owner_to_json(owner.before)} if owner.before else {})


def _owner_from_json(words: object) -> SlotOwner:
    if not isinstance(words, dict) or not all(isinstance(words.get(name), str) for name in ("task", "run")):
        raise ValueError("task and run are not both there")
    named = [words[name] for name in ("commit", "salvage") if words.get(name) is not None]
    if not all(isinstance(name, str) and not name.startswith("-") for name in named):
        raise ValueError("commit or salvage names none")
    before = words.get("before")
    return SlotOwner(
        words["task"],
        words["run"],
        words.get("commit"),
        words.get("salvage"),
        words.get("done") is True,
        None if before is None else _owner_from_json(before),
    )


def recorded_path(admin: Path) -> Path | None:
    """The ``.git`` of the worktree that a record leads to, there or not; None if the record has no path."""
    try:
        # Everybody's worktrees have a record here: a path is any bytes, and what is no file is no record to git either.
        text = os.fsdecode(small_file.read_small_file(admin / "gitdir")).removesuffix("\n")
    except (FileNotFoundError, NotADirectoryError, GitFailed):
        return None
    return Path(os.path.normpath(admin / text)) if text else None


def _read_gitfile(gitfile: Path) -> Path | None:
    text = os.fsdecode(gitfile.read_bytes()).removesuffix("\n")
    return Path(os.path.normpath(gitfile.parent / text[8:])) if text.startswith("gitdir: ") else None
