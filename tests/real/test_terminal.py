"""Real programs in real terminals: their screens are understood, and what is typed reaches their model, once."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.programs import environment, keyboard, presets, readiness, session, startup, tmux
from liza.programs.keyboard import NotSent, Sent
from liza.programs.pane import Pane
from liza.programs.preset import Preset
from liza.programs.readiness import Kind, NotReady, Ready
from liza.programs.rundir import Record, RunDir
from liza.programs.session import Living
from liza.rules.paths import Paths
from liza.verbs.liza_path import liza_path
from tests.conftest import git
from tests.real import rigs
from tests.real.model import Model, Say, serving

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
        self.run.create(Record(agent="coder-1", run="coder-1.1", kind="work", started=datetime.now(UTC)))
        more = rig.settle(Path.home(), model.port)
        for place, text in ONCE.get(name, {}).items():
            (Path.home() / place).write_text(text)
        path = f"{rig.path.parent}{os.pathsep}{os.environ['PATH']}"
        self.preset: Preset = presets.load(Paths(root)).named(name)
        self.env = environment.compose(
            self.preset,
            {**os.environ, **more, "PATH": path},
            run="coder-1.1",
            task=None,
            root=root,
            liza=liza_path(),
        )
        how = replace(startup.mode(self.preset, interactive=True), prompt="none")
        places = (root / ".liza", root / ".git")
        ground = startup.Ground("confined", cwd=root, run=self.run.path, writes=places, liza=liza_path())
        command = startup.command(self.preset, how, "", ground)
        self.env |= command.env
        self.words = [str(rig.path), *command.argv[1:]]

    def start(self) -> Pane:
        started = tmux.start(self.run.path, self.words, self.root, self.env)
        assert isinstance(started, Living), started
        pane = tmux.pane(self.root, "coder-1.1")
        assert pane is not None
        return pane

    def stands(self, pane: Pane) -> Ready | NotReady:
        """Once it is known how it stands."""
        began = time.monotonic()
        while True:
            found = readiness.classify(readiness.gather(self.run, self.preset, time.monotonic() - began, SLOW, pane))
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
            session.stop(made.run.path, "coder-1.1", repo, grace=3.0)
            tmux.close_all(repo)


def past_the_dialogs(seen: Seen, pane: Pane) -> None:
    """What a first start asks is answered by a person, and never by Liza: it names the question, and types nothing."""
    for _ in range(3):
        stands = seen.stands(pane)
        if isinstance(stands, Ready):
            return
        assert stands.kind is Kind.DIALOG, (stands, pane.capture())
        refused = keyboard.send(pane, "hello", seen.preset, Clock)
        assert isinstance(refused, NotSent)
        assert refused.reason == stands.reason
        before = pane.capture()
        pane.enter()
        end = time.monotonic() + SLOW
        while pane.capture() == before and time.monotonic() < end:
            time.sleep(0.2)
        time.sleep(1.0)


@pytest.mark.parametrize("seen", PROGRAMS, indirect=True)
def test_what_is_typed_reaches_the_model_of_a_real_program_whole_and_once(seen: Seen) -> None:
    pane = seen.start()
    past_the_dialogs(seen, pane)
    for text, pattern, times in (("greet 4711 and\nstop then", "4711 and\\s+stop then", 1), (LONG, "0815", 50)):
        came = keyboard.send(pane, text, seen.preset, Clock, limit=SLOW)
        assert isinstance(came, Sent), f"{came}\n{pane.capture()}"
        end = time.monotonic() + SLOW
        while seen.told(pattern) < times and time.monotonic() < end:
            time.sleep(0.2)
        assert seen.told(pattern) == times, pane.capture()
