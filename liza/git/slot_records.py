"""git's records of a slot: its directory, its state and its owner file.

Files inside the slot are not trusted: agents can write them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from liza.git.git_config import list_worktrees, read_gitfile, recorded_path, records_directory
from liza.git.runner import Git
from liza.model.errors import GitFailed, NotRegularFile, SharedPathBlocked
from liza.model.paths import TASK_LINKS, Paths
from liza.model.value_classes import Value, decodable
from liza.system import atomic, crash_points, files, untrusted_files

_OWNER_FILE = "liza"
_LAST_RUN_FILE = "liza-last"
_TASK_HEAD = "ref: refs/heads/task/"
# Lock files that a killed git leaves in the git directory of a worktree.
_LOCK_FILES = ("index.lock", "HEAD.lock", "MERGE_HEAD.lock", "config.worktree.lock")
_WORKTREE_SETTING = re.compile(rb"(?im)(?:^|\])[ \t]*worktree(?:config)?[ \t]*(?:=|$)")


class SlotOwner(Value):
    """Owner of a slot: the content of the file ``liza`` in the slot's git directory.

    ``commit`` is the start commit, or the commit of a detached slot. ``salvage`` is the ref that has yet to be
    restored. ``done`` says that finishing has completed. ``before`` is the previous owner, who gets the slot back if
    the claim is undone.
    """

    task: str
    run: str
    commit: str | None = None
    salvage: str | None = None
    done: bool = False
    before: SlotOwner | None = None


def content_owner(owner: SlotOwner | None) -> SlotOwner | None:
    """Return whose files a slot has, or None if that is unknown.

    Until a claim has emptied the slot they are those of the owner before. Until it is finished they are unknown: a part
    of what the salvage of the claim restores.
    """
    return owner if owner is None or owner.done else owner.before


def find_git_dir(slot: Path, common: Path) -> Path | None:
    """Return the git directory of the worktree at ``slot``, as recorded in the shared git directory, or None."""
    # git records the resolved path of the parent directory; the last component is not resolved.
    gitfile = slot.parent.resolve() / slot.name / ".git"
    own_record = records_directory(common) / slot.name
    if recorded_path(own_record) == gitfile:
        return own_record
    return next((record for record, path in list_worktrees(common).items() if path == gitfile), None)


def refuse_links(*paths: Path) -> None:
    """Raise SharedPathBlocked if a slot or the slots directory is a symbolic link: git would create the slot
    elsewhere.
    """
    for path in paths:
        if path.is_symlink():
            message = f"{path} is a link; worktrees are created in real directories only"
            raise SharedPathBlocked(message, shlex.join(["rm", str(path)]))


def is_half_made(git_dir: Path) -> bool:
    """Return whether ``git worktree add`` was killed: git keeps this lock file until it has finished."""
    try:
        return untrusted_files.read_record(git_dir / "locked").strip() == b"initializing"
    except (FileNotFoundError, NotRegularFile):
        return False


def repair_gitfile(slot: Path, git_dir: Path) -> None:
    """Make ``slot/.git`` a regular file that points to ``git_dir``, whatever an agent made of it.

    Raises GitFailed if it is a directory: that may be a repository that was not saved.
    """
    _name_worktree(slot, git_dir)
    path = slot / ".git"
    line = f"gitdir: {git_dir}\n"
    if path.is_symlink() or not path.is_dir():
        if not points_to(path, git_dir):
            atomic.write(path, os.fsencode(line), 0o644, sync=False)
        return
    raise GitFailed(
        f"{path} is a directory: the slot was turned into a repository",
        shlex.join(["mv", str(path), f"{slot}.git-saved"]),
    )


def _name_worktree(slot: Path, git_dir: Path) -> None:
    """Name the slot as the worktree of its own git directory, if the repository names another one for all.

    A submodule and a separate git directory have ``core.worktree``. With ``extensions.worktreeConfig``, which other
    tools switch on at any time, it counts in every worktree: each git in the slot then works on the person's checkout.
    Raises OSError.
    """
    with suppress(FileNotFoundError, NotRegularFile):
        if not _WORKTREE_SETTING.search(untrusted_files.read_record(git_dir.parent.parent / "config")):
            return
        path, text = git_dir / "config.worktree", b""
        with suppress(FileNotFoundError, NotRegularFile):
            text = untrusted_files.read_record(path)
        value = str(slot).replace("\\", "\\\\").replace('"', '\\"')
        section = os.fsencode(f'[core]\n\tworktree = "{value}"\n\tbare = false\n')
        if not text.endswith(section):
            # The last value counts.
            atomic.write(path, text.replace(section, b"") + section, 0o644, sync=False)


def points_to(gitfile: Path, git_dir: Path) -> bool:
    """Return whether a file ``.git`` names the git directory ``git_dir``. Raises OSError."""
    path = read_gitfile(gitfile)
    return path is not None and Path(os.path.normpath(path)) == git_dir


def is_worktree_of(slot: Path, common: Path) -> bool:
    """Return whether the ``.git`` file in ``slot`` is that of a worktree of the repository ``common``."""
    git_dir = read_gitfile(slot / ".git")
    return git_dir is not None and Path(os.path.normpath(git_dir)).parent == records_directory(common)


def remove_slot_locks(git_dir: Path) -> None:
    """Remove the lock files that a killed git left in a slot.

    The caller has proved that no session uses the slot.
    """
    for name in _LOCK_FILES:
        (git_dir / name).unlink(missing_ok=True)


def git_dirs_below(directory: Path, common: Path) -> dict[str, Path]:
    """Return the git directories of all worktrees directly below ``directory``, existing or not, by slot name."""
    real = directory.resolve()
    records = list_worktrees(common).items()
    return {path.parent.name: git_dir for git_dir, path in records if path.parent.parent == real}


def find_slot_name(path: Path, directory: Path) -> str | None:
    """Return the name of the slot at ``path``, or None if it is not directly in ``directory``."""
    return path.name if path.parent.resolve() == directory.resolve() else None


def remove_half_made(git: Git, slot: Path, git_dir: Path) -> None:
    """Remove what a killed ``git worktree add`` left. No agent ever got it, so it holds no work."""
    git.run("worktree", "remove", "--force", "--force", str(slot))
    # If it was killed very early, git does not recognise the rest as a worktree.
    for path in (slot, git_dir):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


def link_task(paths: Paths, task: str, slot: str) -> None:
    """Create the link of a task to its slot atomically. It is for people. Raises GitFailed, SharedPathBlocked,
    OSError.
    """
    if is_linked(paths, task, slot):
        return
    path = paths.task_link(task)
    if path.exists() and not path.is_symlink():
        raise GitFailed(f"{path} is in the way of a link to the slot", shlex.join(["mv", str(path), f"{path}.saved"]))
    refuse_links(path.parent)
    path.parent.mkdir(exist_ok=True)
    # Relative: it survives a move of the slots directory.
    atomic.write_link(path, f"../{slot}", "link")


def is_linked(paths: Paths, task: str, slot: str) -> bool:
    """Return whether the link of a task points to ``slot``: then a claim of the task was finished there."""
    path = paths.task_link(task)
    return path.is_symlink() and not path.parent.is_symlink() and str(path.readlink()) == f"../{slot}"


def unlink_task(paths: Paths, task: str, slot: str) -> None:
    """Remove the link of a task if it points to ``slot``. Raises OSError."""
    if is_linked(paths, task, slot):
        paths.task_link(task).unlink()


def unlink_others(paths: Paths, task: str, slot: str) -> None:
    """Remove the links of other tasks to ``slot``. Raises OSError."""
    for path, target in list_links(paths):
        if target == slot and path.name != task:
            path.unlink(missing_ok=True)


def list_links(paths: Paths) -> tuple[tuple[Path, str], ...]:
    """Return the links to slots, each with the name of its slot. Raises OSError."""
    return tuple((entry, slot) for entry, slot in _iter_links(paths.task_links) if not entry.name.startswith("."))


def is_links_directory(path: Path) -> bool:
    """Return whether a directory has the name of that of the links and contains nothing else. Raises OSError."""
    return path.name == TASK_LINKS and path.is_dir() and len(list(path.iterdir())) == len(list(_iter_links(path)))


def remove_links(paths: Paths) -> None:
    """Remove the links to slots, and their directory if it is empty then. Raises OSError."""
    for entry, _ in _iter_links(paths.task_links):
        entry.unlink()
    with suppress(OSError):
        paths.task_links.rmdir()


def _iter_links(directory: Path) -> Iterator[tuple[Path, str]]:
    for entry in sorted(directory.iterdir()) if directory.is_dir() and not directory.is_symlink() else ():
        if entry.is_symlink():
            parent, _, slot = str(entry.readlink()).rpartition("/")
            if parent == "..":
                yield entry, slot


def read_owner(git_dir: Path) -> SlotOwner | None:
    """Return the owner of a slot, or None. Raises GitFailed if the owner file cannot be parsed."""
    try:
        owner = msgspec.convert(json.loads(untrusted_files.read_record(git_dir / _OWNER_FILE)), decodable(SlotOwner))
        refs = [name for entry in (owner, owner.before) if entry for name in (entry.commit, entry.salvage) if name]
        if any(name.startswith("-") for name in refs):
            raise ValueError("commit or salvage is not a valid name")
        return owner
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError, NotRegularFile) as error:
        raise GitFailed(f"{git_dir / _OWNER_FILE} cannot be read: {error}", "liza doctor --fix") from error


def slot_owner(slot: Path, common: Path) -> tuple[str, str] | None:
    """Return the task and run that own a slot; None if it has no owner.

    For a reviewer or planner the task is the slot's name. ``common``: the git directory that all worktrees share.
    """
    git_dir = find_git_dir(slot, common)
    owner = read_owner(git_dir) if git_dir is not None else None
    return None if owner is None else (owner.task, owner.run)


def has_owner(git_dir: Path) -> bool:
    """Return whether a record has an owner file. Only worktrees of Liza have one."""
    return os.path.lexists(git_dir / _OWNER_FILE)


def find_owner(git_dir: Path) -> SlotOwner | None:
    """Return the owner as ``read_owner`` does; if the file is missing or invalid, derive it from the branch.

    Only for callers that save the content of the slot before they change it.
    """
    try:
        owner = read_owner(git_dir)
    except GitFailed:
        owner = None
    head = untrusted_files.read_record(git_dir / "HEAD").decode(errors="replace").strip()
    if owner is not None or not head.startswith(_TASK_HEAD):
        return owner
    return SlotOwner(head.removeprefix(_TASK_HEAD), "unknown", done=True)


class LastUse(Value):
    """The run that used a slot last, and when its use began, in seconds since the epoch."""

    run: str
    since: float

    @property
    def agent(self) -> str | None:
        """The agent of the run; None for a merger."""
        agent, dot, number = self.run.rpartition(".")
        return agent if dot and number.isdecimal() else None


def read_last_use(git_dir: Path) -> LastUse | None:
    """Return who used a slot last; None if that was not recorded. Raises OSError."""
    path = git_dir / _LAST_RUN_FILE
    try:
        run = untrusted_files.read_record(path).decode(errors="replace").strip()
        return LastUse(run, path.stat().st_mtime)
    except (FileNotFoundError, NotRegularFile):
        return None


def write_last_run(git_dir: Path, run: str) -> None:
    """Record the run that uses a slot from now on. It stays when the slot has no owner any more. Raises OSError."""
    atomic.write(git_dir / _LAST_RUN_FILE, f"{run}\n".encode(), sync=False)


def recreate_record(slot: Path, common: Path, commit: str) -> Path:
    """Recreate git's record of a worktree, with HEAD at ``commit``. Its files are not changed.

    Return the new git directory. It is created atomically by a rename. Raises OSError.
    """
    temporary = common / f"liza-{slot.name}.{os.getpid()}"
    temporary.mkdir(exist_ok=True)
    gitfile = slot.parent.resolve() / slot.name / ".git"
    for name, text in (("HEAD", commit), ("commondir", "../.."), ("gitdir", gitfile)):
        (temporary / name).write_bytes(os.fsencode(f"{text}\n"))
    path = records_directory(common) / slot.name
    number = 1
    while os.path.lexists(path):
        # A person has a worktree of the same name.
        path = path.with_name(f"{slot.name}-{(number := number + 1)}")
    path.parent.mkdir(exist_ok=True)
    temporary.rename(path)
    crash_points.point("renamed", "records")
    return path


def write_owner(git_dir: Path, owner: SlotOwner | None) -> None:
    """Write the owner file atomically, or remove it if ``owner`` is None.

    A directory in its place is renamed, not deleted.
    """
    path = git_dir / _OWNER_FILE
    if path.is_dir() and not path.is_symlink():
        path.rename(files.find_free_path(path.with_name(f"{_OWNER_FILE}.odd")))
    if owner is None:
        path.unlink(missing_ok=True)
        crash_points.point("unlinked", "owner")
        return
    atomic.write(path, f"{json.dumps(msgspec.to_builtins(owner), indent=1)}\n".encode(), label="owner")
