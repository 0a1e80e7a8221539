"""What `liza gc` frees: nothing that is not saved, nothing that anybody uses."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from liza.crew.crew import Crew
from liza.programs.session import run_archive
from liza.recovery import run_cleanup
from liza.recovery.gc import OLD_AGE, gc
from liza.system.locks import Lock
from tests.campaign.small_board import child, killed, passed
from tests.edges.git.test_slots_place import begun, drafted
from tests.edges.programs.test_old_runs import numbers, ran

LONG_AGO = time.time() - OLD_AGE - 60


@pytest.fixture
def crew(repo: Path) -> Crew:
    made = begun(repo)
    drafted(made)
    return made


def log(crew: Crew, name: str, text: str = "said\n" * 1000) -> Path:
    path = crew.paths.logs / name
    path.write_text(text)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def dead_pid() -> int:
    gone = subprocess.Popen(["true"])
    gone.wait()
    return gone.pid


def temporary(crew: Crew, pid: int) -> Path:
    path = crew.paths.tx / f".seal.abcd_123.{pid}"
    path.write_bytes(b"x" * 10)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def freed(crew: Crew, **options: bool) -> dict[str, int]:
    result = gc(crew, **options)
    assert result.details["failed"] == []
    assert result.details["freed_bytes"] == sum(row["bytes"] for row in result.details["freed"])
    return {row["name"].rpartition("/")[2]: row["bytes"] for row in result.details["freed"]}


def test_a_dry_run_names_what_gc_frees_and_changes_nothing(crew: Crew) -> None:
    for number in range(1, run_cleanup.UNARCHIVED_RUNS + 3):
        ran(crew, number).output_path.write_text("said\n" * 1000)
    old = log(crew, "merge-gone.log")
    rest = temporary(crew, dead_pid())
    planned = freed(crew, dry_run=True)
    assert planned.keys() == {"coder-1.2", "merge-gone.log", rest.name}
    assert old.exists()
    assert rest.exists()
    assert len(numbers(crew)) == run_cleanup.UNARCHIVED_RUNS + 2
    real = freed(crew)
    assert real.keys() == planned.keys()
    assert 0 < real["coder-1.2"] < planned["coder-1.2"]
    assert real["merge-gone.log"] < planned["merge-gone.log"]
    assert not old.exists()
    assert not rest.exists()
    with tarfile.open(run_archive.archive_path(crew.paths, "coder-1.2")) as tar:
        assert "coder-1.2/output.log" in tar.getnames()
    assert archived_logs(crew) == [b"said\n" * 1000]
    assert freed(crew) == {}


def test_gc_keeps_files_that_are_new_used_or_needed(crew: Crew) -> None:
    task = crew.board.read().tasks[0]
    kept = [log(crew, f"merge-{task.id}{gate}.log") for gate in ("", "-lint")]
    kept += [log(crew, "coder-1.log"), temporary(crew, os.getpid())]
    opened = log(crew, "merge-opened.log")
    new = log(crew, "merge-new.log")
    os.utime(new)
    link = crew.paths.logs / "merge-link.log"
    link.symlink_to(opened)
    with opened.open() as file, subprocess.Popen(["sleep", "60"], stdin=file) as writer:
        assert freed(crew) == {}
        writer.kill()
    assert all(path.exists() for path in (*kept, opened, new, link))
    assert freed(crew).keys() == {"merge-opened.log"}


def test_a_log_that_would_not_become_smaller_stays(crew: Crew) -> None:
    kept = [log(crew, "merge-empty.log", ""), log(crew, "merge-small.log", "1 passed\n")]
    log(crew, "merge-long.log")
    assert freed(crew, dry_run=True).keys() == {"merge-long.log"}
    assert freed(crew).keys() == {"merge-long.log"}
    assert all(path.exists() for path in kept)


def test_gc_leaves_runs_of_a_supervised_agent_alone(crew: Crew) -> None:
    for number in range(1, run_cleanup.UNARCHIVED_RUNS + 3):
        ran(crew, number)
    lock = Lock(crew.paths.supervisor_lock("coder-1"))
    with lock:
        assert freed(crew) == {}
    assert freed(crew).keys() == {"coder-1.2"}


def archived_logs(crew: Crew) -> list[bytes]:
    return [gzip.decompress(path.read_bytes()) for path in sorted((crew.paths.logs / "archive").glob("merge-gone-*"))]


def test_a_later_log_of_a_task_is_compressed_separately(crew: Crew) -> None:
    for number, text in enumerate(("first\n", "second\n")):
        path = log(crew, "merge-gone.log", text * 1000)
        os.utime(path, (1000 + number, 1000 + number))
        gc(crew)
    assert archived_logs(crew) == [b"first\n" * 1000, b"second\n" * 1000]


def test_gc_reports_a_log_whose_archive_is_no_file(crew: Crew) -> None:
    kept = log(crew, "merge-gone.log")
    (crew.paths.logs / "archive" / f"merge-gone-{int(kept.stat().st_mtime)}.log.gz").mkdir(parents=True)
    [failure] = gc(crew).details["failed"]
    assert "merge-gone" in failure
    assert kept.exists()


@pytest.mark.campaign
def test_a_kill_at_any_point_loses_nothing(crew: Crew, tmp_path: Path) -> None:
    for number in range(1, run_cleanup.UNARCHIVED_RUNS + 3):
        ran(crew, number)
    log(crew, "merge-gone.log", "first\n" * 1000)
    copy = tmp_path / "copy"
    shutil.copytree(crew.paths.liza, copy, symlinks=True)
    points = passed(lambda: gc(crew), tmp_path / "trace")
    assert "unlinked.log#1" in points
    for point in points:
        shutil.rmtree(crew.paths.liza)
        shutil.copytree(copy, crew.paths.liza, symlinks=True)
        assert killed(child(lambda: gc(crew), point)), point
        gc(crew)
        assert archived_logs(crew) == [b"first\n" * 1000], point
        with tarfile.open(run_archive.archive_path(crew.paths, "coder-1.2")) as tar:
            assert "coder-1.2/output.log" in tar.getnames(), point


def test_what_is_behind_a_link_is_neither_found_nor_changed(crew: Crew, tmp_path: Path) -> None:
    for number in range(1, run_cleanup.UNARCHIVED_RUNS + 3):
        ran(crew, number)
    elsewhere = tmp_path / "elsewhere"
    (crew.paths.runs / "coder-1").rename(elsewhere)
    (crew.paths.runs / "coder-1").symlink_to(elsewhere)
    inside = elsewhere / "sub"
    inside.mkdir()
    crew.paths.run("coder-2.1").parent.mkdir()
    crew.paths.run("coder-2.1").symlink_to(inside)
    for directory in (elsewhere, inside):
        temporary(crew, dead_pid()).rename(directory / f".seal.abcd_123.{dead_pid()}")
    before = sorted(elsewhere.rglob("*"))
    assert freed(crew) == {}
    assert sorted(elsewhere.rglob("*")) == before


def test_a_log_is_not_compressed_into_a_linked_directory(crew: Crew, tmp_path: Path) -> None:
    kept = log(crew, "merge-gone.log")
    (crew.paths.logs / "archive").symlink_to(tmp_path)
    before = sorted(tmp_path.iterdir())
    [failure] = gc(crew).details["failed"]
    assert "is a link" in failure
    assert kept.exists()
    assert sorted(tmp_path.iterdir()) == before


def test_gc_counts_a_run_archived_before_a_crash_in_full(crew: Crew) -> None:
    for number in range(1, run_cleanup.UNARCHIVED_RUNS + 3):
        ran(crew, number)
    size = freed(crew, dry_run=True)["coder-1.2"]
    assert killed(child(lambda: gc(crew), "renamed.archive#1"))
    assert freed(crew) == {"coder-1.2": size}
