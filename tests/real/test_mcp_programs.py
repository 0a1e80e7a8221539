"""Real programs that Liza did not start claim a task over MCP, work, and submit it. Their model is scripted."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.journeys.crews import APPROVE, start_up
from tests.journeys.mcp_programs import make_worktree
from tests.real.conftest import Begin
from tests.real.model import Asked, Call, Say, Script, Shell, Turn

pytestmark = pytest.mark.real

LIMIT = 300.0
COMMANDS = {
    "claude": ["claude", "-p", "--dangerously-skip-permissions", "Take a task of Liza, and do it."],
    "codex": ["codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "Take a task of Liza, and do it."],
}
WORK = "echo right > mail.txt && git add -A && git commit -q -m 'Write mail.txt'"


WAITS = 8


def use_tools(*wanted: str | Shell) -> Script:
    """Turns that call tools of Liza by the end of their names: each program puts its own words before them.

    A program asks its model before its servers have started: the model waits then.
    """
    left, waits = list(wanted), [Shell("sleep 3")] * WAITS

    def answer(asked: Asked) -> Turn:
        if not asked.tools or not left:
            return Say("done")
        turn = left[0]
        if isinstance(turn, Shell):
            return left.pop(0)  # type: ignore[return-value]
        name = next((name for name in asked.tools if name.endswith(turn)), None)
        if name is not None:
            left.pop(0)
            return Call(name, {})
        return waits.pop() if waits else Say(f"no tool {turn} in {list(asked.tools)}")

    return answer


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_program_lands_a_task_that_it_claimed_over_mcp(
    begin: Begin, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = use_tools("list_tasks", "claim_task", Shell(WORK), "submit_work", "queue_status")
    scene = begin([name], script)
    crew = scene.crew
    crew.add("mail")
    worktree = make_worktree(crew, "their-work")
    monkeypatch.setenv("IS_SANDBOX", "1")  # claude: as root it skips no permissions elsewhere
    crew.liza("mcp", "install", name, "--write")
    checked = json.loads(crew.run("programs", "check", name, "--mcp", "--json", cwd=worktree).stdout)
    assert checked["ok"], checked
    done = subprocess.run(
        COMMANDS[name], cwd=worktree, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
    )
    told = f"{done.stdout}\n{done.stderr}\n{scene.told()}"
    task = crew.task("mail")
    assert task.status == "READY_FOR_REVIEW", told
    assert task.submission is not None
    assert task.submission.program == name
    start_up(crew, "--planners", "0", "--coders", "0", "--program", crew.script("reviewer", APPROVE))
    crew.wait_status("mail", "MERGED")
    assert crew.git("show", "integration:mail.txt") == "right"
