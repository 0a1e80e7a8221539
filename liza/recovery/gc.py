"""gc: free space below `.liza`."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import stat
import time
from collections.abc import Container, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.model.errors import LizaError
from liza.model.model import FINAL_STATUSES, State
from liza.model.paths import Paths
from liza.programs.session import run_archive
from liza.recovery import run_cleanup
from liza.system import atomic, crash_points, processes, untrusted_files
from liza.text.formats import count_noun


def gc(crew: Crew, dry_run: bool = False) -> Result:
    """Compress old run directories and logs, and delete files of crashed writers. Raises LizaError.

    ``dry_run``: change nothing; the sizes are those before the compression.
    """
    require_person(crew, planner=False)
    freed: list[Garbage] = []
    failed: list[str] = []
    for candidate in find_garbage(crew):
        try:
            done = candidate if dry_run else free(crew, candidate)
        except (LizaError, OSError) as error:
            # One that cannot be freed does not keep the others.
            failed.append(f"{candidate.path}: {error}")
            continue
        if done is not None:
            freed.append(done)
    rows = [
        {"kind": item.kind.value, "name": str(item.path.relative_to(crew.paths.root)), "bytes": item.size}
        for item in freed
    ]
    total = sum(item.size for item in freed)
    details = {"dry_run": dry_run, "freed_bytes": total, "freed": rows, "failed": failed}
    lines = [f"{row['bytes']:>12,}  {row['name']}" for row in rows]
    verb = "can be freed: their size now is" if dry_run else "freed:"
    lines.append(f"{count_noun(len(rows), 'item')} {verb} {count_noun(total, 'byte')}" if rows else "nothing to free")
    lines += [f"not freed: {line}" for line in failed]
    result = "changed" if rows and not dry_run else "unchanged"
    return Result(result, None, None, "liza gc" if rows and dry_run else "liza status", details, "\n".join(lines))


OLD_AGE = 24 * 3600.0
"""Seconds since the last write after which a log or a temporary file is old: its writer may be in a container, where
its process cannot be seen."""
_MIN_LOG_SIZE = 4096  # bytes; a file system stores less in one block, so that compressing it would free nothing
_LOG_ARCHIVE = "archive"
_TASK_LOG = re.compile(r"merge-(?P<task>.+)\.log")
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.([0-9]{1,9})")


class GarbageKind(StrEnum):
    RUN = "run directory"
    LOG = "log"
    TEMPORARY = "temporary file"


class Garbage(msgspec.Struct, frozen=True):
    """Something to free: its path below the repository, and the bytes that this frees (before: its size)."""

    kind: GarbageKind
    path: Path
    size: int


def find_garbage(crew: Crew) -> tuple[Garbage, ...]:
    """Return what can be freed now, with its present size. Raises LizaError, OSError."""
    state = crew.board.read()
    runs = [
        Garbage(GarbageKind.RUN, crew.paths.run(run), _tree_size(crew.paths.run(run)))
        for agent in state.agents
        if not crew.is_supervised_here(agent)
        for run in run_cleanup.find_old_runs(crew, agent)
    ]
    return (*runs, *_find_logs(crew.paths, state), *_find_temporary_files(crew.paths))


def free(crew: Crew, garbage: Garbage) -> Garbage | None:
    """Free something and return it with the bytes that were freed; None if it is in use now or is gone.

    Raises LizaError, OSError.
    """
    if garbage.kind is GarbageKind.RUN:
        run = garbage.path.name
        target = run_archive.archive_path(crew.paths, run)
        # After a crash a run has its archive and its directory.
        former = target.stat().st_size if target.exists() else 0
        run_archive.archive_run(crew.run_dir(run))
        return _with_size(garbage, garbage.size + former - target.stat().st_size)
    if garbage.kind is GarbageKind.LOG:
        return _compress_log(crew.paths, garbage)
    garbage.path.unlink(missing_ok=True)
    crash_points.point("unlinked", "garbage")
    return garbage


def _with_size(garbage: Garbage, size: int) -> Garbage:
    return msgspec.structs.replace(garbage, size=max(0, size))


def _find_logs(paths: Paths, state: State) -> Iterator[Garbage]:
    """Yield the logs of merges of closed tasks that no process has open, and that were not written for a day.

    Not a log that is too small to free anything.
    """
    still_open = {task.id for task in state.tasks if task.status not in FINAL_STATUSES}
    opened = processes.find_open_files(paths.logs)
    for path in _entries(paths.logs) if opened is not None else ():
        match = _TASK_LOG.fullmatch(path.name)
        if match is None or _is_of_task(match["task"], still_open) or str(path) in (opened or ()):
            continue
        if _is_old_file(path) and (size := path.lstat().st_size) > _MIN_LOG_SIZE:
            yield Garbage(GarbageKind.LOG, path, size)


def _is_of_task(name: str, tasks: Container[str]) -> bool:
    """Return whether a log is of one of the tasks: ``merge-TASK.log``, or ``merge-TASK-GATE.log``."""
    words = name.split("-")
    return any("-".join(words[:count]) in tasks for count in range(1, len(words) + 1))


def _compress_log(paths: Paths, garbage: Garbage) -> Garbage | None:
    """Compress a log into the archive and delete it. The time in the name keeps logs of several merges apart."""
    path = garbage.path
    archive = path.parent / _LOG_ARCHIVE
    atomic.make_directory(paths.root, archive)
    if archive.is_symlink():
        raise NotADirectoryError(f"{archive} is a link")
    try:
        with untrusted_files.open_to_read(path) as source:
            before = os.fstat(source.fileno())
            target = archive / f"{path.stem}-{int(before.st_mtime)}.log.gz"
            with atomic.replacing(target, label="log-archive") as file, gzip.GzipFile("", "wb", fileobj=file) as packed:
                shutil.copyfileobj(source, packed)
        now = path.lstat()
    except FileNotFoundError:
        return None
    if (now.st_ino, now.st_size, now.st_mtime_ns) != (before.st_ino, before.st_size, before.st_mtime_ns):
        # A new merge writes to it. What was compressed stays; the log does too.
        return None
    path.unlink()
    crash_points.point("unlinked", "log")
    return _with_size(garbage, before.st_size - target.stat().st_size)


def _find_temporary_files(paths: Paths) -> Iterator[Garbage]:
    """Yield files that `atomic` began and whose writer died before the rename."""
    directories = [paths.liza, paths.tx, paths.logs, paths.locks]
    agents = _entries(paths.runs)
    directories += [*agents, *(run for agent in agents for run in _entries(agent))]
    for directory in directories:
        for path in _entries(directory):
            match = _TEMPORARY.fullmatch(path.name)
            if match is not None and _is_old_file(path) and not _is_alive(int(match[1])):
                yield Garbage(GarbageKind.TEMPORARY, path, path.lstat().st_size)


def _is_old_file(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > OLD_AGE


def _entries(directory: Path) -> list[Path]:
    """Return what is in a directory; nothing for a link: what is behind it is not Liza's."""
    if directory.is_symlink():
        return []
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _tree_size(directory: Path) -> int:
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                total += (Path(parent) / name).lstat().st_size
    return total
