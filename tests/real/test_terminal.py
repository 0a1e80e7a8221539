"""Real programs in real terminals: their screens are understood, and what is typed reaches their model, once."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.model.paths import Paths
from liza.programs.liveness import RunningSession
from liza.programs.presets import command_line, preset_table
from liza.programs.presets.preset import Preset
from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.programs.terminal import keyboard, readiness, tmux
from liza.programs.terminal.keyboard import InputLine, NotSent, Sent
from liza.programs.terminal.pane import Pane
from liza.programs.terminal.readiness import NotReady, NotReadyReason, Ready
from liza.system.installation import liza_path
from tests.conftest import git, until
from tests.edges.programs.test_tmux import Seat, seated
from tests.real import rigs
from tests.real.conftest import Begin
from tests.real.model import Asked, Model, Say, Shell, Turn, serving, turns

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not tmux.is_installed(), reason="there is no tmux here"),
]
SLOW = 90.0
PROGRAMS = ["codex", "pi", "gemini", "qwen", "vibe", "opencode", "copilot", "claude"]
ONCE = {"claude": {".claude.json": '{"hasCompletedOnboarding":true,"customApiKeyResponses":{"approved":["sk-dummy"]}}'}}
"""What somebody who has started it before has in their home: without a net it would end there."""
LONG = "the long message says 0815 " * 50


class Clock:
    @staticmethod
    def monotonic() -> float:
        return time.monotonic()


class Seen:
    """One program at a terminal, and the model that it asks."""

    def __init__(self, name: str, root: Path, model: Model) -> None:
        rig = rigs.RIGS[name]
        failed = rigs.install(rig)
        assert failed is None, failed
        self.root = root
        self.model = model
        self.run = RunDir(Paths(root), "coder-1.1")
        self.run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=datetime.now(UTC)))
        more = rig.settle(Path.home(), model.port)
        for place, text in ONCE.get(name, {}).items():
            (Path.home() / place).write_text(text)
        path = f"{rig.path.parent}{os.pathsep}{os.environ['PATH']}"
        self.preset: Preset = preset_table.load_presets(Paths(root)).resolve(name)
        self.env = command_line.compose_environment(
            self.preset,
            {**os.environ, **more, "PATH": path},
            run="coder-1.1",
            task=None,
            root=root,
            liza=liza_path(),
        )
        how = replace(command_line.select_launch_mode(self.preset, interactive=True), prompt="none")
        places = (root / ".liza", root / ".git")
        ground = command_line.SessionScope(
            "prompts", cwd=root, run_dir=self.run.path, writable_dirs=places, liza_path=liza_path()
        )
        command = command_line.build_command(self.preset, how, "", ground)
        self.env |= command.env
        self.words = [str(rig.path), *command.argv[1:]]

    def start(self) -> Pane:
        started = tmux.start(self.run.path, self.words, self.root, self.env)
        assert isinstance(started, RunningSession), started
        pane = tmux.find_pane(self.root, "coder-1.1")
        assert pane is not None
        return pane

    def stands(self, pane: Pane) -> Ready | NotReady:
        """Once it is known how it stands."""
        began = time.monotonic()
        while True:
            found = readiness.classify_readiness(
                readiness.gather_facts(self.run, self.preset, time.monotonic() - began, SLOW, pane)
            )
            if isinstance(found, Ready | NotReady):
                return found
            time.sleep(0.2)

    def told(self, pattern: str) -> int:
        """How often the model was told something, in the request that said it most."""
        return max((len(re.findall(pattern, asked.text)) for asked in self.model.asked), default=0)


@pytest.fixture
def seen(request: pytest.FixtureRequest, repo: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    with tempfile.TemporaryDirectory(prefix="tm", ignore_cleanup_errors=True) as sockets:
        monkeypatch.setenv("TMUX_TMPDIR", sockets)
        git(repo, "config", "user.name", "Test Person")
        with serving(lambda asked: Say("Hello to you too. All is done.")) as model:
            made = Seen(request.param, repo, model)
            yield made
            session_process.stop(made.run.path, "coder-1.1", repo, grace=3.0)
            tmux.close_all_panes(repo)


def past_the_dialogs(seen: Seen, pane: Pane) -> None:
    """What a first start asks is answered by a person, and never by Liza: it names the question, and types nothing."""
    for _ in range(3):
        stands = seen.stands(pane)
        if isinstance(stands, Ready):
            return
        assert stands.kind is NotReadyReason.DIALOG, (stands, pane.capture())
        refused = keyboard.send(pane, "hello", seen.preset, Clock)
        assert isinstance(refused, NotSent)
        assert refused.reason == stands.reason
        before = pane.capture()
        pane.press_enter()
        end = time.monotonic() + SLOW
        while pane.capture() == before and time.monotonic() < end:
            time.sleep(0.2)
        time.sleep(1.0)


@pytest.mark.parametrize("seen", PROGRAMS, indirect=True)
def test_typed_text_reaches_the_model_whole_and_once(seen: Seen) -> None:
    pane = seen.start()
    past_the_dialogs(seen, pane)
    for text, pattern, times in (("greet 4711 and\nstop then", "4711 and\\s+stop then", 1), (LONG, "0815", 50)):
        came = keyboard.send(pane, text, seen.preset, Clock, limit=SLOW)
        assert isinstance(came, Sent), f"{came}\n{pane.capture()}"
        end = time.monotonic() + SLOW
        while seen.told(pattern) < times and time.monotonic() < end:
            time.sleep(0.2)
        assert seen.told(pattern) == times, pane.capture()


@pytest.mark.parametrize("seen", PROGRAMS, indirect=True)
def test_a_persons_half_line_is_never_sent_with_a_message(
    seen: Seen,
) -> None:
    pane = seen.start()
    past_the_dialogs(seen, pane)
    seat = seated(pane)
    try:
        until(lambda: keyboard.classify_line(pane.screen(0.0), seen.preset) is InputLine.EMPTY, "an empty line")
        seat.type("HALFLINE")
        until(lambda: keyboard.classify_line(pane.screen(0.0), seen.preset) is InputLine.BEGUN, "a line that was begun")
    finally:
        seat.leave(signal.SIGKILL)
    until(lambda: pane.screen(0.0).seconds_since_key is None, "the person has left")
    came = keyboard.send(pane, "the message", seen.preset, Clock, limit=1.0)
    assert isinstance(came, NotSent)
    assert came.reason == "a person has begun a line in it"
    assert seen.told("HALFLINE") == 0
    assert seen.told("the message") == 0


@pytest.mark.parametrize("program", ["codex", "pi", "gemini"])
def test_an_attached_person_moves_between_sessions_without_a_crash(
    begin: Begin, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="tm", ignore_cleanup_errors=True) as sockets:
        monkeypatch.setenv("TMUX_TMPDIR", sockets)
        # A time of grace that nobody waits for: what ends a session is that its turn is over.
        scene = begin([program], each_task, grace=100_000)
        crew = scene.crew
        crew.add("one", "two")
        supervisor = crew.agent("coder-1", program, "--tmux")
        scene.wait(lambda: tmux.find_pane(crew.root, "coder-1.1") is not None, "a terminal", supervisor)
        pane = tmux.find_pane(crew.root, "coder-1.1")
        assert pane is not None
        seat = Seat(pane.attach_argv)
        try:
            for task in ("one", "two"):
                scene.wait(lambda task=task: crew.status(task) == "READY_FOR_REVIEW", "work in review", supervisor)
            scene.wait(lambda: len(scene.spent()) == 2, "the end of both sessions", supervisor)
        finally:
            seat.leave(signal.SIGKILL)
        assert supervisor.stop() == 0
        assert [one.outcome for one in scene.spent()] == ["finished", "finished"]
        assert [crew.task(task).iteration for task in ("one", "two")] == [1, 1]
        tmux.close_all_panes(crew.root)


def each_task(asked: Asked) -> Turn:
    """A file for the task of the brief, and a submit; then the turn is over."""
    task = (re.findall(r"TASK (\w+) ", asked.text) or ["none"])[-1]
    commit = f"printf x > {task}.txt && git add {task}.txt && git commit -q -m {task} && {liza_path()} submit"
    return turns(Shell(commit), Say("done"))(asked)
