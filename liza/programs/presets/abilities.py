"""What Liza can do with a program, by what its row says. Pure.

Every program can be started, watched, told something and asked how it stands. More comes with hooks and flags, and the
last of it with output that machines can read.
"""

from __future__ import annotations

from dataclasses import dataclass

from liza.programs.presets import command_line
from liza.programs.presets.preset import LaunchMode, Preset


@dataclass(frozen=True)
class Ability:
    """``by`` is what does it; None where nothing does. Tiers count from 1, which every program has whole."""

    tier: int
    what: str
    by: str | None


def list_abilities(preset: Preset) -> tuple[Ability, ...]:
    """Everything that there is to do, in order."""
    hooks = "a hook" if command_line.has_hooks(preset) else None
    again, usage = preset.resume, preset.usage
    counted = usage.input or usage.output or usage.cost or usage.pattern
    return (
        Ability(1, "start", f"{_start(preset.headless)}; at a terminal {_start(preset.interactive)}"),
        Ability(1, "is it ready", _ready(preset)),
        Ability(1, "is it alive", "its process, and those below it"),
        Ability(1, "send", hooks or "its terminal, else the next session's brief"),
        Ability(1, "how it stands", "liza's own words from inside, its output, its processor time"),
        Ability(2, "context", hooks or _file(preset)),
        Ability(2, "told at a session's start", hooks),
        Ability(2, "go on with a session", _join_argv(again.id)),
        Ability(2, "session id", _session(preset)),
        Ability(3, "fork a session", _join_argv(again.fork)),
        Ability(3, "run without a terminal", _join_argv((preset.command or preset.name, *preset.headless.args))),
        Ability(3, "usage", (usage.file or f"its output, {usage.form}") if counted else None),
    )


def _start(mode: LaunchMode) -> str:
    told = {"arg": "prompt as an argument", "stdin": "prompt on stdin", "none": "no prompt"}
    return told[mode.prompt]


def _ready(preset: Preset) -> str:
    signs = ["a hook"] if command_line.has_hooks(preset) else []
    return ", ".join(
        [*signs, "liza's words from inside", *(["its prompt on the screen"] if preset.ready_prompt else [])]
    )


def _file(preset: Preset) -> str | None:
    return f"a block in {preset.new_instructions_file}" if preset.new_instructions_file else None


def _session(preset: Preset) -> str | None:
    if preset.usage.session:
        return "its output"
    return preset.session_id_env or None


def _join_argv(words: tuple[str, ...]) -> str | None:
    return " ".join(words) or None
