"""The turn to start a merger is a lock that lives as long as the merger, and its end reaches the others."""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from liza.alarms import current_alarms
from liza.crew.crew import Crew, find_crew
from liza.landing.sync import sync
from liza.merging import merge_lock
from liza.merging.proof_runner import prove_now
from liza.merging.rules import merge_rules
from liza.model.alarm_table import Alarm
from liza.model.backoff import ClockWatch
from liza.model.errors import BoardInconsistent, GitFailed
from liza.model.model import State
from liza.model.narration import Detail
from liza.programs.presets import preset_table, program_choice
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.recovery import findings
from liza.supervisor import down, jobs, merge_times
from liza.supervisor.action_runner import ActionRunner
from liza.supervisor.launch import Launcher
from liza.supervisor.memory import Memory
from liza.supervisor.rules import actions
from liza.supervisor.rules.session_facts import JobKind
from liza.system import file_growth, locks, proc_stat
from liza.system.locks import Lock
from liza.tasks.evidence import gather_evidence
from tests.conftest import until, variant
from tests.journeys.crews import Crew as Project
from tests.journeys.crews import started

LOCKS = Path("/proc/locks")


def _approve(project: Project, task: str) -> Crew:
    there = project.work_by_hand(task)
    project.prepare("submit", cwd=there)
    project.prepare("verdict", "approve", "fine", "--task", task)
    return find_crew(project.root)


def test_the_merge_turn_lasts_until_the_inheriting_child_ends(tmp_path: Path) -> None:
    with started(tmp_path) as project:
        paths = find_crew(project.root).paths
        with merge_lock.take_turn(paths) as turn:
            assert turn is not None
            child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(turn,))
        assert merge_lock.is_merger_running(paths)
        with merge_lock.take_turn(paths) as second:
            assert second is None
        child.communicate()
        assert not merge_lock.is_merger_running(paths)
        with merge_lock.take_turn(paths) as again:
            assert again is not None


def test_a_process_that_only_checks_the_merge_lock_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_lock, "LOCK_TIMEOUT", 60)
    with started(tmp_path) as project:
        crew = find_crew(project.root)
        held = threading.Event()

        def hold() -> None:
            with merge_lock.hold_merge_lock(crew):
                held.set()

        with crew.paths.merge_lock.open("a") as check:
            fcntl.flock(check, fcntl.LOCK_SH)
            holder = threading.Thread(target=hold)
            holder.start()
            inode = f":{os.fstat(check.fileno()).st_ino} "
            until(lambda: any("->" in line and inode in line for line in LOCKS.read_text().splitlines()), "it waits")
        assert held.wait(60)
        holder.join()


