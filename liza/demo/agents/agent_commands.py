"""What every scripted agent can do: read its brief, run a command, and say what it does."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INSTRUCTIONS = "AGENTS.md"


@dataclass(frozen=True)
class AgentBrief:
    """What `liza ready` printed, and the words that start liza."""

    text: str
    liza: tuple[str, ...]

    def find(self, pattern: str) -> str | None:
        """What the first group of ``pattern`` matches; lines begin at ``^``. None where nothing does."""
        match = re.search(pattern, self.text, re.MULTILINE)
        return match.group(1).strip() if match else None

    def require(self, pattern: str) -> str:
        """As ``found``. Exits where the brief does not say it: nobody can be asked."""
        found = self.find(pattern)
        if found is None:
            sys.exit(f"my brief has no line like {pattern!r}:\n{self.text}")
        return found


def read_brief() -> AgentBrief:
    """First act: the instructions file names a command to run, and that prints the brief."""
    first = AgentBrief(Path(INSTRUCTIONS).read_text(encoding="utf-8"), ())
    words = tuple(shlex.split(first.require(r"FIRST run:\s+(.+) ready$")))
    return AgentBrief(run_command([*words, "ready"]), words)


def run_command(words: Sequence[str], stdin: str = "") -> str:
    """Run a command that must succeed; what it prints. Exits with its last words where it does not."""
    done = subprocess.run(list(words), input=stdin, capture_output=True, text=True, check=False)
    print_progress(f"$ {shlex.join(words)[:200]}")
    if done.returncode != 0:
        sys.exit(f"{shlex.join(words)} failed ({done.returncode}): {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def try_command(command: str) -> str | None:
    """Run a shell command; None when it succeeds, else its last line."""
    done = subprocess.run(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    print_progress(f"$ {command}\n  exit {done.returncode}")
    if done.returncode == 0:
        return None
    last = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()[-1]
    return f"exit {done.returncode}, {last}"


def print_progress(text: str) -> None:
    """Think aloud; `liza logs` shows it."""
    print(text, flush=True)
