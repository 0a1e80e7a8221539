"""Untracked files that are copied into a slot, and the marks that say whether its set-up or tests have completed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.runner import Git
from liza.repo.slots import submodules
from liza.rules.errors import Refused, UsageError
from liza.rules.model import Config
from liza.system import atomic

_NEVER_COPIED = {".git", ".liza", ".worktrees"}
# Files in the git directory of a slot: digest of the last set-up; tests that have started and not passed.
_SETUP_MARK = "liza-setup"
_TESTS_MARK = "liza-unproved"


def copy_files(root: Path, git: Git, patterns: Sequence[str]) -> tuple[str, ...]:
    """Copy files of ``root`` that match ``patterns`` (relative globs) into the slot of ``git``. Return their names.

    Tracked and identical files are skipped. Raises UsageError for a pattern that leaves the root, Refused if a link
    leads out of the slot, OSError.
    """
    import shutil

    names = sorted({name for pattern in patterns for name in _find_matches(root, pattern)})
    tracked = set(git.names("ls-files", "-z")) if names else set()
    slot = git.directory
    copied: list[str] = []
    for name in names:
        source, target = root / name, slot / name
        if name in tracked or _has_equal_content(source, target):
            continue
        _make_parents(slot, target)
        with source.open("rb") as file, atomic.replacing(target, source.stat().st_mode & 0o777, sync=False) as copy:
            shutil.copyfileobj(file, copy)
        shutil.copystat(source, target)
        copied.append(name)
    return tuple(copied)


def bring(root: Path, git: Git, config: Config) -> bool:
    """Copy the files of ``config.sandbox_copy`` into the slot of ``git``. Return whether its set-up is due.

    Raises what ``copy_files`` and ``is_setup_due`` raise.
    """
    copy_files(root, git, config.sandbox_copy)
    return is_setup_due(git, config.sandbox_setup, config.sandbox_setup_files)


def is_setup_due(git: Git, command: str | None, files: Sequence[str]) -> bool:
    """Return whether the set-up ``command`` must run: it never ran here, or it or one of ``files`` changed.

    ``files`` are relative to the slot. For a directory, such as a submodule, its entry in the commit counts. Raises
    GitFailed, OSError.
    """
    if not command:
        return False
    try:
        return _setup_mark_path(git).read_text() != _setup_digest(git, command, files)
    except FileNotFoundError:
        return True


def mark_setup_done(git: Git, command: str, files: Sequence[str]) -> None:
    """Record that the set-up has run for the current files. Raises GitFailed, OSError."""
    atomic.write(_setup_mark_path(git), _setup_digest(git, command, files).encode(), sync=False)


def clear_setup_mark(git: Git) -> None:
    """Make the set-up due again: its results were removed. Raises GitFailed, OSError."""
    _setup_mark_path(git).unlink(missing_ok=True)


def mark_tests_started(git: Git) -> None:
    """Record durably that tests have started in the slot and have not passed. Raises GitFailed, OSError."""
    path = _tests_mark_path(git)
    with path.open("w") as stream:
        stream.write("tests began here and have not passed\n")
        stream.flush()
        os.fsync(stream.fileno())


def mark_tests_passed(git: Git) -> None:
    """Record that the tests in the slot have passed. Raises GitFailed, OSError."""
    _tests_mark_path(git).unlink(missing_ok=True)


def is_clean_due(git: Git, when: str) -> bool:
    """Return whether ``config.merge_clean`` (``when``) requires a clean before tests. Raises GitFailed."""
    return when == "always" or (when == "after_red" and _tests_mark_path(git).exists())


def remove_ignored_files(git: Git, keep: Sequence[str]) -> None:
    """Remove untracked and ignored files from a slot, except names that match ``keep`` (as in ``.gitignore``).

    Raises GitFailed, OSError.
    """
    options = ("-ffdx", *(option for pattern in keep for option in ("-e", pattern)))
    submodules.empty(git, options)
    git.with_timeout(600).out("clean", "--quiet", *options)
    clear_setup_mark(git)


def empty_submodules(git: Git, *, remove_foreign: bool = True) -> None:
    """Reset the submodules of a slot to the commit. The set-up becomes due if one must be fetched again.

    ``remove_foreign``: as ``submodules.empty``. Raises GitFailed, OSError.
    """
    if not submodules.empty(git, remove_foreign=remove_foreign):
        clear_setup_mark(git)


def _tests_mark_path(git: Git) -> Path:
    return git_dirs(git)[0] / _TESTS_MARK


def _find_matches(root: Path, pattern: str) -> Iterator[str]:
    """Yield the names of files that match a pattern, without Liza's and git's own."""
    if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise UsageError(f"config.sandbox_copy has {pattern!r}, which is not a path inside the repository", "liza edit")
    for match in root.glob(pattern):
        paths = [match] if not match.is_dir() else [path for path in match.rglob("*") if not path.is_dir()]
        names = (path.relative_to(root) for path in paths if path.is_file())
        yield from (str(name) for name in names if not _NEVER_COPIED & set(name.parts))


def _has_equal_content(source: Path, target: Path) -> bool:
    if target.is_symlink() or not target.is_file() or source.stat().st_size != target.stat().st_size:
        return False
    return source.read_bytes() == target.read_bytes()


def _make_parents(slot: Path, target: Path) -> None:
    """Create the parent directories of ``target``. Raises Refused if a link leads out of the slot."""
    top = slot.resolve()
    path = slot
    for part in target.relative_to(slot).parts[:-1]:
        path = path / part
        if not path.resolve().is_relative_to(top):
            raise Refused(
                f"{path} leads out of the worktree {slot}: no file is copied there", shlex.join(["ls", "-l", str(path)])
            )
        path.mkdir(exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        raise Refused(
            f"{target} is a directory: a file of the same name cannot be copied", shlex.join(["ls", "-l", str(target)])
        )


def _setup_mark_path(git: Git) -> Path:
    return git_dirs(git)[0] / _SETUP_MARK


def _setup_digest(git: Git, command: str, files: Sequence[str]) -> str:
    """Return a digest of the command, the files, and the commits of submodules. An absent file counts as absent."""
    import hashlib  # slow to import, and most commands that load this module need none

    digest = hashlib.sha256(command.encode())
    for name in sorted(set(files)):
        path = git.directory / name
        text = path.read_bytes() if path.is_file() else None
        if path.is_dir():
            text = git.run("rev-parse", "-q", "--verify", f"HEAD:{name}", codes=(0, 1, 128)).stdout
        digest.update(f"\0{name}\0{'absent' if text is None else len(text)}\0".encode() + (text or b""))
    return digest.hexdigest()