def test_a_shared_lock_on_the_merge_turn_stops_no_supervisor(tmp_path: Path) -> None:
    with started(tmp_path) as project:
        paths = find_crew(project.root).paths
        with paths.merge_turn.open("w") as stray:
            fcntl.flock(stray, fcntl.LOCK_SH)
            with merge_lock.take_turn(paths) as turn:
                assert turn is None
        with merge_lock.take_turn(paths) as turn:
            assert turn is not None


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["-x", variant("-s")])
@pytest.mark.parametrize("lock", ["locks/merge-turn.lock", "merge.lock"])
def test_status_and_doctor_name_a_foreign_process_blocking_every_merge(tmp_path: Path, lock: str, mode: str) -> None:
    with started(tmp_path) as project:
        crew = _approve(project, "task-1")
        words = ["flock", "-o", mode, str(crew.paths.liza / lock), "sh", "-c", "echo held; read line"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stray:
            assert stray.stdout is not None
            stray.stdout.readline()
            told = _alarms(crew)["merge_lock_held"]
            found = [one.hint for one in findings.list_findings(crew, crew.board.read()) if one.about == "merge"]
            stray.kill()
        assert told.next == f"kill {stray.pid}"
        assert found[:1] == [told.next]
        assert f"process {stray.pid} holds .liza/{lock}, and is not Liza: flock -o {mode}" in told.message
        assert "merge_lock_held" not in _alarms(crew)


def test_a_merger_and_an_inheritor_of_the_turn_are_distinguished(tmp_path: Path) -> None:
    with started(tmp_path) as project:
        crew = _approve(project, "task-1")
        for words, is_foreign in ((["sh", "-c", "read line"], True), (["sh", "-c", "read line", "liza"], False)):
            with merge_lock.take_turn(crew.paths) as turn:
                assert turn is not None
                child = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=(turn,))
            assert ("merge_lock_held" in _alarms(crew)) is is_foreign
            child.communicate()


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_held", [True, False])
def test_a_merger_passes_on_its_turn_without_a_supervisor_lock(tmp_path: Path, is_held: bool) -> None:
    with started(tmp_path) as project:
        crew = _approve(project, "task-1")
        lock = Lock(crew.paths.supervisor_lock("coder-1"))
        with lock:
            lock.path.write_text(f"{os.getppid()} ? liza-agent\n")
            if not is_held:
                lock.release()
            turn = os.open(crew.paths.merge_turn, os.O_RDWR | os.O_CREAT)
            assert locks.try_flock(turn)
            merge_lock.pass_on_orphaned_turn(crew.paths, "coder-1")
            assert merge_lock.is_merger_running(crew.paths) is is_held
            assert (file_growth.last_wake(crew.paths, "coder-1") is None) is is_held
            if is_held:
                os.close(turn)


def test_only_a_git_outside_of_the_crew_counts_as_foreign(tmp_path: Path) -> None:
    with started(tmp_path) as project:
        crew = _approve(project, "task-1")
        git = ["git", "cat-file", "--batch"]
        for directory, is_foreign in ((crew.paths.root, False), (crew.paths.slots, False), (tmp_path, True)):
            with merge_lock.take_turn(crew.paths) as turn:
                assert turn is not None
                env = os.environ | {"GIT_DIR": str(crew.paths.root / ".git")}
                pipe = subprocess.PIPE
                child = subprocess.Popen(git, cwd=directory, env=env, stdin=pipe, stdout=pipe, pass_fds=(turn,))
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(b"HEAD\n")
            child.stdin.flush()
            child.stdout.readline()  # git runs
            assert ("merge_lock_held" in _alarms(crew)) is is_foreign
            child.communicate()


def test_only_children_of_a_living_process_can_inherit_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = tmp_path / "turn.lock", list[int]()
    holds_flock = proc_stat.holds_flock

    def ask(pid: int, wanted: os.stat_result, modes: frozenset[str]) -> bool | None:
        asked.append(pid)
        return holds_flock(pid, wanted, modes)

    monkeypatch.setattr(proc_stat, "holds_flock", ask)
    # The child of the one that took the lock has a child that inherits it.
    heir = ["sh", "-c", "echo held; read line; exit 0"]
    take = "import fcntl, os, subprocess, sys; fcntl.flock(file := os.open(sys.argv[1], 66), 2); "
    take += "subprocess.Popen(['sh', '-c', '\"$@\"; exit 0', 'sh', *sys.argv[2:]], pass_fds=(file,)); os.close(file); "
    take += "os.read(0, 1)"
    words = [sys.executable, "-c", take, str(path), *heir]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as taker:
        assert taker.stdout is not None
        taker.stdout.readline()
        asked.clear()
        holders = locks.find_holders(path)
        assert len(holders) == 2
        assert {*asked} == {taker.pid, *holders}
        # The kernel still names the one that took the lock after its end.
        taker.kill()
        taker.wait()
        assert locks.find_holders(path) == holders
        os.killpg(taker.pid, signal.SIGKILL)


def _alarms(crew: Crew) -> dict[str, Alarm]:
    state = crew.board.read()
    return {alarm.kind: alarm for alarm in current_alarms.find_alarms(crew, state, gather_evidence(crew, state))}


