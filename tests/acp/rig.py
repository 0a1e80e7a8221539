"""A sidecar with the scripted program, without a crew."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from liza.briefs import inbox
from liza.model.paths import Paths
from liza.programs.presets import command_line
from liza.programs.presets.command_line import SidecarOrder
from liza.programs.presets.preset import AcpSettings
from liza.programs.session.run_directory import RunDir, RunRecord
from tests.conftest import until

AGENT = Path(__file__).with_name("agent.py")
SIDECAR = Path(__file__).with_name("lenient_sidecar.py")
BRIEF = "THE BRIEF"
CLOSE = {"shell": "echo 0 > $LIZA_ROOT/.liza/run/coder-1/$LIZA_RUN/word"}
"""The program calls a closing command: `liza submit` writes this file. The guards would forbid this way to do it."""


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@dataclass
class Rig:
    """The scripted program below ``home``, and the runs of one agent that are driven with it."""

    root: Path
    runs: int = 0
    process: subprocess.Popen[bytes] | None = None
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        (self.root / ".liza").mkdir()

    @property
    def home(self) -> Path:
        return self.root / "agent"

    @property
    def run_dir(self) -> RunDir:
        return RunDir(Paths(self.root), f"coder-1.{self.runs}")

    def script(self, *turns: list[dict], **switches: Any) -> None:
        (self.home / "script.json").write_text(json.dumps({"turns": turns, **switches}))

    def start(
        self,
        *,
        conversation: str | None = None,
        brief: str = BRIEF,
        fault: str = "",
        strict: bool = False,
        **settings: Any,
    ) -> None:
        """Start the sidecar of the next run."""
        silence = settings.pop("silence_limit", 30.0)
        self.runs += 1
        self.run_dir.create(RunRecord(agent="coder-1", run=self.run_dir.run, kind="work", started=now()))
        order = SidecarOrder(
            program="scripted",
            argv=settings.pop("argv", (sys.executable, str(AGENT), str(self.home))),
            cwd=str(self.root),
            acp=AcpSettings(**settings),
            conversation=conversation,
            silence_limit=silence,
        )
        command_line.write_order(self.run_dir.path, order)
        env = {**os.environ, "LIZA_ROOT": str(self.root), "LIZA_RUN": self.run_dir.run}
        (self.run_dir.path / "stdin").write_text(brief)
        with self.run_dir.output_path.open("wb") as output, (self.run_dir.path / "stdin").open("rb") as stdin:
            self.process = subprocess.Popen(
                [sys.executable, str(SIDECAR), str(self.run_dir.path)],
                cwd=self.root,
                env={**env, "LIZA_FAULT": fault} if fault else env,
                stdin=stdin,
                stdout=output,
                stderr=(self.run_dir.path / "stderr").open("wb"),
                start_new_session=True,
            )
        self.started.append(self.process)

    def end(self) -> int:
        """Wait for the end of the sidecar, and return its exit status."""
        assert self.process is not None
        try:
            status = self.process.wait(30)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end\n{self.told()}") from None
        assert (self.run_dir.path / "stderr").read_text() == ""
        return status

    def told(self) -> str:
        return f"{self.run_dir.output_path.read_text()}\n{(self.run_dir.path / 'stderr').read_text()}"

    def lines(self, kind: str = "") -> list[dict]:
        objects = [json.loads(line) for line in self.run_dir.output_path.read_text().splitlines()]
        return [line for line in objects if kind in ("", line["type"])]

    def received(self, method: str = "") -> list[dict]:
        """What the program received: all, or the parameters of one method."""
        log = self.home / "log.jsonl"
        messages = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [one["params"] for one in messages if one.get("method") == method] if method else messages

    def prompts(self) -> list[str]:
        return [params["prompt"][0]["text"] for params in self.received("session/prompt")]

    def note(self, text: str, priority: str = "normal") -> str:
        return inbox.queue_message(Paths(self.root), "coder-1", text, "person", now(), priority).id

    def pending(self) -> list[str]:
        return [message.text for message in inbox.list_pending(Paths(self.root), "coder-1")]

    def wait_prompts(self, count: int) -> None:
        until(lambda: len(self.prompts()) >= count, f"{count} prompts\n{self.told()}")

    def living(self) -> list[int]:
        """The programs that were started and live."""
        pids = self.home / "pids"
        return [pid for pid in map(int, pids.read_text().split()) if _lives(pid)] if pids.exists() else []

    def clean(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        for pid in self.living():
            os.kill(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
