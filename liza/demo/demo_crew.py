"""The project of the demo, the supervisors of its crew, and checks of the result from outside."""

from __future__ import annotations

import io
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from liza.crew.crew import Crew
from liza.git.runner import Git
from liza.model.errors import UsageError
from liza.model.model import Status
from liza.model.paths import role_of
from liza.model.value_classes import Value
from liza.supervisor.down import down
from liza.system.installation import liza_path
from liza.system.limited_program import run_limited

FIRST_TERM_WAIT, SECOND_TERM_WAIT = 15.0, 5.0  # seconds after the first and the second SIGTERM
_LIMIT = 60.0  # seconds for a command of Liza, and for the tests
_AGENT_MODULES = {"planner": "planner", "coder": "coder", "code-reviewer": "reviewer"}
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SupervisorEnded(Value):
    """Event: a supervisor ended that was not stopped by the demo."""

    agent: str
    code: int


def scripted_program(agent: str) -> str:
    """Return the scripted agent for the role of ``agent``, as a value of ``--program``."""
    words = [sys.executable, "-P", "-m", f"liza.demo.agents.{_AGENT_MODULES[role_of(agent)]}"]
    return f"script:{shlex.join(words)}"


def demo_environment() -> dict[str, str]:
    """Return the environment without variables that would point Liza or git outside the demo's directory."""
    git_config = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
    env = {
        name: value
        for name, value in os.environ.items()
        if name in git_config or not name.startswith(("LIZA_", "GIT_"))
    }
    # The project's tests and the agents run `python3`; it is in the directory of this interpreter.
    env["PATH"] = f"{Path(sys.executable).parent}:{env.get('PATH') or os.defpath}"
    return env


class DemoCrew:
    """The supervisors, by agent. A ``with`` block stops all of them at its end."""

    def __init__(self, crew: Crew, env: Mapping[str, str], events: queue.Queue[Any]) -> None:
        self.crew, self.env, self.events = crew, dict(env), events
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = False

    def start(self, agent: str) -> None:
        """Start a supervisor in a session of its own, so that Ctrl+C reaches only the demo, which stops it."""
        words = [str(liza_path().with_name("liza-agent")), agent, "--program", scripted_program(agent)]
        with self.log_path(agent).open("ab") as log:
            child = subprocess.Popen(
                words,
                cwd=self.crew.paths.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
            )
        self._children[agent] = child
        threading.Thread(target=self._wait, args=(agent, child), daemon=True).start()

    def log_path(self, agent: str) -> Path:
        """Return the path of the output of the supervisor of ``agent``."""
        return self.crew.paths.logs / f"{agent}.log"

    def started_agents(self) -> tuple[str, ...]:
        """Return the agents whose supervisors were started."""
        return tuple(self._children)

    def _wait(self, agent: str, child: subprocess.Popen[bytes]) -> None:
        code = child.wait()
        if not self._stopping:
            self.events.put(SupervisorEnded(agent, code))

    def __enter__(self) -> DemoCrew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all supervisors with SIGTERM, again after 15 s, then SIGKILL after 5 s; then end the sessions left.

        Ctrl+C meanwhile sends another SIGTERM and does not interrupt this. Raises Refused, LockTimeout.
        """
        self._stopping = True
        handlers = [
            (number, signal.signal(number, lambda *_: self._signal_all(signal.SIGTERM))) for number in _STOP_SIGNALS
        ]
        try:
            self._signal_all(signal.SIGTERM)
            for limit, next_signal in ((FIRST_TERM_WAIT, signal.SIGTERM), (SECOND_TERM_WAIT, signal.SIGKILL)):
                if not self._wait_all(limit):
                    self._signal_all(next_signal)
            down(self.crew, now=True)
        finally:
            for number, handler in handlers:
                signal.signal(number, handler)

    def _signal_all(self, number: int) -> None:
        for child in self._children.values():
            if child.poll() is None:
                child.send_signal(number)

    def _wait_all(self, limit: float) -> bool:
        """Wait for all supervisors to end; return whether they did within ``limit`` seconds."""
        end = time.monotonic() + limit
        try:
            for child in self._children.values():
                child.wait(timeout=max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True


def run_liza(words: Sequence[str], root: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a liza command in ``root``, as a person does. Raises TimeoutError after 60 seconds."""
    return run_limited([str(liza_path()), *words], _LIMIT, directory=root, environ=env)


