"""Real programs with a model that a person names: it arrives at the model's server, and one that is not there is told.

The scripted server knows no names: a request has the name in its body, or in its path.
"""

from __future__ import annotations

import re
import time

import pytest

from tests.journeys.crews import Crew
from tests.real.conftest import Begin, Scene
from tests.real.model import Asked, Fault
from tests.real.test_acp import WORK as ACP_WORK
from tests.real.test_acp import of
from tests.real.test_conversations import REASON, working
from tests.real.test_headless import edits

pytestmark = pytest.mark.real

NAMED = {
    "codex": "other-model",
    "pi": "scripted/other-model",
    "copilot": "other-model",
    "gemini": "gemini-2.5-pro",
    "vibe": "other",
    "opencode": "scripted/other-model",
    "qwen": "other-model",
    "claude": "other-model",
}
"""What is typed after ``@``; where that is a path or an alias, the request has ``other-model``."""
OVER_ACP = ["copilot", "opencode", "vibe", "qwen", "gemini", "claude", "codex"]


def name_of(asked: Asked) -> str:
    """The name of the model in a request."""
    match = re.search(r"/models/([^/:]+):", asked.path)
    return match[1] if match else str(asked.body.get("model"))


def names(scene: Scene) -> set[str]:
    """The models of all requests with tools: those for a title may go to a smaller one."""
    return {name_of(asked) for asked in scene.model.asked if asked.tools}


def wanted(program: str) -> set[str]:
    return {"gemini-2.5-pro" if program == "gemini" else "other-model"}


@pytest.mark.parametrize("program", NAMED)
def test_the_named_model_is_asked_also_in_a_resumed_conversation(begin: Begin, program: str) -> None:
    scene = begin([program], working, restart_after_crash=1)
    crew = scene.crew
    crew.add("one")
    supervisor = scene.start(f"{program}@{NAMED[program]}")
    scene.wait(lambda: crew.heard("one").count("submit") == 1 and scene.spent(), "work in review", supervisor)
    assert names(scene) == wanted(program)
    crew.liza("verdict", "reject", REASON, "--task", "one")
    scene.wait(lambda: len(scene.spent()) == 2, "the second session", supervisor)
    assert supervisor.stop() == 0
    assert crew.json("task", "show", "one")["conversation"]["continues"] == "coder-1.1"
    assert names(scene) == wanted(program)
    assert {entry.model for entry in scene.spent()} == {NAMED[program]}


@pytest.mark.parametrize("program", OVER_ACP)
def test_the_named_model_is_asked_over_acp(begin: Begin, program: str) -> None:
    scene = begin(of(program), ACP_WORK)
    scene.crew.add("one")
    supervisor = scene.start(f"{program}@{NAMED[program]}:acp")
    scene.wait(lambda: scene.crew.status("one") == "READY_FOR_REVIEW" and scene.spent(), "work in review", supervisor)
    assert supervisor.stop() == 0
    assert names(scene) == wanted(program)


def test_a_program_without_tools_asks_the_named_model(begin: Begin) -> None:
    scene = begin(["aider"], edits)
    scene.crew.add("one")
    supervisor = scene.start("aider@openai/other-model")
    scene.wait(lambda: scene.crew.status("one") == "READY_FOR_REVIEW", "work in review", supervisor)
    assert supervisor.stop() == 0
    assert {name_of(asked) for asked in scene.model.asked} == {"other-model"}


MISSING = {
    "codex": Fault(
        404, message="The model `nosuch` does not exist or you do not have access to it.", code="model_not_found"
    ),
    "claude": Fault(404, message="model: nosuch"),
    "gemini": Fault(
        404,
        message="models/nosuch is not found for API version v1beta, or is not supported for generateContent. "
        "Call ListModels to see the list of available models and their supported methods.",
    ),
    "vibe": Fault(400, message="Invalid model: nosuch"),
}
"""What the servers of vendors answer."""
TYPED = {"pi": "scripted/nosuch", "opencode": "scripted/nosuch", "aider": "openai/nosuch", "vibe": "other"}
"""What is typed: of an alias that its settings do not have, vibe says nothing."""


def refused(crew: Crew, program: str) -> str:
    """The one alarm about a model that the program does not have."""
    alerts = [one for one in crew.json("status")["alerts"] if one["kind"] in ("model_refused", "supervisor_left")]
    assert [one["kind"] for one in alerts] == ["model_refused"], alerts
    assert alerts[0]["next"].endswith(f"--program coder={program}@MODEL") or f"{program}@MODEL" in alerts[0]["next"]
    return str(alerts[0]["message"])


@pytest.mark.parametrize("program", [*NAMED, *(f"{name}:acp" for name in OVER_ACP), "aider"])
def test_a_model_that_is_not_there_ends_the_crew_at_once(begin: Begin, program: str) -> None:
    name, _, over = program.partition(":")
    scene = begin(of(name) if over else [name], ACP_WORK, MISSING.get(name, MISSING["codex"]))
    scene.crew.add("one")
    started = time.monotonic()
    supervisor = scene.start(f"{name}@{TYPED.get(name, 'nosuch')}" + (":acp" if over else ""))
    scene.wait(lambda: supervisor.process.poll() is not None, "the supervisor's leave")
    seconds = time.monotonic() - started
    told = refused(scene.crew, name)
    print(f"{program}: {seconds:.1f} s, {len(scene.model.asked)} requests: {told}")
    assert "nosuch" in told
    assert scene.crew.heard("one").count("claim") == 1
    assert scene.crew.living() == []
