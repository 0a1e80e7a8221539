"""Directories of old runs: archived whole once they are settled, over and not in use; the others stay."""

from __future__ import annotations

import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from liza.crew.crew import Crew
from liza.model.errors import LizaError, Refused
from liza.programs.liveness import RunningSession
from liza.programs.rules.session_events import ModelText
from liza.programs.session import run_archive
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.recovery import run_cleanup
from liza.recovery.doctor import doctor
from liza.recovery.run_cleanup import archive_old_runs
from liza.system import processes
from liza.view import all_logs, session_log
from liza.view.logs import read_notes
from tests.edges.git.test_slots_place import begun, drafted

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ran(crew: Crew, number: int, settled: bool = True) -> RunDir:
    directory = crew.run_dir(f"coder-1.{number}")
    directory.create(RunRecord(agent="coder-1", run=directory.run, kind="work", started=NOW))
    directory.output_path.write_text(f"said by {directory.run}\n")
    if settled:
        directory.mark_concluded("finished: done")
    return directory


def numbers(crew: Crew) -> list[int]:
    return sorted(int(path.name.rpartition(".")[2]) for path in (crew.paths.runs / "coder-1").glob("coder-1.*"))


def test_only_finished_runs_that_no_task_names_are_archived(repo: Path) -> None:
    crew = begun(repo)
    # Its claim is coder-1.1.
    drafted(crew)
    last = run_cleanup.UNARCHIVED_RUNS + 7
    for number in range(1, last + 1):
        ran(crew, number, settled=number != 3)
    this = processes.identify_self()
    living = msgspec.json.encode(RunningSession(shim=this, child=this, time=NOW))
    (crew.run_dir("coder-1.4").path / "session.json").write_bytes(living)
    told = [what for what in doctor(repo, fix=True).repaired if "old run directories" in what]
    assert told == [f"coder-1: 4 old run directories went to {crew.paths.runs / 'coder-1' / 'archive'}"]
    assert numbers(crew) == [1, 3, 4, *range(8, last + 1)]
    following = all_logs.follow_lines(crew, ["coder-1"], {"coder-1.2": len("said by coder-1.2\n")})
    assert next(following).run == f"coder-1.{last}"
    following.close()
    [line], _ = all_logs.read_recent_lines(crew, ["coder-1.2"], 10, None)
    assert (line.run, line.text) == ("coder-1.2", "said by coder-1.2")
    with pytest.raises(Refused, match=r"coder-1\.99 printed nothing"):
        all_logs.read_recent_lines(crew, ["coder-1.99"], 10, None)
    assert run_archive.archive_path(crew.paths, "coder-1.2").stat().st_mode & 0o777 == 0o600
    assert archive_old_runs(crew, "coder-1") == ()


def test_logs_distinguish_archived_runs_unknown_agents_and_lost_logs(repo: Path) -> None:
    crew = begun(repo)
    drafted(crew)
    with crew.change("human:ann", "edit") as tx:
        agent = tx.state.agents["coder-1"]
        tx.state = tx.state.with_agent("coder-1", replace(agent, program="claude", runs=2))
    directory = ran(crew, 1)
    directory.output_path.unlink()
    run_archive.archive_run(directory)
    archive = run_archive.archive_path(crew.paths, "coder-1.1")
    with pytest.raises(Refused, match=r"coder-1\.1 printed nothing; its archive is") as silent:
        read_notes(crew, "coder-1.1")
    assert str(archive) in silent.value.message
    archive.unlink()
    with pytest.raises(Refused, match=r"the log of coder-1\.1 is gone"):
        read_notes(crew, "coder-1.1")
    with pytest.raises(Refused, match="there is no agent coder-99 on the board") as unknown:
        read_notes(crew, "coder-99.1")
    assert unknown.value.hint == "liza agents"


def test_an_archived_run_shows_its_last_lines_unless_broken(repo: Path) -> None:
    crew = begun(repo)
    drafted(crew)
    directory = ran(crew, 1)
    directory.output_path.write_text("".join(f"line {number}\n" for number in range(300)))
    run_archive.archive_run(directory)
    shown, _ = all_logs.read_recent_lines(crew, ["coder-1.1"], 2, None)
    assert [line.text for line in shown] == ["line 298", "line 299"]
    assert read_notes(crew, "coder-1.1").silence == ""
    path = run_archive.archive_path(crew.paths, "coder-1.1")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(LizaError, match="cannot be read"):
        read_notes(crew, "coder-1.1")


def test_an_archived_session_is_read_as_its_program_wrote_it(repo: Path) -> None:
    crew = begun(repo)
    drafted(crew)
    directory = crew.run_dir("coder-1.1")
    directory.create(RunRecord(agent="coder-1", run=directory.run, kind="work", started=NOW, program="claude"))
    said = {"type": "assistant", "message": {"content": [{"type": "text", "text": "Done."}]}}
    directory.output_path.write_text(json.dumps(said) + "\n")
    run_archive.archive_run(directory)
    events, _ = session_log.read_recent(crew, ["coder-1.1"], 10, None)
    assert [entry.event for entry in events] == [ModelText("Done.")]


def test_a_complete_archive_is_not_rebuilt_from_a_partial_directory(repo: Path) -> None:
    crew = begun(repo)
    directory = ran(crew, 1)
    run_archive.archive_run(directory)
    # As a kill between the archive and the last of the removals leaves it.
    ran(crew, 1).output_path.unlink()
    run_archive.archive_run(directory)
    assert not directory.exists()
    with tarfile.open(run_archive.archive_path(crew.paths, directory.run)) as tar:
        assert sorted(tar.getnames()) == [directory.run, *(f"{directory.run}/{one}" for one in FILES)]


FILES = ("output.log", "run.json", "settled")


def test_a_link_in_a_run_directory_is_archived_as_one(repo: Path, tmp_path: Path) -> None:
    crew = begun(repo)
    directory, secret = ran(crew, 1), tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("key\n")
    (directory.path / "link").symlink_to(secret)
    run_archive.archive_run(directory)
    assert (secret / "key").exists()
    with tarfile.open(run_archive.archive_path(crew.paths, directory.run)) as tar:
        assert tar.getmember(f"{directory.run}/link").issym()