def liza_word() -> str:
    """Return what a person types for ``liza`` in a shell: its path, if it is not on PATH."""
    return "liza" if shutil.which("liza") else shlex.quote(str(liza_path()))


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that they stop the crew as Ctrl+C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    handlers = [(number, signal.signal(number, interrupt)) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        yield
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)


def find_failures(crew: Crew, env: Mapping[str, str]) -> list[str]:
    """Return a sentence for each failed check; empty if the demo succeeded."""
    tasks = crew.board.read().tasks
    failures = [] if tasks else ["there are no tasks on the board"]
    failures += [f"{task.id} is {task.status}, expected MERGED" for task in tasks if task.status is not Status.MERGED]
    validation = run_liza(["validate"], crew.paths.root, env)
    if validation.returncode != 0:
        failures.append(
            f"liza validate exits with {validation.returncode}: {(validation.stderr or validation.stdout).strip()}"
        )
    return [*failures, *_run_tests(crew, env)]


def _run_tests(crew: Crew, env: Mapping[str, str]) -> list[str]:
    """Run the project's tests on the integration branch, in a temporary directory. Return the failure, if any."""
    config = crew.board.read().config
    command = config.integration_command
    if not command:
        return ["no test command is set"]
    with tempfile.TemporaryDirectory(prefix="liza-demo-tests-") as directory:
        # Not a tar: `TarFile.extractall` has no filter before Python 3.11.4, and wants one later.
        files = Git(crew.paths.root).raw("archive", "--format=zip", f"refs/heads/{config.integration_branch}")
        with zipfile.ZipFile(io.BytesIO(files)) as archive:
            archive.extractall(directory)
        done = run_limited(["/bin/sh", "-c", command], _LIMIT, directory=Path(directory), environ=env)
    if done.returncode == 0:
        return []
    return [f"{command} fails on {config.integration_branch}: {done.stderr.strip()[-500:]}"]


GOAL = "Customers can pay by invoice"
SPEC = "docs/invoices.md"
FILES = {
    "README.md": "# A small shop\n\n    python3 -m unittest discover -s tests -q\n",
    "AGENTS.md": "# Working here\n\nThe standard library only. Every change comes with a test.\n",
    ".gitignore": "__pycache__/\n",
    SPEC: """\
# Customers can pay by invoice

- An invoice has lines, a net sum and tax. Amounts are whole cents; half a cent rounds up.
- It can be read as text, and goes out by mail.
- Prices can be shown with their currency, and with percents off.
- What is on an invoice is reserved in the stock.
""",
    "shop/__init__.py": "",
    "shop/prices.py": '''\
"""Prices, in cents."""


def shown(cents):
    """A price as the customer reads it."""
    return f"{cents / 100:.2f}"
''',
    "tests/test_prices.py": """\
import unittest

from shop.prices import shown


class PricesTest(unittest.TestCase):
    def test_cents_are_shown_as_a_price(self):
        self.assertEqual(shown(1250), "12.50")
""",
}


def choose_directory(directory: Path | None) -> Path:
    """Return ``directory``, created if missing, or a new temporary one. Raises UsageError if it is not empty."""
    if directory is None:
        # A subdirectory, because the worktrees are created next to the project.
        root = Path(tempfile.mkdtemp(prefix="liza-demo-")).resolve() / "shop"
        root.mkdir()
        return root
    root = directory.expanduser().resolve()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise UsageError(f"{root} is not empty; the demo needs an empty or new directory", "liza demo")
    except OSError as error:
        raise UsageError(f"{root} cannot be created or read: {error.strerror}", "liza demo") from None
    return root


def create_project(root: Path, files: Mapping[str, str] = FILES) -> str:
    """Write and commit the project; return the commit. Raises Missing without git, GitFailed."""
    git = Git(root)
    git.out("init", "-q")
    git.out("symbolic-ref", "HEAD", "refs/heads/main")
    git.out("config", "user.name", "Demo Person")
    git.out("config", "user.email", "demo@liza.invalid")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git.out("add", "-A")
    git.out("commit", "-q", "-m", "A small shop")
    return git.out("rev-parse", "HEAD")
