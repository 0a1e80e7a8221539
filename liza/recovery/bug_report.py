"""bug-report: write one file with what a developer of Liza needs to see a problem. Nothing is sent."""

from __future__ import annotations

import io
import os
import platform
import re
import shlex
import tarfile
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from liza import __version__
from liza.board import revisions
from liza.board.contract import Board
from liza.crew.caller import require_person
from liza.crew.crew import Crew, find_crew_or_none
from liza.git.runner import Git
from liza.model.errors import LizaError, Missing, Refused
from liza.model.paths import Paths
from liza.model.setting_limits import is_url
from liza.programs.session import run_directory
from liza.project import config_verb as config
from liza.recovery import doctor
from liza.recovery.rules import report_files
from liza.recovery.rules.report_files import ReportFile
from liza.system import untrusted_files
from liza.system.clock import SystemClock
from liza.text.formats import format_time
from liza.text.undecoded import encode_json

_PACKAGES = ("filelock", "gitpython", "msgspec", "ruamel.yaml", "starlette", "typer", "uvicorn", "watchdog")
MAX_REVISIONS = 500
"""Newest revisions of the journal that are in a report."""
MIN_WORD = 8
"""Characters of a word in the command of ``config.notify`` that may be a credential."""


def write_bug_report(directory: Path, target: Path | None = None) -> dict[str, Any]:
    """Write the report and return ``path``, ``size`` in bytes, ``files`` (name, size, cut) and ``left_out`` names.

    ``target``: its path; default: below .liza, or ``directory`` without a crew. Works with a board that cannot be read:
    the report then has the error. Raises Refused if the file exists, Missing if it cannot be written.
    """
    crew = find_crew_or_none()
    if crew is not None:
        require_person(crew, planner=False)
    home = str(Path.home())
    files, left_out = report_files.bound_report(list(_collect(directory, crew, home)))
    stamp = format_time(SystemClock().now()).replace(":", "")
    path = target or (directory if crew is None else crew.paths.liza) / f"bug-report-{stamp}.tar.gz"
    data = _pack(files)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Refused(f"{path} exists already", shlex.join(["ls", "-l", str(path)])) from None
    except OSError as error:
        raise Missing(f"{path} cannot be written: {error.strerror}", "liza bug-report --output F") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:  # a full disk: half of an archive is no report
        path.unlink(missing_ok=True)
        raise Missing(f"{path} cannot be written: {error.strerror}", "df -h .") from error
    rows = [{"name": file.name, "size": len(file.data), "cut": file.is_cut} for file in files]
    return {"path": str(path), "size": len(data), "files": rows, "left_out": left_out}


def _collect(directory: Path, crew: Crew | None, home: str) -> Iterator[ReportFile]:
    """Yield the files, the most useful ones first: later ones may not fit."""
    private = () if crew is None else _private_texts(crew.board)

    def made(name: str, compose: Callable[[], str]) -> ReportFile:
        try:
            text = compose()
        except (LizaError, OSError) as error:
            text = f"not available: {error}\n"
        return report_files.prepare_file(name, text.encode(), home, private)

    yield made("versions.txt", lambda: _versions(directory))
    yield made("doctor.txt", lambda: _findings(directory))
    if crew is None:
        return
    yield made("config.json", lambda: encode_json(config.get_settings(crew.board, None)).decode() + "\n")
    paths = crew.paths
    yield made(paths.journal.name, lambda: _journal_heads(crew.board))
    if paths.board_address.exists():
        yield made(paths.state.name, crew.board.read_text)
    for path in (paths.state, paths.alerts, paths.liza / "programs.toml", paths.liza / "guards.toml"):
        yield from _read(path, path.name, home, private)
    for run in _newest_runs(crew):
        run_dir = crew.run_dir(run)
        for path in (
            run_dir.output_path,
            run_dir.path / "run.json",
            run_dir.path / "exit.json",
        ):
            yield from _read(path, f"runs/{run}/{path.name}", home, private)
    for path in _newest(paths.logs.glob("*.log"))[: report_files.MAX_LOGS]:
        yield from _read(path, f"logs/{path.name}", home, private)


def _journal_heads(board: Board) -> str:
    """Return the end of the journal without the texts of the board, in which settings may have had other secrets."""
    records = list(islice(board.records(), MAX_REVISIONS))
    return b"".join(map(revisions.format_record, reversed(records))).decode()


def _private_texts(board: Board) -> tuple[str, ...]:
    """Addresses and command of ``config.notify``, in effect and as written. They may contain credentials.

    Also the long words of the command: in YAML it may have several lines, and its quotes are doubled. Empty if the
    board cannot be read: then only what is recognised as an address is cut.
    """
    with suppress(LizaError, OSError):
        settings = (board.read().config.notify, board.read_as_written().config.notify)
        commands = {(each.exec or "").strip() for each in settings}
        words = {word for command in commands for word in re.split(r"[\s'\"\\]+", command) if len(word) >= MIN_WORD}
        texts = {text for each in settings for text in filter(is_url, each.targets)} | commands | words
        return tuple(sorted(filter(None, texts), key=len, reverse=True))
    return ()


def _read(path: Path, name: str, home: str, private: Collection[str]) -> Iterator[ReportFile]:
    """Yield the end of a file; nothing if it does not exist, or is a link or another special file."""
    with suppress(LizaError, OSError), untrusted_files.open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - report_files.READ_SIZE))
        data = file.read(report_files.READ_SIZE)
        yield report_files.prepare_file(name, data, home, private, is_tail=size > report_files.READ_SIZE)


def _newest_runs(crew: Crew) -> list[str]:
    """Ids of the runs that were changed last, of all agents, the newest first."""
    agents = [path.name for path in crew.paths.runs.iterdir() if path.is_dir()] if crew.paths.runs.is_dir() else []
    runs = [crew.run_dir(run).path for agent in agents for run in _runs_of(crew.paths, agent)]
    return [path.name for path in _newest(iter(runs))[: report_files.MAX_RUNS]]


def _runs_of(paths: Paths, agent: str) -> list[str]:
    with suppress(LizaError):
        return list(run_directory.list_runs(paths, agent))
    return []


def _newest(paths: Iterator[Path]) -> list[Path]:
    """Return the paths, the one that was changed last first."""
    dated = []
    for path in paths:
        with suppress(OSError):
            dated.append((path.lstat().st_mtime_ns, path))
    return [path for _, path in sorted(dated, reverse=True)]


def _versions(directory: Path) -> str:
    lines = [f"liza {__version__}", f"python {platform.python_version()}", f"system {platform.platform()}"]
    with suppress(LizaError):
        lines.append(Git(directory).out("version"))
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            lines.append(f"{package} {metadata.version(package)}")
    return "\n".join(lines) + "\n"


def _findings(directory: Path) -> str:
    report = doctor.doctor(directory)
    lines = [f"{finding.about}: {finding.text} {finding.hint or ''}".rstrip() for finding in report.findings]
    return "\n".join([f"ok: {report.ok}", *lines]) + "\n"


def _pack(files: list[ReportFile]) -> bytes:
    """Return the files as a tar archive with gzip. Names of the person and of the machine are left out."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for file in files:
            entry = tarfile.TarInfo(f"liza-bug-report/{file.name}")
            entry.size, entry.mode = len(file.data), 0o600
            tar.addfile(entry, io.BytesIO(file.data))
    return packed.getvalue()
