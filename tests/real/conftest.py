"""A crew whose programs are real ones, with a scripted model behind them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from liza.model.configuration import Config
from liza.model.model import State
from liza.model.spending import LedgerEntry
from liza.usage import ledger
from tests.journeys.crews import Crew, Supervisor, started
from tests.real import rigs
from tests.real.model import Fault, Model, Script, serving

SLOW = 150.0
"""Seconds for a program to do its work: some take half a minute to come up on a machine with other work."""


@dataclass
class Scene:
    """A crew, the model that all its programs ask, and what they did."""

    crew: Crew
    model: Model

    def said_to_model(self) -> str:
        """Everything that any program told the model."""
        return "\n".join(asked.text for asked in self.model.asked)

    def start(self, program: str, agent: str = "coder-1") -> Supervisor:
        return self.crew.agent(agent, program)

    def spent(self) -> list[LedgerEntry]:
        """The lines of the ledger, which come after the board has been told."""
        return list(ledger.read_entries(self.crew.paths))

    def status(self) -> str:
        return self.crew.liza("status")

    def wait(self, condition: Callable[[], object], what: str, supervisor: Supervisor | None = None) -> None:
        """Until it is so, or the supervisor has left, or the time is over."""

        def come(_: State) -> bool:
            return bool(condition()) or (supervisor is not None and supervisor.process.poll() is not None)

        try:
            self.crew.wait(come, what, SLOW)
            assert condition(), f"{what} did not come: the supervisor left"
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from error

    def told(self) -> str:
        """What could say why it went wrong."""
        asked = [f"{one.path} done {one.done} shell {one.shell}" for one in self.model.asked]
        return f"{self.crew.told()}\nasked: {asked}\nothers: {self.model.others}"


Begin = Callable[..., Scene]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """``begin(programs, script, *faults, **settings)``: a crew in which these programs can be started."""
    with ExitStack() as stack:

        def made(programs: list[str], script: Script, *faults: Fault, **settings: object) -> Scene:
            home = Path(os.environ["HOME"])
            model = stack.enter_context(serving(script, *faults))
            # The time of a real crew: a real program says its last words after its closing command.
            usual = {"permissions": "bypass", "grace": Config().grace}
            crew = stack.enter_context(started(tmp_path, **{**usual, **settings}))
            for name in programs:
                rig = rigs.RIGS[name]
                failed = rigs.install(rig)
                assert failed is None, failed
                for key, value in rig.settle(home, model.port).items():
                    monkeypatch.setenv(key, value)
                monkeypatch.setenv("PATH", f"{rig.path.parent}{os.pathsep}{os.environ['PATH']}")
            return Scene(crew, model)

        yield made


def lines(text: str) -> list[dict]:
    """The objects in a program's output."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            found.append(json.loads(line))
    return found
