"""Archives of run directories: a compressed tar file, complete before the directory is removed."""

from __future__ import annotations

import shlex
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from liza.model.errors import LizaError
from liza.model.paths import Paths, agent_of
from liza.model.value_classes import Value, decodable
from liza.programs.session.run_directory import RUN_FILE, RunDir, RunRecord
from liza.system import atomic, untrusted_files

ARCHIVE_DIRECTORY = "archive"
_MAX_RECORD = 64 << 10  # bytes


class OutputTail(Value):
    """End of a program's output: the bytes, the size of the whole output in bytes, seconds since the epoch of the last
    write.
    """

    data: bytes
    size: int
    changed: float


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


def read_output(archive: Path, run: str, most: int) -> OutputTail | None:
    """Return the last ``most`` bytes of the output of an archived run; None if the run had no output.

    Raises LizaError if the archive cannot be read.
    """
    with _open_member(archive, f"{run}/output.log") as member:
        if member is None:
            return None
        info, file = member
        file.seek(max(0, info.size - most))
        return OutputTail(file.read(most), info.size, float(info.mtime))


def read_record(archive: Path, run: str) -> RunRecord | None:
    """Return the record of an archived run; None if its archive has no record. Raises LizaError if it is damaged."""
    with _open_member(archive, f"{run}/{RUN_FILE}") as member:
        if member is None:
            return None
        return msgspec.json.decode(member[1].read(_MAX_RECORD), type=decodable(RunRecord))


@contextmanager
def _open_member(archive: Path, name: str) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]] | None]:
    try:
        with untrusted_files.open_to_read(archive) as packed, tarfile.open(fileobj=packed, mode="r:gz") as tar:
            info = next((member for member in tar if member.name == name and member.isreg()), None)
            file = tar.extractfile(info) if info is not None else None
            yield None if info is None or file is None else (info, file)
    except (tarfile.TarError, zlib.error, EOFError, OSError, msgspec.DecodeError) as error:
        raise LizaError(f"{archive} cannot be read: {error}", f"ls -l {shlex.quote(str(archive))}") from error


def _write_archive(directory: RunDir, target: Path) -> None:
    with (
        atomic.replacing(target, label="archive") as file,
        tarfile.open(fileobj=file, mode="w:gz", dereference=False) as tar,
    ):
        tar.add(directory.path, arcname=directory.run)
