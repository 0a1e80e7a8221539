"""Lock files that a killed git left beside refs: every later git would stop at them for ever."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.runner import Git
from liza.rules.errors import SharedPathBlocked

_MIN_AGE = 1.0  # seconds; a git at work holds such a lock for milliseconds
_STALE_AFTER = 600.0  # seconds after which one is left wherever processes cannot be looked at
_PROC = Path("/proc")


def remove_stale_locks(git: Git, refs: Sequence[str]) -> tuple[str, ...]:
    """Remove the locks of ``refs``, of HEAD and of the packed refs that no living git can hold; their names.

    Raises GitFailed.
    """
    common = git_dirs(git)[1]
    places = [common / f"{name}.lock" for name in (*refs, "HEAD", "packed-refs")]
    places += common.glob("worktrees/*/HEAD.lock")
    return tuple(str(place) for place in places if os.path.lexists(place) and _remove_if_stale(place, common))


def is_directory_at_lock(place: Path) -> bool:
    """Whether something stands at the place of a lock that git never made: a directory. Only a person may remove it."""
    return place.is_dir() and not place.is_symlink()


def refuse_directory_at_lock(place: Path) -> None:
    """Raises GitFailed where something stands at the place of a lock that git never made."""
    if is_directory_at_lock(place):
        raise SharedPathBlocked(
            f"{place} is a directory, and stops every git that makes a lock there", removal_command(place)
        )


def removal_command(place: Path) -> str:
    """The command that removes what stands at the place of a lock."""
    return shlex.join(["rm", "-r", str(place)])


def _remove_if_stale(place: Path, common: Path) -> bool:
    """Remove one, once it is proved that nobody holds it; one that goes by itself meanwhile was held. What is no lock,
    or cannot be removed, stays: the git that it stops says so, and the others go on."""
    if is_directory_at_lock(place):
        return False
    began = time.monotonic()
    with suppress(FileNotFoundError, PermissionError):
        # A time in the future tells nothing: then it is how long it has been seen there.
        while (age := max(time.time() - place.lstat().st_mtime, time.monotonic() - began)) < _MIN_AGE:
            # How long it has stood there is the evidence, and no event tells that.
            time.sleep(max(0.02, min(0.1, _MIN_AGE - age)))
        before = place.lstat()
        if (age > _STALE_AFTER or not _is_git_running(common)) and place.lstat().st_ino == before.st_ino:
            place.unlink()
            return True
    return False


def _is_git_running(common: Path) -> bool:
    """Whether some git may be at work on this repository; true as well where that cannot be known."""
    return not _PROC.is_dir() or any(place is None or _is_in_repository(place, common) for place in _git_directories())


def _git_directories() -> Iterator[Path | None]:
    """Where the gits of this machine are at work; None for one that does not show it."""
    for entry in _PROC.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            if not entry.name.isdigit() or not (entry / "comm").read_text().startswith("git"):
                continue
            if (entry / "stat").read_text().rpartition(") ")[2][:1] in ("Z", "X"):
                continue
            try:
                yield (entry / "cwd").readlink()
            except PermissionError:
                yield None


def _is_in_repository(place: Path, common: Path) -> bool:
    """Whether a git with this current directory may work on the repository: in it, or in a work tree of it."""
    tops = [common, common.parent]
    for record in common.glob("worktrees/*/gitdir"):
        with suppress(OSError):
            tops.append(Path(os.path.normpath(record.parent / record.read_text().strip())).parent)
    return any(place.is_relative_to(top) for top in tops)
