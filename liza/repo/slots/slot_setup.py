"""What a slot needs besides the files of git: copies of untracked files, and a set-up that was run for them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.runner import Git
from liza.repo.slots import submodules
from liza.rules.errors import Refused, UsageError
from liza.rules.model import Config

_NEVER_COPIED = {".git", ".liza", ".worktrees"}
_SETUP_MARK = "liza-setup"
_TESTS_MARK = "liza-unproved"


def copy_files(root: Path, git: Git, patterns: Sequence[str]) -> tuple[str, ...]:
    """Copy files of ``root`` that match ``patterns`` (relative, as for glob) into the slot of ``git``; the names.

    A file that git tracks in the slot is left alone, an equal one too. Raises Usage for a pattern that leaves the
    root, Refused where a link would lead out of the slot, OSError.
    """
    wanted = sorted({name for pattern in patterns for name in _find_matches(root, pattern)})
    tracked = set(git.names("ls-files", "-z")) if wanted else set()
    slot = git.directory
    copied: list[str] = []
    for name in wanted:
        source, target = root / name, slot / name
        if name in tracked or _has_equal_content(source, target):
            continue
        _make_parents(slot, target)
        aside = target.with_name(f".{target.name[:200]}.{os.getpid()}")
        shutil.copy2(source, aside)
        aside.replace(target)
        copied.append(name)
    return tuple(copied)


def bring(root: Path, git: Git, config: Config) -> bool:
    """Copy into the slot of ``git`` what ``config.sandbox_copy`` names; return whether its set-up is due then.

    Raises what ``copy`` and ``setup_due`` raise.
    """
    copy_files(root, git, config.sandbox_copy)
    return is_setup_due(git, config.sandbox_setup, config.sandbox_setup_files)


def is_setup_due(git: Git, command: str | None, files: Sequence[str]) -> bool:
    """Whether the set-up ``command`` has to run in a slot: never run here, or it or one of ``files`` changed since.

    ``files`` are names relative to the slot; of a directory, such as a submodule, counts what the commit says of it.
    Raises GitFailed, OSError.
    """
    if not command:
        return False
    try:
        return _setup_mark_path(git).read_text() != _setup_digest(git, command, files)
    except FileNotFoundError:
        return True


def mark_setup_done(git: Git, command: str, files: Sequence[str]) -> None:
    """Note that the set-up was run for the files as they are. Raises GitFailed, OSError."""
    place = _setup_mark_path(git)
    aside = place.with_name(f"{_SETUP_MARK}.{os.getpid()}")
    aside.write_text(_setup_digest(git, command, files))
    aside.replace(place)


def clear_setup_mark(git: Git) -> None:
    """The set-up has to run again: what it made is gone. Raises GitFailed, OSError."""
    _setup_mark_path(git).unlink(missing_ok=True)


def mark_tests_started(git: Git) -> None:
    """Note, so that it outlives this process, that tests begin in the slot and have not passed. Raises GitFailed,
    OSError."""
    place = _tests_mark_path(git)
    with place.open("w") as stream:
        stream.write("tests began here and have not passed\n")
        stream.flush()
        os.fsync(stream.fileno())


def mark_tests_passed(git: Git) -> None:
    """The tests that began in the slot passed. Raises GitFailed, OSError."""
    _tests_mark_path(git).unlink(missing_ok=True)


def is_clean_due(git: Git, when: str) -> bool:
    """Whether ignored files have to go before tests: ``when`` is ``config.merge_clean``. Raises GitFailed."""
    return when == "always" or (when == "after_red" and _tests_mark_path(git).exists())


def remove_ignored_files(git: Git, keep: Sequence[str]) -> None:
    """Remove untracked and ignored files of a slot, but for names that match ``keep``, as in ``.gitignore``.

    Raises GitFailed.
    """
    options = ("-ffdx", *(word for pattern in keep for word in ("-e", pattern)))
    submodules.empty(git, options)
    git.with_timeout(600).out("clean", "--quiet", *options)
    clear_setup_mark(git)


def empty_submodules(git: Git) -> None:
    """Have the submodules of a slot as the commit has them; the set-up is due where it has to fetch one again.

    Raises GitFailed, OSError.
    """
    if not submodules.empty(git):
        clear_setup_mark(git)


def _tests_mark_path(git: Git) -> Path:
    return git_dirs(git)[0] / _TESTS_MARK


def _find_matches(root: Path, pattern: str) -> Iterator[str]:
    if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise UsageError(f"sandbox_copy has {pattern!r}, which is no name inside the repository", "liza edit")
    for found in root.glob(pattern):
        places = [found] if not found.is_dir() else [path for path in found.rglob("*") if not path.is_dir()]
        names = (path.relative_to(root) for path in places if path.is_file())
        yield from (str(name) for name in names if not _NEVER_COPIED & set(name.parts))


def _has_equal_content(source: Path, target: Path) -> bool:
    if target.is_symlink() or not target.is_file() or source.stat().st_size != target.stat().st_size:
        return False
    return source.read_bytes() == target.read_bytes()


def _make_parents(slot: Path, target: Path) -> None:
    """Make the directories of ``target``, through no link that leads out of the slot."""
    top = slot.resolve()
    place = slot
    for part in target.relative_to(slot).parts[:-1]:
        place = place / part
        if not place.resolve().is_relative_to(top):
            raise Refused(f"{place} leads out of the work tree {slot}, so nothing is copied there", f"ls -l {place}")
        place.mkdir(exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        raise Refused(f"{target} is a directory, and a file of that name was to be copied", f"ls -l {target}")


def _setup_mark_path(git: Git) -> Path:
    return git_dirs(git)[0] / _SETUP_MARK


def _setup_digest(git: Git, command: str, files: Sequence[str]) -> str:
    """A digest of the command, of each file, and of the commit of each submodule; what is not there counts as that."""
    whole = hashlib.sha256(command.encode())
    for name in sorted(set(files)):
        path = git.directory / name
        text = path.read_bytes() if path.is_file() else None
        if path.is_dir():
            text = git.run("rev-parse", "-q", "--verify", f"HEAD:{name}", codes=(0, 1, 128)).stdout
        whole.update(f"\0{name}\0{'absent' if text is None else len(text)}\0".encode() + (text or b""))
    return whole.hexdigest()