def _runner(
    crew: Crew, memory: Memory, events: queue.Queue[Any], notify: Callable[[str], None] = lambda text: None
) -> ActionRunner:
    preset = program_choice.choose_program(
        "script:/bin/true", os.environ, "coder", crew.board.read().config, preset_table.load_presets(crew.paths)
    ).preset
    launcher = Launcher(crew, preset, dict(os.environ), lambda text: None, terminal=False)
    return ActionRunner("coder-1", launcher, memory, events.put, notify)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("code", "action", "is_woken"),
    [
        (1, actions.Wait("nothing to do"), True),
        (0, actions.Wait("nothing to do"), True),
        (1, actions.Merge("task-1"), False),
        (70, actions.Wait("it tries again itself"), False),
    ],
)
def test_supervisors_are_woken_for_a_merge_left_to_others(
    tmp_path: Path, code: int, action: actions.Action, is_woken: bool
) -> None:
    with started(tmp_path) as project:
        crew = _approve(project, "task-1")
        memory, events = Memory(ClockWatch(crew.clock.now(), crew.clock.monotonic())), queue.Queue[Any]()
        runner = _runner(crew, memory, events)
        words = [sys.executable, "-c", f"raise SystemExit({code})"]
        spec = jobs.JobSpec(JobKind.MERGE, "task-1", words, crew.paths.root, crew.paths.logs / "m.log", os.environ)
        memory.job = jobs.start_job(spec, events.put)
        events.get()
        before = file_growth.last_wake(crew.paths, "coder-1")
        runner.finish_job()
        runner.pass_on_merge_turn(action)
        assert (file_growth.last_wake(crew.paths, "coder-1") != before) is is_woken


def test_the_merge_turn_is_passed_on_beside_an_unreadable_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path) as project:
        crew = _approve(project, "task-1")
        memory, events = Memory(ClockWatch(crew.clock.now(), crew.clock.monotonic())), queue.Queue[Any]()
        runner = _runner(crew, memory, events)
        spec = jobs.JobSpec(
            JobKind.MERGE, "task-1", ["/bin/true"], crew.paths.root, crew.paths.logs / "m.log", os.environ
        )
        memory.job = jobs.start_job(spec, events.put)
        events.get()
        with monkeypatch.context() as patch:
            patch.setattr(crew.board, "read", _raise_inconsistent)
            with pytest.raises(BoardInconsistent):
                runner.finish_job()
        before = file_growth.last_wake(crew.paths, "coder-1")
        runner.finish_job()
        runner.pass_on_merge_turn(actions.Wait("nothing to do"))
        assert file_growth.last_wake(crew.paths, "coder-1") != before


def _raise_inconsistent() -> State:
    raise BoardInconsistent("half typed", "liza doctor")


@pytest.mark.campaign
def test_a_late_supervisor_starts_no_merger_for_a_merged_task(tmp_path: Path) -> None:
    with started(tmp_path) as project:
        crew = _approve(project, "task-1")
        memory = Memory(ClockWatch(crew.clock.now(), crew.clock.monotonic()))
        runner = _runner(crew, memory, queue.Queue())
        task = merge_rules.next_to_merge(crew.board.read(), crew.clock.now())
        assert task is not None
        project.prepare("merge", "task-1")
        runner.carry_out(actions.Merge(task.id))
        assert memory.job is None


