"""One start path for every program and role: who carries what, and the command line that comes of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from liza.programs.preset import Mode, Preset, Prompt
from liza.rules.errors import Usage

INSTALLED_HOOKS: frozenset[str] = frozenset()
"""The hook providers that this release can install; a row may name others, and is driven without them."""


class Carrier(StrEnum):
    """What brings a text to the program. The brief in its instructions file is there in every case."""

    FILE = "file"
    PROMPT = "prompt"
    STDIN = "stdin"
    HOOK = "hook"
    TERMINAL = "terminal"


@dataclass(frozen=True)
class Plan:
    """Who carries the beacon (who am I), the context (what holds here) and the work (what to do now)."""

    beacon: Carrier
    context: Carrier
    work: Carrier


F, P, S, H = Carrier.FILE, Carrier.PROMPT, Carrier.STDIN, Carrier.HOOK
TABLE: dict[tuple[bool, Prompt], Plan] = {
    # hooks, prompt      beacon context work
    (True, "arg"): Plan(P, H, P),
    (True, "stdin"): Plan(S, H, S),
    (True, "none"): Plan(H, H, H),
    (False, "arg"): Plan(P, F, P),
    (False, "stdin"): Plan(S, F, S),
    (False, "none"): Plan(F, F, F),
}


def plan(preset: Preset, interactive: bool) -> Plan:
    """The row of the table for this program. Nothing in it depends on keystrokes."""
    found = TABLE[has_hooks(preset), mode(preset, interactive).prompt]
    # At a terminal a program that was told nothing waits for a person; without one it begins by itself.
    return replace(found, work=Carrier.TERMINAL) if interactive and found.work in (F, H) else found


def has_hooks(preset: Preset) -> bool:
    """Whether the program runs hooks that Liza can install. Informational ones count as none."""
    return preset.hooks.provider in INSTALLED_HOOKS and not preset.hooks.informational


def mode(preset: Preset, interactive: bool) -> Mode:
    """How this program is started at a terminal, or without one."""
    return preset.interactive if interactive else preset.headless


@dataclass(frozen=True)
class Command:
    """What to start: the words, and the whole stdin (None: nothing)."""

    argv: tuple[str, ...]
    stdin_text: str | None


def command(
    preset: Preset, how: Mode, prompt: str, permissions: str, directories: Sequence[Path], liza: Path, tests: str = ""
) -> Command:
    """The command line of a session: command, its arguments, the mode's, the permission's, directories, prompt.

    ``permissions`` is ``confined`` or ``bypass``; ``directories`` are those besides its own that it has to write to;
    ``tests`` is the command that a confined program has to be allowed besides Liza's own.
    Raises Usage for another word.
    """
    if not preset.command:
        raise Usage(f"{preset.name!r} needs a command", f"liza up --program {preset.name}:./agent.sh")
    allowed = [word for word in _permitted(preset, permissions) if tests or "{tests}" not in word]
    named = [word.replace("{dir}", str(one)) for one in directories for word in preset.add_dirs]
    words = [*preset.args, *how.args, *(_filled(word, liza, tests) for word in allowed), *named]
    if how.prompt == "arg":
        words += [*how.before_prompt, prompt]
    return Command((preset.command, *words), prompt if how.prompt == "stdin" else None)


def _filled(word: str, liza: Path, tests: str) -> str:
    return word.replace("{liza}", str(liza)).replace("{tests}", tests)


def _permitted(preset: Preset, permissions: str) -> tuple[str, ...]:
    if permissions == "confined":
        return preset.permissions.confined
    if permissions == "bypass":
        return preset.permissions.bypass
    raise Usage(f"permissions are {permissions!r}, wanted confined or bypass", "liza edit")
