"""Archives of run directories: a compressed tar file, complete before the directory is removed."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from liza.programs.session.run_directory import RunDir
from liza.rules.paths import Paths, agent_of
from liza.system import atomic

ARCHIVE_DIRECTORY = "archive"


def archive_path(paths: Paths, run: str) -> Path:
    """Path of the archive of a run, whether it exists or not."""
    return paths.runs / agent_of(run) / ARCHIVE_DIRECTORY / f"{run}.tar.gz"


def archive_run(directory: RunDir) -> None:
    """Write a run directory to its archive and remove it. Idempotent: an existing archive is complete.

    Only for a session that is over and concluded. Symbolic links are archived as links. Raises OSError.
    """
    target = archive_path(directory.paths, directory.run)
    atomic.make_directory(directory.paths.root, target.parent)
    if target.parent.is_symlink():
        raise NotADirectoryError(f"{target.parent} is a link")
    if not target.exists():
        _write_archive(directory, target)
    shutil.rmtree(directory.path)


def _write_archive(directory: RunDir, target: Path) -> None:
    with (
        atomic.replacing(target, label="archive") as file,
        tarfile.open(fileobj=file, mode="w:gz", dereference=False) as tar,
    ):
        tar.add(directory.path, arcname=directory.run)
