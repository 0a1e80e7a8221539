"""One start path for every program and role: who carries what, and the command line that comes of it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from liza.programs.hooks.hook_templates import list_providers
from liza.programs.presets.preset import LaunchMode, Preset, PromptStyle
from liza.rules.errors import UsageError


class TextCarrier(StrEnum):
    """What brings a text to the program. The brief in its instructions file is there in every case."""

    FILE = "file"
    PROMPT = "prompt"
    STDIN = "stdin"
    HOOK = "hook"
    TERMINAL = "terminal"


@dataclass(frozen=True)
class CarrierPlan:
    """Who carries the beacon (who am I), the context (what holds here) and the work (what to do now)."""

    beacon: TextCarrier
    context: TextCarrier
    work: TextCarrier


F, P, S, H = TextCarrier.FILE, TextCarrier.PROMPT, TextCarrier.STDIN, TextCarrier.HOOK
CARRIER_PLANS: dict[tuple[bool, PromptStyle], CarrierPlan] = {
    # hooks, prompt      beacon context work
    (True, "arg"): CarrierPlan(P, H, P),
    (True, "stdin"): CarrierPlan(S, H, S),
    (True, "none"): CarrierPlan(H, H, H),
    (False, "arg"): CarrierPlan(P, F, P),
    (False, "stdin"): CarrierPlan(S, F, S),
    (False, "none"): CarrierPlan(F, F, F),
}


def choose_carriers(preset: Preset, interactive: bool) -> CarrierPlan:
    """The row of the table for this program. Nothing in it depends on keystrokes."""
    found = CARRIER_PLANS[has_hooks(preset), select_launch_mode(preset, interactive).prompt]
    # At a terminal a program that was told nothing waits for a person; without one it begins by itself.
    return replace(found, work=TextCarrier.TERMINAL) if interactive and found.work in (F, H) else found


def has_hooks(preset: Preset) -> bool:
    """Whether the program runs hooks that Liza can install. Informational ones count as none."""
    return preset.hooks.provider in list_providers() and not preset.hooks.informational


def select_launch_mode(preset: Preset, interactive: bool) -> LaunchMode:
    """How this program is started at a terminal, or without one."""
    return preset.interactive if interactive else preset.headless


@dataclass(frozen=True)
class ProgramCommand:
    """What to start: the words, the whole stdin (None: nothing), and what its environment needs besides."""

    argv: tuple[str, ...]
    stdin_text: str | None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SessionScope:
    """What a session works on, and may.

    ``permissions`` is ``confined`` or ``bypass``; ``cwd`` is its directory, ``run`` the run's, ``writes`` are those
    besides its own that it has to write to; ``liza`` is what it calls, and ``tests`` the project's own command for
    them, which a confined program has to be allowed.
    """

    permissions: str
    cwd: Path
    run_dir: Path
    writable_dirs: Sequence[Path]
    liza_path: Path
    test_command: str = ""


def build_command(
    preset: Preset, how: LaunchMode, prompt: str, ground: SessionScope, again: Sequence[str] = ()
) -> ProgramCommand:
    """The command line of a session: command, its arguments, the mode's, the permission's, directories, prompt.

    ``again`` are the words of ``resumed``. Raises Usage for permissions that there are none of.
    """
    if not preset.command:
        raise UsageError(f"{preset.name!r} needs a command", f"liza up --program {preset.name}:./agent.sh")
    allowed, env = _permission_args(preset, ground.permissions)
    tests, liza = ground.test_command, str(ground.liza_path)
    known = {"{liza}": liza, "{tests}": tests, "{cwd}": str(ground.cwd), "{run}": str(ground.run_dir)}
    written = [*preset.args, *how.args, *preset.first_run, *allowed]
    words = [_substitute(word, known) for word in written if tests or "{tests}" not in word]
    if how.dirs:
        words += [word.replace("{dir}", str(one)) for one in ground.writable_dirs for word in preset.add_dirs]
    words += again
    if how.prompt == "arg":
        words += [*how.before_prompt, prompt]
    # A list in a variable's value keeps its place for the tests: without any, Liza's own word stands there twice.
    told = {name: _substitute_json(value, {**known, "{tests}": tests or liza}) for name, value in env.items()}
    return ProgramCommand((preset.command, *words), prompt if how.prompt == "stdin" else None, told)


def build_resume_args(preset: Preset, session: str | None = None, *, fork: bool = False) -> tuple[str, ...]:
    """The words that go on with conversation ``session``, or with the last one of the directory. Raises Usage."""
    words = preset.resume.latest if session is None else preset.resume.fork if fork else preset.resume.id
    if preset.resume.style == "none" or not words:
        raise UsageError(
            f"{preset.name} cannot go on with an earlier conversation", f"liza programs show {preset.name}"
        )
    return tuple(word.replace("{id}", session or "") for word in words)


def _substitute(text: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(name, value)
    return text


def _substitute_json(text: str, known: Mapping[str, str]) -> str:
    """As ``_filled``, for a text that may be JSON: its quotes stay whole whatever is filled in."""
    if not text.startswith("{"):
        return _substitute(text, known)
    return _substitute(text, {name: json.dumps(value, ensure_ascii=False)[1:-1] for name, value in known.items()})


def _permission_args(preset: Preset, permissions: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
    if permissions == "confined":
        return preset.permissions.confined, preset.permissions.confined_env
    if permissions == "bypass":
        return preset.permissions.bypass, preset.permissions.bypass_env
    raise UsageError(f"permissions are {permissions!r}, wanted confined or bypass", "liza edit")
