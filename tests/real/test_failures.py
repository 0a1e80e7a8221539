"""Real programs whose model refuses them, fails, or is not let do anything, and one that does not want to end."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from liza.model.paths import Paths
from liza.programs.presets import preset_table
from liza.programs.session.program_faults import FaultKind, find_faults
from tests.journeys.crews import BIN
from tests.real import rigs
from tests.real.conftest import Begin
from tests.real.model import Fault, Say, Shell, turns
from tests.real.test_headless import WORK

pytestmark = pytest.mark.real

REFUSED = Fault(401, message="Incorrect API key provided")
LIMITED = Fault(429, retry_after=3600, message="You have hit your usage limit. Try again in 3600s")


@pytest.mark.parametrize("program", ["codex", "pi", "copilot", "vibe", "qwen", "opencode", "gemini"])
def test_a_refused_login_ends_the_supervisor_and_leaves_the_task(begin: Begin, program: str) -> None:
    scene = begin([program], WORK, REFUSED)
    scene.crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: supervisor.process.poll() is not None, "the supervisor's leave")
    told = scene.status()
    assert "login" in told, scene.told()
    assert "401" in told or "key" in told.lower(), told
    assert scene.crew.task("one").iteration <= 1
    assert scene.crew.living() == []


@pytest.mark.parametrize("program", ["copilot", "vibe", "claude"])
def test_status_names_the_end_of_an_awaited_use_limit(begin: Begin, program: str) -> None:
    scene = begin([program], WORK, LIMITED)
    scene.crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: "quota" in scene.crew.heard("one"), "the limit in the task's history", supervisor)
    scene.wait(lambda: "until" in scene.status(), "the time in status", supervisor)
    task = scene.crew.task("one")
    assert (task.status.value, task.assigned_to) == ("CLAIMED", "coder-1")
    assert supervisor.stop() == 0


@pytest.mark.parametrize("program", ["gemini", "opencode", "codex", "pi", "vibe", "qwen"])
def test_a_model_that_always_fails_is_cut_off_and_named(begin: Begin, program: str) -> None:
    scene = begin([program], WORK, Fault(500, message="the server is on fire"), answer_timeout=20)
    scene.crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: "unanswered" in scene.crew.heard("one"), "the end in the history", supervisor)
    (told, *_) = [event.detail or "" for event in scene.crew.task("one").history if event.event == "unanswered"]
    assert any(word in told.lower() for word in ("500", "error", "demand", "answer")), told
    assert supervisor.stop() == 0
    assert scene.crew.living() == []


@pytest.mark.parametrize("program", ["gemini", "copilot", "opencode", "qwen", "vibe"])
def test_a_program_with_all_tools_denied_gets_its_task_blocked(begin: Begin, program: str) -> None:
    scene = begin([program], turns(Shell("touch one.txt"), Say("All done.")), permissions="prompts")
    scene.crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: scene.crew.status("one") == "BLOCKED", "the block", supervisor)
    assert "without progress" in (scene.crew.task("one").blocked_reason or "")
    assert supervisor.stop() == 0


@pytest.mark.parametrize("program", ["gemini", "qwen", "copilot", "opencode", "pi"])
def test_nothing_of_a_program_and_its_tools_outlives_a_stop(begin: Begin, program: str) -> None:
    scene = begin([program], turns(Shell(f"{BIN / 'liza'} ready > /dev/null; exec sleep 300"), Say("All done.")))
    scene.crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: any("sleep 300" in words for words in scene.crew.living()), "the tool", supervisor)
    assert supervisor.stop() == 0
    assert scene.crew.living() == []
    assert scene.crew.task("one").history[-1].event == "stop"


@pytest.mark.parametrize("program", ["codex", "pi"])
def test_programs_check_distinguishes_a_login_from_work(begin: Begin, program: str) -> None:
    done = "printf done > proof.txt && git add proof.txt && git commit -q -m proof"
    scene = begin([program], turns(Shell(f"{done} && {BIN / 'liza'} submit"), Say("All done.")))
    assert f"{program}  " in scene.crew.liza("programs", "check", program)
    scene.model.faults.append(REFUSED)
    told = scene.crew.run("programs", "check", program)
    assert told.returncode == 1
    assert "login" in told.stdout


@pytest.mark.parametrize("program", ["claude", "codex", "gemini", "qwen", "copilot", "pi", "vibe"])
def test_a_missing_login_but_no_present_one_is_reported(program: str, tmp_path: Path) -> None:
    rig = rigs.RIGS[program]
    assert rigs.install(rig) is None
    rows = preset_table.load_presets(Paths(tmp_path), tmp_path).rows
    row = msgspec.structs.replace(rows[program], command=str(rig.path))
    outside = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    (missing,) = (fault for fault in find_faults(row, "", outside) if fault.kind is FaultKind.LOGIN)
    assert missing.next == row.login.next
    settled = {**outside, **rig.settle(tmp_path, 9)}
    assert [fault for fault in find_faults(row, "", settled) if fault.kind is FaultKind.LOGIN] == []
