"""A run's directory: facts whole or not there, for one user's eyes; and which process is which."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.model.errors import LizaError, NotRegularFile, Refused, UsageError
from liza.model.model import ProcessIdentity, SupervisorExit
from liza.model.paths import Paths
from liza.model.session_ends import StopReason
from liza.programs.session import log_file, run_directory
from liza.programs.session.run_directory import (
    POSTPONED_LIMIT,
    BriefLocation,
    RunDir,
    RunRecord,
    Sentinel,
    StopNote,
    list_runs,
)
from liza.system import processes

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def made(root: Path, run: str = "coder-1.1") -> RunDir:
    directory = RunDir(Paths(root), run)
    directory.create(
        RunRecord(agent=directory.agent, run=run, kind="review", started=NOW, task="task-1", commit="a" * 40)
    )
    return directory


def test_a_run_directory_is_private_to_its_user(tmp_path: Path) -> None:
    run = made(tmp_path)
    for directory in (run.path, run.path.parent, run.path.parent.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((run.path / "run.json").stat().st_mode) == 0o600
    assert run.read_record() == RunRecord(
        agent="coder-1", run="coder-1.1", kind="review", started=NOW, task="task-1", commit="a" * 40
    )
    run.write_brief("assignment", {"beacon": "b"}, "prompt", "block")
    assert run.assignment_path.read_text() == "assignment"
    assert run.read_block() == "block"
    run.write_brief_location(BriefLocation(file="AGENTS.md", created=True))
    run.write_stop(NOW, StopReason.HUNG, "hung: no activity for 9 s")
    assert run.read_brief_location() == BriefLocation(file="AGENTS.md", created=True)
    assert run.read_stop() == StopNote(time=NOW, reason="hung: no activity for 9 s", kind=StopReason.HUNG)
    assert not list(run.path.glob(".aside*"))


def test_a_missing_record_is_none_also_without_a_directory(tmp_path: Path) -> None:
    run = RunDir(Paths(tmp_path), "coder-1.1")
    assert not run.exists()
    assert (
        run.read_record(),
        run.read_sentinel(),
        run.closing_code(),
        run.read_stop(),
        run.read_block(),
        run.read_brief_location(),
    ) == (None,) * 6
    assert (run.output_tail(), run.last_output_time(), run.is_ready()) == ("", None, False)
    assert list_runs(Paths(tmp_path), "coder-1") == ()


def test_an_unreadable_fact_is_an_error_and_not_an_absence(tmp_path: Path) -> None:
    run = made(tmp_path)
    (run.path / "ready").write_text("")
    (run.path / "word").write_text("maybe")
    with pytest.raises(LizaError, match="ready cannot be read"):
        run.is_ready()
    with pytest.raises(LizaError, match="'maybe', wanted 0, 1 or 42"):
        run.closing_code()


def test_the_first_sentinel_stays(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert run.mark_ready(NOW, "liza ready")
    assert not run.mark_ready(NOW + timedelta(seconds=9), "verb")
    assert run.read_sentinel() == Sentinel(time=NOW, evidence="liza ready")


def _mark(root: Path, number: int, wins: multiprocessing.Queue[bool]) -> None:
    wins.put(RunDir(Paths(root), "coder-1.1").mark_ready(NOW, f"process {number}"))


def test_the_conversation_id_comes_from_the_variable_the_record_names(tmp_path: Path) -> None:
    directory = RunDir(Paths(tmp_path), "coder-1.1")
    record = RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=NOW)
    directory.create(record)
    directory.note_conversation({"": "s-0", "MODEL_SESSION": "s-1"})
    assert directory.read_conversation() is None
    directory.create(replace(record, session_id_env="MODEL_SESSION"))
    directory.note_conversation({"MODEL_SESSION": "s-1"})
    directory.note_conversation({"MODEL_SESSION": ""})
    assert directory.read_conversation() == "s-1"
    (directory.path / "conversation").unlink()
    (directory.path / "conversation").mkdir()
    with pytest.raises(NotRegularFile):
        directory.read_conversation()


def test_only_one_of_many_readiness_marks_is_the_first(tmp_path: Path) -> None:
    run = made(tmp_path)
    context = multiprocessing.get_context("fork")
    wins = context.Queue()
    racers = [context.Process(target=_mark, args=(tmp_path, number, wins)) for number in range(6)]
    for racer in racers:
        racer.start()
    assert sorted(wins.get(timeout=30) for _ in racers) == [False] * 5 + [True]
    for racer in racers:
        racer.join(30)
    assert run.is_ready()


def test_the_last_word_counts_and_only_three_words_are_known(tmp_path: Path) -> None:
    run = made(tmp_path)
    for word in ("0", "1", "42"):
        run.set_closing_code(word)
        assert run.closing_code() == word
    with pytest.raises(UsageError, match="not a closing code"):
        run.set_closing_code("7")
    assert run.closing_code() == "42"


def test_a_failed_command_is_noted_until_it_succeeds_or_expires(
    tmp_path: Path,
) -> None:
    run = made(tmp_path)
    for verb in ("heartbeat", "submit"):
        run.write_postponed(NOW, verb, "the disk is full")
    run.clear_postponed(NOW, "heartbeat")
    note = run.read_postponed()
    assert note is not None
    assert (note.verb, note.reason) == ("submit", "the disk is full")
    run.clear_postponed(NOW, "submit")
    assert run.read_postponed() is None
    run.write_postponed(NOW, "status", "the disk is full")
    run.clear_postponed(NOW + POSTPONED_LIMIT + timedelta(seconds=1), "heartbeat")
    assert run.read_postponed() is None


def test_run_writes_through_no_link_and_into_no_other_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RunDir(Paths(tmp_path), "coder-1.9").write_postponed(NOW, "submit", "full")
    assert not Paths(tmp_path).runs.exists()
    made(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (Paths(tmp_path).runs / "coder-1" / "coder-1.2").symlink_to(outside)
    with pytest.raises(Refused, match="is a link"):
        RunDir(Paths(tmp_path), "coder-1.2").write_postponed(NOW, "submit", "full")
    (Paths(tmp_path).runs / "coder-2").symlink_to(outside)
    with pytest.raises(Refused, match="is a link"):
        run_directory.write_supervisor_exit(Paths(tmp_path), "coder-2", SupervisorExit(time=NOW, reason="why"))
    assert list(outside.iterdir()) == []


def test_the_reason_of_an_exited_supervisor_is_beside_its_runs(tmp_path: Path) -> None:
    paths, left = Paths(tmp_path), SupervisorExit(time=NOW, reason="3 sessions crashed")
    assert run_directory.read_supervisor_exit(paths, "coder-1") is None
    run_directory.write_supervisor_exit(paths, "coder-1", left)
    assert run_directory.read_supervisor_exit(paths, "coder-1") == left
    assert list_runs(paths, "coder-1") == ()
    run_directory.clear_supervisor_exit(paths, "coder-1")
    run_directory.clear_supervisor_exit(paths, "coder-1")
    assert run_directory.read_supervisor_exit(paths, "coder-1") is None


def test_runs_are_counted_and_not_spelled(tmp_path: Path) -> None:
    for number in (10, 9, 2):
        made(tmp_path, f"coder-1.{number}")
    made(tmp_path, "coder-2.1")
    (tmp_path / ".liza/run/coder-1/notes").mkdir()
    assert list_runs(Paths(tmp_path), "coder-1") == ("coder-1.2", "coder-1.9", "coder-1.10")


def test_tail_is_the_end_of_the_output_in_any_bytes(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.output_path.write_bytes(b"x" * 9000 + b"\xff end")
    assert run.output_tail(5).endswith("end")
    assert len(run.output_tail()) == 4096
    assert run.last_output_time() is not None


def test_a_living_pid_with_another_start_time_is_dead() -> None:
    me = processes.identify_self()
    assert me.pid == os.getpid()
    assert processes.is_proved_dead(me) is False
    assert processes.may_be_alive(me)
    assert processes.is_proved_dead(replace(me, start=me.start + "0")) is True
    assert not processes.may_be_alive(replace(me, start=me.start + "0"))


def test_a_process_is_dead_after_a_reboot_and_elsewhere_unknown() -> None:
    me = processes.identify_self()
    assert processes.is_proved_dead(replace(me, boot="earlier")) is True
    assert processes.is_proved_dead(replace(me, host="elsewhere")) is None
    assert processes.is_proved_dead(replace(me, host="elsewhere", boot="other", pid=1)) is None
    assert processes.may_be_alive(replace(me, host="elsewhere"))


def test_a_process_is_dead_before_its_code_is_collected() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    who = processes.identify_process(child.pid)
    assert who is not None
    assert processes.is_proved_dead(who) is False
    handle = processes.open_pidfd(who)
    child.kill()
    if handle is not None:
        assert processes.wait_readable(handle, 30)
        os.close(handle)
    else:
        child.wait()
    assert processes.is_proved_dead(who) is True
    assert processes.identify_process(child.pid) is None
    child.wait()
    assert processes.is_proved_dead(who) is True
    assert processes.open_pidfd(who) is None


def test_a_pid_that_changed_hands_is_not_waited_on() -> None:
    me = processes.identify_self()
    assert processes.open_pidfd(ProcessIdentity(host=me.host, boot=me.boot, pid=me.pid, start="1")) is None


def test_a_name_with_brackets_does_not_hide_a_start_time(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "60"])
    who = processes.identify_process(child.pid)
    assert who is not None
    assert processes.is_proved_dead(who) is False
    child.kill()
    child.wait()
    assert processes.is_proved_dead(who) is True


def test_only_processes_of_this_crews_run_are_ended(tmp_path: Path, monkeypatch) -> None:
    def sleeper(run: str, root: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["sleep", "60"], env={"PATH": os.environ["PATH"], "LIZA_RUN": run, "LIZA_ROOT": str(root)}
        )

    mine, other_run, other_crew = (
        sleeper("coder-1.1", tmp_path),
        sleeper("coder-1.10", tmp_path),
        sleeper("coder-1.1", tmp_path / "x"),
    )
    try:
        assert tuple(processes.iter_run_pids("coder-1.1", tmp_path)) == (mine.pid,)
        assert processes.kill_run("coder-1.1", tmp_path) == ()
        assert mine.wait(30) == -signal.SIGKILL
        assert other_run.poll() is None
        assert other_crew.poll() is None
    finally:
        for child in (mine, other_run, other_crew):
            child.kill()
            child.wait()


def test_an_agents_processes_are_found_but_no_equally_named_shell(tmp_path: Path) -> None:
    def sleeper(**env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "LIZA_ROOT": str(tmp_path), **env})

    session = sleeper(LIZA_AGENT_ID="coder-1", LIZA_RUN="coder-1.7")
    others = [
        sleeper(LIZA_AGENT_ID="coder-1"),  # the shell of a person who set it, and the `liza up` that runs in it
        sleeper(LIZA_AGENT_ID="coder-10", LIZA_RUN="coder-10.7"),
        sleeper(LIZA_AGENT_ID="coder-1", LIZA_RUN="coder-1.7", LIZA_ROOT=str(tmp_path / "x")),
    ]
    try:
        assert processes.kill_all(lambda: processes.iter_agent_pids("coder-1", tmp_path)) == ()
        assert session.wait(30) == -signal.SIGKILL
        assert [other.poll() for other in others] == [None] * len(others)
    finally:
        for child in (session, *others):
            child.kill()
            child.wait()


def test_a_process_is_found_while_it_changes_its_program(tmp_path: Path) -> None:
    """The kernel shows no environment until the new program is laid out: one look in ten came too early."""
    env = {"PATH": os.environ["PATH"], "LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(tmp_path)}
    for _ in range(100):
        born = subprocess.Popen(["sleep", "60"], env=env)
        try:
            assert tuple(processes.iter_run_pids("coder-1.1", tmp_path)) == (born.pid,)
        finally:
            born.kill()
            born.wait()


def test_a_family_that_keeps_forking_is_ended_all_the_same(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(tmp_path)}
    script = "fork() { sleep 0.01; (fork) & (sleep 60) & wait; }; (setsid sh -c 'sleep 60' &); fork"
    family = subprocess.Popen(["sh", "-c", script], env=env)
    while len(tuple(processes.iter_run_pids("coder-1.1", tmp_path))) < 5:
        assert family.poll() is None
    assert processes.kill_run("coder-1.1", tmp_path) == ()
    family.wait(30)
    assert tuple(processes.iter_run_pids("coder-1.1", tmp_path)) == ()


def test_the_end_of_a_log_begins_at_a_line_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("remote error: first\nsecond\nthird\n")
    assert log_file.read_last_lines(log, 1000) == "remote error: first\nsecond\nthird\n"
    assert log_file.read_last_lines(log, 15) == "second\nthird\n"
    # Exactly these bytes are whole lines.
    assert log_file.read_last_lines(log, 13) == "second\nthird\n"
    log.write_text("x" * 40)
    assert log_file.read_last_lines(log, 10) == f"…{'x' * 9}"