@pytest.mark.campaign
def test_a_merge_that_takes_long_is_announced_without_details(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_times, "LONG_MERGE", 0.0)
    monkeypatch.setattr(merge_times, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(merge_times, "UNRECORDED_SECONDS", 60.0)
    with started(tmp_path) as project:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        project.prepare("config", "set", "integration_command", f"cat {gate}")
        crew = _approve(project, "task-1")
        memory, events = Memory(ClockWatch(crew.clock.now(), crew.clock.monotonic())), queue.Queue[Any]()
        printed = queue.Queue[str]()
        runner = _runner(crew, memory, events, printed.put)
        runner.carry_out(actions.Merge("task-1"))
        lines = [printed.get(timeout=60), printed.get(timeout=60)]
        gate.write_bytes(b"")
        events.get(timeout=60)
        runner.finish_job()
    assert [isinstance(line, Detail) for line in lines] == [True, False]
    assert lines[1].startswith(f"liza  tests of the merge of task-1 run: cat {gate}, for ")


def test_a_supervisor_retries_a_merge_that_found_the_lock_held(tmp_path: Path) -> None:
    with started(tmp_path) as project:
        crew = _approve(project, "task-1")
        memory, events = Memory(ClockWatch(crew.clock.now(), crew.clock.monotonic())), queue.Queue[Any]()
        runner = _runner(crew, memory, events)
        with Lock(crew.paths.merge_lock):
            runner.carry_out(actions.Merge("task-1"))
            events.get(timeout=60)
        revision = crew.board.read().revision
        assert memory.merges.was_tried(revision, "task-1")
        runner.finish_job()
        assert not memory.merges.was_tried(revision, "task-1")


@pytest.mark.parametrize("is_due", [True, False])
def test_supervisors_wake_once_a_person_releases_the_merge_lock(tmp_path: Path, is_due: bool) -> None:
    with started(tmp_path) as project:
        crew = _approve(project, "task-1") if is_due else find_crew(project.root)
        with pytest.raises(GitFailed), merge_lock.hold_merge_lock(crew):
            raise GitFailed("the command of the person failed")
        assert (file_growth.last_wake(crew.paths, "merge") is not None) is is_due


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_failing", [False, True])
def test_supervisors_wake_once_down_releases_the_merge_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_failing: bool
) -> None:
    with started(tmp_path) as project:
        crew = _approve(project, "task-1")
        if is_failing:
            monkeypatch.setattr(down.commands, "kill_orphan_commands", Path.unlink)  # no directory can be unlinked
            with pytest.raises(OSError, match=str(crew.paths.root)):
                down.end_unsupervised_sessions(crew)
        else:
            down.end_unsupervised_sessions(crew)
        assert not merge_lock.is_merger_running(crew.paths)
        assert file_growth.last_wake(crew.paths, "merge") is not None


def test_doctor_blocks_no_merger_while_searching_for_unfinished_merges(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(repo, InitOptions(goal="It is there", no_test=True))
    crew, is_free = find_crew(repo), list[bool]()

    def look(git: object) -> bool:
        lock = Lock(crew.paths.merge_lock)
        is_free.append(lock.try_acquire())
        lock.release()
        return False

    monkeypatch.setattr(findings.checkout_moves, "has_unfinished_move", look)
    list(findings.list_findings(crew, crew.board.read()))
    assert is_free == [True]


def _end_check_at_its_first_refusal(monkeypatch: pytest.MonkeyPatch, lock: Path) -> None:
    """Hold the lock as a process that checks whether it is free, until it refuses another process."""
    lock.touch()
    check, take = lock.open(), locks.try_flock
    fcntl.flock(check, fcntl.LOCK_SH)

    def take_and_end_check(descriptor: int, mode: int) -> bool:
        is_taken = take(descriptor, mode)
        if not is_taken:
            check.close()
        return is_taken

    monkeypatch.setattr(locks, "try_flock", take_and_end_check)


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", [sync, lambda crew: prove_now(crew, "human:ann")], ids=["sync", "prove"])
def test_checking_the_merge_lock_blocks_no_command_of_a_person(
    repo: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[[Crew], object]
) -> None:
    init(repo, InitOptions(goal="It is there", test="true"))
    crew = find_crew(repo)
    _end_check_at_its_first_refusal(monkeypatch, crew.paths.merge_lock)
    command(crew)
