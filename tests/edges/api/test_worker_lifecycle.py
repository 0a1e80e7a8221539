"""Lifecycle events of a runtime, in the files of a run: many requests at once, late ones, runs that are over."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from liza.api import lifecycle
from liza.api.hook import Hook
from liza.api.lifecycle import LOCK_LIMIT, LifecycleRequest, report_lifecycle
from liza.briefs import inbox
from liza.briefs.prompt_stream import PromptStream
from liza.guards import guard_files
from liza.model.errors import FutureTime, LizaError, LockTimeout, RunIsOver, UnknownId, UsageError
from liza.model.paths import Paths
from liza.programs.hooks.hook_events import NO_REPLY, HookReply
from liza.programs.rules.lifecycle_rules import LifecycleEvent
from liza.programs.session.run_directory import RunDir, RunRecord, Turn, TurnSource
from liza.system.locks import lock_path

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
E = LifecycleEvent


def make_run(root: Path, run: str = "coder-1.1") -> RunDir:
    directory = RunDir(Paths(root), run)
    directory.create(RunRecord(agent=directory.agent, run=run, kind="work", started=NOW, task="task-1"))
    return directory


def event(name: LifecycleEvent, second: float = 0, run: str = "coder-1.1", **more: object) -> LifecycleRequest:
    return LifecycleRequest(event=name, run_id=run, timestamp=NOW + timedelta(seconds=second), **more)  # type: ignore[arg-type]


def test_reported_events_are_the_record_that_hooks_write(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert report_lifecycle(run, event(E.STARTED, session_id="s-1"), NOW).applied
    assert not run.is_ready()
    assert report_lifecycle(run, event(E.READY, 1), NOW).applied
    assert run.is_ready()
    sentinel = run.read_sentinel()
    assert sentinel is not None
    assert sentinel.evidence == "api ready"
    assert report_lifecycle(run, event(E.BUSY, 2.5), NOW).state == E.BUSY
    turn = run.read_turn()
    assert turn == Turn(time=NOW + timedelta(seconds=2.5), phase="busy", session="s-1", source=TurnSource.API)
    report_lifecycle(run, event(E.STOPPED, 3, metadata={"exit_code": 3}), NOW, TurnSource.ACP)
    turn = run.read_turn()
    assert turn is not None
    assert (turn.phase, turn.exit_code, turn.source) == ("stopped", 3, TurnSource.ACP)


def test_a_hook_does_not_undo_what_the_runtime_reports_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    guard_files.install_guards(run, guard_files.load_guards(run.paths, tmp_path), tmp_path, None, "deny")
    report_lifecycle(run, event(E.BUSY), NOW)
    inbox.queue_message(run.paths, "coder-1", "x", "ann", NOW, "system")
    payload = json.dumps({"tool_name": "Bash", "tool_input": {"command": "ls"}, "session_id": "s"}).encode()
    hook = Hook("claude", "PreToolUse", payload, {"LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(tmp_path)})
    is_at_inbox, claim = threading.Event(), inbox.claim_for_hook

    def claim_later(*words: Any, **more: Any) -> Any:
        is_at_inbox.set()
        return claim(*words, **more)

    monkeypatch.setattr(inbox, "claim_for_hook", claim_later)
    thread = threading.Thread(target=hook.reply)
    with inbox.lock_inbox(run.paths, "coder-1"):  # as the stream of the run takes it for a moment
        thread.start()
        assert is_at_inbox.wait(30)
        assert report_lifecycle(run, event(E.IDLE, 1), NOW).applied
    thread.join()
    turn = run.read_turn()
    assert turn is not None
    assert (turn.phase, turn.tools, turn.source, turn.session) == ("idle", 1, TurnSource.API, "s")


def test_hooks_and_reports_take_the_same_lock_of_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path)
    report_lifecycle(run, event(E.BUSY), NOW)
    before = run.read_turn()
    monkeypatch.setattr(lifecycle, "LOCK_LIMIT", 0.0)
    with lock_path(run.path / lifecycle.TURN_LOCK, 0.0):
        with pytest.raises(LockTimeout):
            report_lifecycle(run, event(E.IDLE, 1), NOW)
        Hook("claude", "Stop", b"{}", {"LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(tmp_path)}).reply()
    assert "LockTimeout" in (run.path / "hooks.log").read_text()
    assert run.read_turn() == before


HOLD = """
import fcntl, os, signal, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_stopped_lock_holder_is_logged_and_lets_messages_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    guard_files.install_guards(run, guard_files.load_guards(run.paths, tmp_path), tmp_path, None, "deny")
    report_lifecycle(run, event(E.BUSY), NOW)
    waits: list[float] = []

    def lock_with(path: Path, limit: float, *words: Any, **more: Any) -> Any:
        waits.append(limit)
        return lock_path(path, min(limit, 0.01), *words, **more)

    monkeypatch.setattr(lifecycle, "lock_path", lock_with)

    def call(command: str, name: str = "PreToolUse") -> HookReply:
        payload = json.dumps({"tool_name": "Bash", "tool_input": {"command": command}, "session_id": "s"}).encode()
        return Hook("claude", name, payload, {"LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(tmp_path)}).reply()

    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(run.path / lifecycle.TURN_LOCK)])
    try:
        os.waitpid(holder.pid, os.WUNTRACED)
        inbox.queue_message(run.paths, "coder-1", "look at cart.py", "ann", NOW, "system")
        assert "look at cart.py" in call("ls").out
        assert call("git push").code == 2
        assert call("ls").code == 0
        inbox.queue_message(run.paths, "coder-1", "and at shop.py", "ann", NOW, "normal")
        assert call("", "Stop") == NO_REPLY  # a push that cannot be counted
    finally:
        holder.kill()
        holder.wait()
    log = (run.path / "hooks.log").read_text().splitlines()
    assert all(f"holds it, {holder.pid}: kill -CONT {holder.pid}" in line for line in log)
    turn = run.read_turn()
    assert turn is not None
    assert turn.tools == 0
    call("ls")
    call("ls")
    assert "and at shop.py" in call("", "Stop").out
    turn = run.read_turn()
    assert turn is not None
    assert turn.tools == 2
    assert waits == [LOCK_LIMIT] * 6


