"""Sessions of real programs that Liza did not start, each in a worktree that its program made."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.conftest import SLOW, Scene
from tests.real.model import Asked, Call, Say, Shell, Turn

PROGRAMS = ["claude", "codex"]
ATTRIBUTION = re.compile(r"Co-Authored-By: [^\n<>]+<[^\n<>]+>")
WAITS = 60


@dataclass(frozen=True)
class Commit:
    """The model commits ``text`` as ``name``, with the trailer that its program asks for, if it does."""

    name: str
    text: str

    def command(self, asked: Asked) -> str:
        match = ATTRIBUTION.search(json.dumps(asked.body).replace("\\n", "\n"))
        trailer = f" -m '{match[0]}'" if match else ""
        return f"echo {self.text} > {self.name} && git add -A && git commit -q -m 'Write {self.name}'{trailer}"


@dataclass(frozen=True)
class Until:
    """The model calls a tool of Liza again and again, until the conversation has the ``word``."""

    tool: str
    word: str


Step = str | Shell | Commit | Until
"""A string is the end of the name of a tool of Liza: each program puts words of its own before it."""


class Steps:
    """A script that goes through steps, in any number of sessions."""

    def __init__(self, *steps: Step) -> None:
        self.left = list(steps)
        self._waits = WAITS

    def __call__(self, asked: Asked) -> Turn:
        while asked.tools and self.left:
            step = self.left[0]
            if isinstance(step, Until) and step.word in asked.text:
                self.left.pop(0)
                continue
            if isinstance(step, Shell | Commit):
                self.left.pop(0)
                return Shell(step.command(asked)) if isinstance(step, Commit) else step
            return self._call(asked, step)
        return Say("done")

    def _call(self, asked: Asked, step: str | Until) -> Turn:
        end = step.tool if isinstance(step, Until) else step
        name = next((name for name in asked.tools if name.endswith(end)), None)
        self._waits -= 1
        if self._waits < 0:
            return Say(f"{step} did not come; tools: {list(asked.tools)}")
        if name is None:
            return Shell("sleep 1")  # a program asks its model before its servers have started
        if isinstance(step, str):
            self.left.pop(0)
        return Call(name, {})


class OwnSession:
    """A session of a program. ``worktree``: where it works; the program makes it."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.worktree = Path()
        self.script = Steps()

    def work(self, *steps: Step) -> None:
        """Start the session, or resume it with another prompt, and wait until it has gone through the steps."""
        self.begin(*steps)
        self.wait_done()

    def begin(self, *steps: Step) -> None:
        """Start the session, or resume it, without waiting for it."""
        self.scene.model.script = self.script = Steps(*steps)
        prompt = "Take a task of Liza, and do it." if any(isinstance(step, str) for step in steps) else "Do it."
        if self.worktree == Path():
            self.start(prompt)
        else:
            self.resume(prompt)

    def start(self, prompt: str) -> None:
        raise NotImplementedError

    def resume(self, prompt: str) -> None:
        raise NotImplementedError

    def wait_done(self) -> None:
        """Wait until the session waits for its person, or has ended."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the session: its servers end with it."""

    def close(self) -> None:
        """End what it left."""

    def told(self) -> str:
        return f"left: {self.script.left}\n{self.scene.told()}"


class ClaudeSession(OwnSession):
    """A background session: `claude --bg --worktree`. A process of its own keeps it, and it ends when it is stopped."""

    NAME = "fox"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.id = self.thread = ""
        # As after a login: the process of a background session has its own environment.
        env = {"ANTHROPIC_BASE_URL": scene.model.url, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        path = Path.home() / ".claude" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        # What `liza mcp install` wrote.
        allowed = json.loads(path.read_text())["permissions"]["allow"] if path.exists() else []
        settings = {"apiKeyHelper": "echo sk-dummy", "env": env, "permissions": {"allow": ["Bash", *allowed]}}
        path.write_text(json.dumps(settings))

    def start(self, prompt: str) -> None:
        self._launch(["--worktree", self.NAME], prompt, self.scene.crew.root)
        self.worktree = self.scene.crew.root / ".claude" / "worktrees" / self.NAME

    def resume(self, prompt: str) -> None:
        self.stop()  # else it would be another one, with the same conversation
        self._launch(["--resume", self.thread], prompt, self.worktree)

    def _launch(self, words: list[str], prompt: str, directory: Path) -> None:
        said = self._run("--bg", *words, "--permission-mode", "acceptEdits", prompt, cwd=directory)
        match = re.search(r"backgrounded · (\w+)", said)
        assert match, said
        self.id = match[1]

    def stop(self) -> None:
        if self.id:
            self._run("stop", self.id)
            self.id = ""

    def wait_done(self) -> None:
        def is_done() -> bool:
            row = self._row()
            self.thread = row.get("sessionId", self.thread)
            return not self.script.left and row.get("status") == "idle"

        self.scene.wait(is_done, f"claude is done; {self.told()}")

    def _row(self) -> dict[str, Any]:
        rows = json.loads(self._run("agents", "--json", "--all"))
        return next((row for row in rows if row["id"] == self.id), {})

    def close(self) -> None:
        self._run("daemon", "stop", "--any")

    def _run(self, *words: str, cwd: Path | None = None) -> str:
        return run(["claude", *words], cwd or self.scene.crew.root)


class CodexSession(OwnSession):
    """`codex exec --worktree`, and `codex exec resume` in the worktree that it made. It ends with its turn."""

    # Its sandbox runs no command in a container.
    FREE = ("-c", "sandbox_mode='danger-full-access'")

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.words = self.FREE
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, prompt: str) -> None:
        self._launch(["--worktree"], prompt, self.scene.crew.root)

    def resume(self, prompt: str) -> None:
        self._launch(["resume", "--last"], prompt, self.worktree)

    def _launch(self, words: list[str], prompt: str, directory: Path) -> None:
        log = self.scene.crew.notes / "codex.log"
        with log.open("ab") as out:
            command = ["codex", "exec", *words, *self.words, prompt]
            self._process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self.scene.crew.children.append(self._process)

    def wait_done(self) -> None:
        assert self._process is not None
        assert self._process.wait(SLOW) == 0, self.told()
        assert not self.script.left, self.told()
        (self.worktree,) = (Path.home() / ".codex" / "worktrees").glob("*/*")


def run(words: list[str], cwd: Path) -> str:
    """Run a command of a program. Return what it printed."""
    done = subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, timeout=SLOW, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done
    return done.stdout


@contextmanager
def own_session(name: str, scene: Scene) -> Iterator[OwnSession]:
    """A session of the program that was not begun yet. It is ended after the block."""
    session: OwnSession = {"claude": ClaudeSession, "codex": CodexSession}[name](scene)
    try:
        yield session
    finally:
        session.close()
