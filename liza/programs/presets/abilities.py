"""What Liza can do with a program, by its row. Pure.

Every program can be started, watched, sent messages, and checked for its state. Hooks and flags add more abilities, and
machine-readable output the last ones.
"""

from __future__ import annotations

from liza.programs.presets import command_line
from liza.programs.presets.acp_settings import Transport
from liza.programs.presets.preset import LaunchMode, Preset
from liza.rules.value_classes import Value


class Ability(Value):
    """``by`` names the means; None if there is none. Tiers count from 1; every program has all abilities of tier 1."""

    tier: int
    what: str
    by: str | None


class SessionWay(Value):
    """How sessions without a terminal are driven: ``name``; ``reason`` for a person; ``others`` that can be chosen,
    each the value of ``--program``."""

    name: str
    reason: str
    others: tuple[str, ...] = ()


def describe_way(preset: Preset) -> SessionWay:
    """Return the default way of a program. Decision 024 gives the reason for the order."""
    if preset.via is Transport.ACP:
        return SessionWay("ACP", 'its row says via = "acp"')
    has_hooks = command_line.has_hooks(preset)
    name = "headless + hooks" if has_hooks else "headless"
    if preset.acp is None:
        return SessionWay(name, "it does not speak ACP" if has_hooks else "it has no hooks and does not speak ACP")
    gains = "hooks repeat the brief after a compaction" if has_hooks else "one process for each session"
    reason = f"{gains}; over ACP {preset.acp.lacks}" if preset.acp.lacks else gains
    return SessionWay(name, reason, (f"{preset.name}:acp",))


def list_abilities(preset: Preset) -> tuple[Ability, ...]:
    """Return all abilities, in order."""
    hooks = "a hook" if command_line.has_hooks(preset) else None
    again, usage = preset.resume, preset.usage
    counted = usage.input or usage.output or usage.cost or usage.pattern
    return (
        Ability(1, "start", f"{_start(preset.headless)}; at a terminal {_start(preset.interactive)}"),
        Ability(1, "is it ready", _ready(preset)),
        Ability(1, "is it alive", "its process, and those below it"),
        Ability(1, "send", hooks or "its terminal, otherwise the next session's brief"),
        Ability(1, "state", "liza verbs it calls, its output, its processor time"),
        Ability(2, "context", hooks or _file(preset)),
        Ability(2, "context at a session's start", hooks),
        Ability(2, "resume a session", _join_argv(again.id)),
        Ability(2, "resume the last session", _join_argv(again.latest)),
        Ability(2, "session id", _session(preset)),
        Ability(3, "fork a session", _join_argv(again.fork)),
        Ability(3, "run without a terminal", _join_argv((preset.command or preset.name, *preset.headless.args))),
        Ability(3, "run over ACP", _over_acp(preset)),
        Ability(3, "usage", (usage.file or f"its output, {usage.form}") if counted else None),
    )


def _over_acp(preset: Preset) -> str | None:
    """Return the command that speaks ACP, and whether it is the default; None if the program does not."""
    if preset.acp is None:
        return None
    words = _join_argv((preset.acp.command or preset.command, *preset.acp.args))
    return f"{words}; {'default' if preset.via is Transport.ACP else f'--program {preset.name}:acp'}"


def _start(mode: LaunchMode) -> str:
    descriptions = {"arg": "prompt as an argument", "stdin": "prompt on stdin", "none": "no prompt"}
    return descriptions[mode.prompt]


def _ready(preset: Preset) -> str:
    signs = ["a hook"] if command_line.has_hooks(preset) else []
    return ", ".join([*signs, "liza verbs it calls", *(["its prompt on the screen"] if preset.ready_prompt else [])])


def _file(preset: Preset) -> str | None:
    return f"a block in {preset.new_instructions_file}" if preset.new_instructions_file else None


def _session(preset: Preset) -> str | None:
    if preset.usage.session:
        return "its output"
    return preset.session_id_env or None


def _join_argv(words: tuple[str, ...]) -> str | None:
    return " ".join(words) or None
