"""How each text reaches the program, and the command line of a session; the same for all programs and roles. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from liza.model.errors import UsageError
from liza.model.permissions import BYPASS, PROMPTS
from liza.model.value_classes import Value, field, replace
from liza.programs.hooks.hook_templates import list_providers
from liza.programs.presets.preset import LaunchMode, Preset, PromptStyle


class TextCarrier(StrEnum):
    """The way by which a text reaches the program. The brief is in its instructions file in every case."""

    FILE = "file"
    PROMPT = "prompt"
    STDIN = "stdin"
    HOOK = "hook"
    TERMINAL = "terminal"


class CarrierPlan(Value):
    """The carriers of the beacon (who am I), the context (the rules here) and the work (what to do now)."""

    beacon: TextCarrier
    context: TextCarrier
    work: TextCarrier


CARRIER_PLANS: dict[tuple[bool, PromptStyle], CarrierPlan] = {
    # (has hooks, prompt style): beacon, context, work
    (True, "arg"): CarrierPlan(TextCarrier.PROMPT, TextCarrier.HOOK, TextCarrier.PROMPT),
    (True, "stdin"): CarrierPlan(TextCarrier.STDIN, TextCarrier.HOOK, TextCarrier.STDIN),
    (True, "none"): CarrierPlan(TextCarrier.HOOK, TextCarrier.HOOK, TextCarrier.HOOK),
    (False, "arg"): CarrierPlan(TextCarrier.PROMPT, TextCarrier.FILE, TextCarrier.PROMPT),
    (False, "stdin"): CarrierPlan(TextCarrier.STDIN, TextCarrier.FILE, TextCarrier.STDIN),
    (False, "none"): CarrierPlan(TextCarrier.FILE, TextCarrier.FILE, TextCarrier.FILE),
}


def choose_carriers(preset: Preset, interactive: bool) -> CarrierPlan:
    """Return the plan for this program. No text depends on typed keys alone."""
    plan = CARRIER_PLANS[has_hooks(preset), select_launch_mode(preset, interactive).prompt]
    # At a terminal a program without a prompt waits for input; without a terminal it begins by itself.
    if interactive and plan.work in (TextCarrier.FILE, TextCarrier.HOOK):
        return replace(plan, work=TextCarrier.TERMINAL)
    return plan


def has_hooks(preset: Preset) -> bool:
    """Return whether the program runs hooks that Liza can install. Informational hooks do not count."""
    return preset.hooks.provider in list_providers() and not preset.hooks.informational


def select_launch_mode(preset: Preset, interactive: bool) -> LaunchMode:
    """Return how this program is started with or without a terminal."""
    return preset.interactive if interactive else preset.headless


class ProgramCommand(Value):
    """What to start: argv, the whole stdin (None: empty), and additional environment variables."""

    argv: tuple[str, ...]
    stdin_text: str | None
    env: Mapping[str, str] = field(default_factory=dict)


class SessionScope(Value):
    """What a session works on, and its permissions.

    ``permissions`` is ``prompts`` or ``bypass``; ``cwd`` is its directory, ``run_dir`` the run's; ``writable_dirs``
    are other directories that it has to write to; ``liza_path`` is the command that it calls, and ``test_command`` the
    project's, which a program must be allowed to run without a prompt.
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
    """Build the command line of a session: command, its arguments, the mode's, the permission's, directories, prompt.

    ``again`` is the result of ``build_resume_args``. Raises UsageError for unknown permissions, or a row without a
    command.
    """
    if not preset.command:
        raise UsageError(f"{preset.name!r} needs a command", f"liza up --program {preset.name}:./agent.sh")
    allowed, env = _permission_args(preset, ground.permissions)
    tests, liza = ground.test_command, str(ground.liza_path)
    values = {"{liza}": liza, "{tests}": tests, "{cwd}": str(ground.cwd), "{run}": str(ground.run_dir)}
    templates = [*preset.args, *how.args, *preset.first_run, *allowed]
    argv = [substitute(word, values) for word in templates if tests or "{tests}" not in word]
    if how.dirs:
        argv += [
            word.replace("{dir}", str(directory)) for directory in ground.writable_dirs for word in preset.add_dirs
        ]
    argv += again
    if how.prompt == "arg":
        argv += [*how.before_prompt, prompt]
    # Without a test command its entry in a variable's list becomes liza's path: a duplicate, but a valid list.
    env_values = {name: _substitute_json(value, {**values, "{tests}": tests or liza}) for name, value in env.items()}
    return ProgramCommand((preset.command, *argv), prompt if how.prompt == "stdin" else None, env_values)


def build_resume_args(preset: Preset, session: str | None = None, *, fork: bool = False) -> tuple[str, ...]:
    """Return the arguments that resume conversation ``session``, or the last one of the directory. Raises
    UsageError."""
    words = preset.resume.latest if session is None else preset.resume.fork if fork else preset.resume.id
    if preset.resume.style == "none" or not words:
        raise UsageError(
            f"{preset.name} cannot go on with an earlier conversation", f"liza programs show {preset.name}"
        )
    return tuple(word.replace("{id}", session or "") for word in words)


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders replaced by values."""
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _substitute_json(text: str, values: Mapping[str, str]) -> str:
    """As ``_substitute``; if the text is JSON, escape the values so that they stay within its quotes."""
    if not text.startswith("{"):
        return substitute(text, values)
    return substitute(text, {name: json.dumps(value, ensure_ascii=False)[1:-1] for name, value in values.items()})


def _permission_args(preset: Preset, permissions: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
    if permissions == PROMPTS:
        return preset.permissions.prompts, preset.permissions.prompts_env
    if permissions == BYPASS:
        return preset.permissions.bypass, preset.permissions.bypass_env
    raise UsageError(f"config.permissions is {permissions!r}, expected prompts or bypass", "liza edit")