def test_an_unusable_inbox_does_not_hide_the_turn(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.path.parent / "inbox").mkdir()
    (run.path.parent / "inbox" / "done").symlink_to(tmp_path)
    (run.path.parent / "inbox" / "x.json").write_text("{")
    environ = {"LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(tmp_path)}
    hook = Hook("claude", "UserPromptSubmit", b'{"session_id": "s", "prompt": "x"}', environ)
    hook.reply()
    assert (run.path / "hooks.log").exists()
    assert hook.messages == ()
    turn = run.read_turn()
    assert turn is not None
    assert turn.phase == "busy"
    assert run.is_ready()


def test_a_late_event_is_answered_and_changes_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    report_lifecycle(run, event(E.IDLE, 5), NOW)
    before = run.read_turn()
    answer = report_lifecycle(run, event(E.BUSY, 4), NOW)
    assert (answer.applied, answer.state) == (False, "idle")
    assert "late" in str(answer.reason)
    assert run.read_turn() == before


def test_a_run_that_is_unknown_over_or_replaced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownId, match=r"no run coder-1\.1"):
        report_lifecycle(RunDir(Paths(tmp_path), "coder-1.1"), event(E.BUSY), NOW)
    run = make_run(tmp_path)
    with pytest.raises(FutureTime):
        report_lifecycle(run, event(E.BUSY, 90), NOW)
    with pytest.raises(UsageError, match="exit_code is 'x'"):
        report_lifecycle(run, event(E.STOPPED, metadata={"exit_code": "x"}), NOW)
    make_run(tmp_path, "coder-1.10")
    with pytest.raises(RunIsOver, match=r"at its run coder-1\.10"):
        report_lifecycle(run, event(E.BUSY), NOW)
    newest = RunDir(Paths(tmp_path), "coder-1.10")
    newest.mark_concluded("finished: done")
    with pytest.raises(RunIsOver, match="its end is recorded"):
        report_lifecycle(newest, event(E.BUSY, run="coder-1.10"), NOW)
    assert run.read_turn() is None


def _report(root: Path, numbers: range) -> int:
    run = RunDir(Paths(root), "coder-1.1")
    names = (E.BUSY, E.IDLE)
    return sum(
        report_lifecycle(run, event(names[number % 2], number), NOW + timedelta(hours=1)).applied for number in numbers
    )


@pytest.mark.campaign
def test_many_processes_that_report_the_same_events_apply_each_once(tmp_path: Path) -> None:
    make_run(tmp_path)
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        applied = pool.starmap(_report, [(tmp_path, range(40))] * 4)
    assert sum(applied) <= 40
    turn = RunDir(Paths(tmp_path), "coder-1.1").read_turn()
    assert turn is not None
    assert (turn.phase, turn.time) == ("idle", NOW + timedelta(seconds=39))


def test_hooks_of_a_run_whose_runtime_reports_only_count_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    run = make_run(tmp_path)
    report_lifecycle(run, event(E.BUSY, 1, session_id="s-1"), NOW, TurnSource.ACP)
    environ = {"LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(tmp_path)}
    for name in ("PreToolUse", "Stop"):
        payload = b'{"session_id": "s-1", "tool_name": "Bash", "tool_input": {"command": "ls"}}'
        Hook("claude", name, payload, environ).reply()
    turn = run.read_turn()
    assert turn is not None
    assert (turn.phase, turn.tools, turn.source) == ("busy", 1, TurnSource.ACP)
    assert turn.time == NOW + timedelta(seconds=1)


def test_files_an_agent_wrote_in_a_run_stop_no_report(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.path.parent / "coder-1.999").mkdir()
    forged = run.path.parent / "coder-1.998"
    forged.mkdir()
    (forged / "run.json").write_text("[")
    run.write_turn(Turn(time=NOW, phase="dancing", source=TurnSource.API))
    assert report_lifecycle(run, event(E.BUSY, 1), NOW).applied
    run.write_turn(Turn(time=NOW, phase="dancing", source=TurnSource.API))
    assert PromptStream(run).next_prompts(NOW) == ()
    (run.path / "turn.json").write_text("{")
    with pytest.raises(LizaError, match=r"turn\.json cannot be read"):
        report_lifecycle(run, event(E.BUSY, 2), NOW)
