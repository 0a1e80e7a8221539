"""Functions of all scripted agents: read the brief, run a command, print progress."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from liza.model.value_classes import Value

INSTRUCTIONS = "AGENTS.md"


class AgentBrief(Value):
    """The text that `liza ready` printed, and the command that starts liza."""

    text: str
    liza: tuple[str, ...]

    def find(self, pattern: str) -> str | None:
        """Return the first group of ``pattern``, None without a match. ``^`` matches at each line."""
        match = re.search(pattern, self.text, re.MULTILINE)
        return match.group(1).strip() if match else None

    def require(self, pattern: str) -> str:
        """Return ``find(pattern)``; exit with an error without a match."""
        value = self.find(pattern)
        if value is None:
            sys.exit(f"no line in the brief matches {pattern!r}:\n{self.text}")
        return value


def read_brief() -> AgentBrief:
    """Run the command that the instructions file names, `liza ready`, and return the brief that it prints."""
    first = AgentBrief(Path(INSTRUCTIONS).read_text(encoding="utf-8"), ())
    words = tuple(shlex.split(first.require(r"FIRST run:\s+(.+) ready$")))
    return AgentBrief(run_command([*words, "ready"]), words)


def run_command(words: Sequence[str], stdin: str = "") -> str:
    """Run a command; return its output. Exit with its error output if it fails."""
    done = subprocess.run(list(words), input=stdin, capture_output=True, text=True, check=False)
    print_progress(f"$ {shlex.join(words)[:200]}")
    if done.returncode != 0:
        sys.exit(f"{shlex.join(words)} failed ({done.returncode}): {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def try_command(command: str) -> str | None:
    """Run a shell command; return None if it succeeds, else its exit status and last line."""
    done = subprocess.run(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    print_progress(f"$ {command}\n  exit {done.returncode}")
    if done.returncode == 0:
        return None
    last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
    return f"exit {done.returncode}, {last}"


def print_progress(text: str) -> None:
    """Print a line; `liza logs` shows it."""
    print(text, flush=True)
