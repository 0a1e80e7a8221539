"""``liza hook`` as a process: what it records, refuses and waits for."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from liza.api.hook import Hook
from liza.api.lifecycle import TURN_LOCK, LifecycleRequest, report_lifecycle
from liza.briefs import inbox
from liza.guards import guard_files
from liza.guards.rules.guard_rules import DENIALS_FILE
from liza.model.paths import Paths
from liza.programs.rules.lifecycle_rules import LifecycleEvent
from liza.programs.session.run_directory import HOOK_CALLS_FILE, RunDir, RunRecord, Turn, TurnSource
from liza.system.locks import lock_path

NOW = datetime.now(UTC).replace(microsecond=0)
LOOK = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "ls"}}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run whose session is in a turn."""
    directory = RunDir(Paths(tmp_path.resolve()), "coder-1.1")
    directory.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=NOW))
    directory.mark_ready(NOW, "hook SessionStart")
    morning = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    directory.write_turn(Turn(time=morning, phase="busy", session="s", tools=2))
    install(directory)
    return directory


def install(run: RunDir) -> None:
    """Write the guards of the session."""
    home = run.paths.root
    guard_files.install_guards(run, guard_files.load_guards(run.paths, home), home, None, "deny")


def environ(run: RunDir) -> dict[str, str]:
    return {"LIZA_RUN": run.run, "LIZA_ROOT": str(run.paths.root)}


def files(run: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}


def _message(run: RunDir) -> None:
    inbox.queue_message(run.paths, run.agent, "look", "human:ann", NOW, "system")


def run_hook(run: RunDir, payload: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``liza hook`` for a tool call."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "liza", "hook", "codex", "PreToolUse"], input=payload, capture_output=True,
        text=True, timeout=60, check=False, env={**os.environ, **environ(run), **variables},
    )  # fmt: skip


def test_a_hook_records_a_tool_call(run: RunDir) -> None:
    done = run_hook(run, json.dumps(LOOK))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    turn = run.read_turn()
    assert turn is not None
    assert (turn.tools, turn.phase) == (3, "busy")


def test_a_hook_refuses_a_tool_by_its_exit_code(run: RunDir) -> None:
    done = run_hook(run, json.dumps({**LOOK, "tool_input": {"command": "cd x; git push"}}))
    assert (done.returncode, done.stdout) == (2, "")
    assert "liza submit" in done.stderr
    assert (run.path / DENIALS_FILE).exists()


def test_a_hook_delivers_a_message_once(run: RunDir) -> None:
    _message(run)
    done = run_hook(run, json.dumps(LOOK))
    assert done.returncode == 0
    assert "look" in json.loads(done.stdout.splitlines()[0])["hookSpecificOutput"]["additionalContext"]
    assert inbox.list_pending(run.paths, run.agent) == ()
    turn = run.read_turn()
    assert turn is not None
    assert (turn.tools, turn.session) == (3, "s")


def _hold_turn(path: Path, taken: Event, released: Event) -> None:
    with lock_path(path / TURN_LOCK, 5, 0o600):
        taken.set()
        released.wait(60)


@pytest.mark.campaign
def test_a_hook_waits_for_the_lock_of_a_report(run: RunDir) -> None:
    context = multiprocessing.get_context("spawn")
    taken, released = context.Event(), context.Event()
    holder = context.Process(target=_hold_turn, args=(run.path, taken, released))
    holder.start()
    try:
        assert taken.wait(60)
        before = files(run)
        done = list[subprocess.CompletedProcess[str]]()
        thread = threading.Thread(target=lambda: done.append(run_hook(run, json.dumps(LOOK))))
        thread.start()
        while not (run.path / HOOK_CALLS_FILE).exists():  # it then waits to write the turn
            assert thread.is_alive()
            time.sleep(0.01)
        assert files(run)["turn.json"] == before["turn.json"]
        released.set()
        thread.join(60)
    finally:
        released.set()
        holder.join(60)
    turn = run.read_turn()
    assert done[0].returncode == 0
    assert turn is not None
    assert turn.tools == 3


def _report_often(root: Path, times: int) -> None:
    run, now = RunDir(Paths(root), "coder-1.1"), datetime.now(UTC)
    for number in range(times):
        name = LifecycleEvent.BUSY if number % 2 else LifecycleEvent.IDLE
        assert report_lifecycle(run, LifecycleRequest(event=name, run_id=run.run, timestamp=now), now).applied


def _hook_often(root: Path, times: int) -> None:
    run = RunDir(Paths(root), "coder-1.1")
    for _ in range(times):
        Hook("codex", "PreToolUse", json.dumps(LOOK).encode(), environ(run)).reply()


@pytest.mark.campaign
def test_no_hook_and_no_report_of_several_processes_is_lost(run: RunDir) -> None:
    context = multiprocessing.get_context("spawn")
    hooks = [context.Process(target=_hook_often, args=(run.paths.root, 20)) for _ in range(2)]
    reports = context.Process(target=_report_often, args=(run.paths.root, 41))
    for process in (*hooks, reports):
        process.start()
    for process in (*hooks, reports):
        process.join(120)
        assert process.exitcode == 0
    turn = run.read_turn()
    assert turn is not None
    assert (turn.phase, turn.tools, turn.source) == ("idle", 42, TurnSource.API)


def test_a_hook_logs_a_full_disk_and_counts_calls_once(run: RunDir) -> None:
    done = run_hook(run, json.dumps(LOOK), LIZA_FAULT="synced.turn.json:full")
    assert (done.returncode, done.stderr) == (0, "")
    assert "No space left" in (run.path / "hooks.log").read_text()
    assert len((run.path / HOOK_CALLS_FILE).read_text().splitlines()) == 1


def test_a_hook_continues_a_turn_of_yesterday(run: RunDir) -> None:
    run.write_turn(Turn(time=datetime(2024, 2, 29, tzinfo=UTC), phase="busy", session="s"))
    assert run_hook(run, json.dumps(LOOK)).returncode == 0
    turn = run.read_turn()
    assert turn is not None
    assert (turn.tools, turn.time.year) == (1, time.gmtime().tm_year)
