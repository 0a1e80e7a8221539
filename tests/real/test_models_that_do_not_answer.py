"""Each fault of a model with each real program: what `status` says, how soon, and how many requests that took.

The figures are printed as a table, and written where REAL_TABLE names a file. No figure is asserted, but that the
reason stands in `status` at all: seconds are those of a machine that does other things as well.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from liza.crew.crew import find_crew
from liza.view import status
from tests.real.conftest import Begin, Scene
from tests.real.model import Fault
from tests.real.test_headless import WORK, edits

pytestmark = pytest.mark.real

SAYS_NOTHING = {("pi", "429, Retry-After 3600"), ("qwen", "429, Retry-After 3600")}
"""Programs that wait out such a limit without a word: what can be told is that they are silent."""
PROGRAMS = ["codex", "pi", "gemini", "opencode", "claude", "qwen", "copilot", "vibe", "aider"]
TIMEOUT = 60
"""Seconds without an answer after which a session is ended: 300 where nobody says otherwise."""
LONGER_THAN_A_START = 75
"""The same for a model that is silent: what most programs may take to start is over before."""
LOGIN = r"the model refuses the program's login: \S"
QUOTA = r"a usage limit is reached: \S"
BROKEN = r"its model answers with errors: \S|its model's answers break off: \S"
SILENT = r"no answer from its model for \d+"


@dataclass(frozen=True)
class Case:
    """A fault, and what the reason of an agent has to match."""

    fault: Fault
    reason: str
    timeout: int = TIMEOUT


CASES = {
    "401": Case(Fault(401, message="Incorrect API key provided"), LOGIN),
    "429, Retry-After 5": Case(Fault(429, retry_after=5, message="Rate limit reached for requests"), QUOTA),
    "429, Retry-After 3600": Case(Fault(429, retry_after=3600, message="You have hit your usage limit"), QUOTA),
    "500": Case(Fault(500, message="the server is on fire"), BROKEN),
    "silent": Case(Fault(200, breaks="silent"), SILENT, LONGER_THAN_A_START),
    "closed": Case(Fault(200, breaks="closed"), BROKEN),
    "cut": Case(Fault(200, breaks="cut"), BROKEN),
    "malformed": Case(Fault(200, breaks="malformed"), BROKEN),
}


def why(scene: Scene) -> str:
    """The reason of the agent in `status`, and its status."""
    (found,) = [one for one in status.status(find_crew(scene.crew.root)).fields()["agents"] if one["id"] == "coder-1"]
    return f"{found['status']}: {found['why'] or ''}"


def note(program: str, name: str, seconds: float, requests: int, reason: str) -> None:
    """A row of the table."""
    row = f"| {program} | {name} | {seconds:.0f} | {requests} | {' '.join(reason.split())} |"
    print(row)
    if os.environ.get("REAL_TABLE"):
        with Path(os.environ["REAL_TABLE"]).open("a") as table:
            table.write(row + "\n")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", CASES)
def test_a_failing_model_is_the_reason_in_status_without_blame(begin: Begin, program: str, name: str) -> None:
    case = CASES[name]
    reason_wanted = f"{case.reason}|{SILENT}" if (program, name) in SAYS_NOTHING else case.reason
    script = edits if program == "aider" else WORK
    scene = begin([program], script, case.fault, answer_timeout=case.timeout, restart_after_crash=20.0)
    scene.crew.add("one")
    supervisor = scene.start(program)
    scene.wait(lambda: scene.model.asked, "the first request", supervisor)
    first = time.monotonic()
    seen: list[str] = []

    def is_told(pattern: str) -> bool:
        """Whether it was told, now or before: what `status` says goes on to change."""
        seen.append(why(scene))
        return any(re.search(pattern, one) for one in seen)

    scene.wait(lambda: is_told(reason_wanted), f"a reason like {reason_wanted!r} in status")
    seconds, requests = time.monotonic() - first, len(scene.model.asked)
    reason = next(one for one in seen if re.search(reason_wanted, one))
    scene.wait(
        lambda: {"quota", "unusable", "unanswered"} & set(scene.crew.heard("one")), "the end in the history", supervisor
    )
    note(program, name, seconds, requests, reason)
    if case.reason is LOGIN:
        assert supervisor.process.wait(timeout=60) == 5
        assert re.search(LOGIN, why(scene)), why(scene)
    else:
        scene.wait(lambda: is_told(f"WAITING: .*({reason_wanted})"), "the rest, and why", supervisor)
        assert supervisor.stop() == 0
    task = scene.crew.task("one")
    assert (task.status.value, task.iteration, task.failed_by, task.blocked_reason) == ("CLAIMED", 1, (), None)
    assert "crash" not in scene.crew.heard("one")
    detail = next(event.detail or "" for event in task.history if event.event in ("quota", "unusable", "unanswered"))
    assert re.search(reason_wanted, detail), detail
    assert not re.search(r'\{"|\bat .+:\d+:\d+\)', reason + detail), reason + detail
