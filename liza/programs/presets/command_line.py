"""How each text reaches the program, the command line and the environment of a session; for all roles.

Over ACP (Agent Client Protocol) a sidecar drives the program. It writes the same lines for every program, so usage and
failures of such a session are read in one form; what differs between programs is in the table ``[programs.X.acp]``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

import msgspec

from liza.model import clean_environment
from liza.model.errors import UsageError
from liza.model.paths import agent_of
from liza.model.setting_limits import BYPASS, PROMPTS
from liza.model.value_classes import FrozenStruct, Value, field, replace
from liza.programs.hooks.hook_events import list_providers
from liza.programs.presets.preset import (
    AcpSettings,
    ConversationLogFormat,
    FailurePattern,
    HookSettings,
    LaunchMode,
    Preset,
    PromptStyle,
    UsageFormat,
)
from liza.programs.rules.program_spec import MODEL, Transport
from liza.programs.session.run_directory import SIDECAR_FILE, read_struct
from liza.system import atomic


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
        raise UsageError(f"{preset.name!r} needs a command: {preset.name}:COMMAND", "liza programs list")
    allowed, env = _permission_args(preset, ground.permissions)
    tests, liza = ground.test_command, str(ground.liza_path)
    values = {"{liza}": liza, "{tests}": tests, "{cwd}": str(ground.cwd), "{run}": str(ground.run_dir)}
    templates = [*preset.args, *how.args, *preset.first_run, *allowed]
    argv = [substitute(word, values) for word in templates if tests or "{tests}" not in word]
    if how.dirs:
        argv += [
            word.replace("{dir}", str(directory)) for directory in ground.writable_dirs for word in preset.add_dirs
        ]
    argv += [*model_args(preset), *again]
    if how.prompt == "arg":
        argv += [*how.before_prompt, prompt]
    # Without a test command its entry in a variable's list becomes liza's path: a duplicate, but a valid list.
    env_values = {name: _substitute_json(value, {**values, "{tests}": tests or liza}) for name, value in env.items()}
    env_values |= model_env(preset)
    return ProgramCommand((preset.command, *argv), prompt if how.prompt == "stdin" else None, env_values)


def build_reader(preset: Preset, how: LaunchMode, prompt: str) -> ProgramCommand:
    """Build the command line of a program without tools: no permission, no directory, nothing but its prompt."""
    argv = (preset.command, *preset.args, *how.args, *model_args(preset))
    if how.prompt == "arg":
        argv = (*argv, *how.before_prompt, prompt)
    return ProgramCommand(argv, prompt if how.prompt == "stdin" else None, model_env(preset))


def model_args(preset: Preset) -> tuple[str, ...]:
    """Return the arguments that pass the chosen model; none if the program's own configuration chooses it."""
    return _with_model(preset.model, preset.chosen_model)


def model_env(preset: Preset) -> dict[str, str]:
    """Return the variables that pass the chosen model, as ``model_args``."""
    chosen = preset.chosen_model
    return {name: _substitute_json(value, {MODEL: chosen}) for name, value in preset.model_env.items() if chosen}


def pass_model_over_acp(acp: AcpSettings, model: str) -> AcpSettings:
    """Return the settings of a session over ACP with its model; without one, without what passes it."""
    values = {MODEL: model}
    passed = {name: _substitute_json(value, values) for name, value in acp.model_env.items() if model}
    options = {name: text for name, text in acp.options.items() if model or MODEL not in text}
    return msgspec.structs.replace(
        acp,
        args=(*acp.args, *_with_model(acp.model_args, model)),
        env={**acp.env, **passed},
        model=substitute(acp.model, values) if model or MODEL not in acp.model else "",
        options={name: substitute(text, values) for name, text in options.items()},
    )


def _with_model(words: Sequence[str], model: str) -> tuple[str, ...]:
    return tuple(substitute(word, {MODEL: model}) for word in words) if model else ()


def build_resume_args(preset: Preset, session: str) -> tuple[str, ...]:
    """Return the arguments that resume conversation ``session``. Raises UsageError if the row has none."""
    if preset.resume.style == "none" or not preset.resume.id:
        raise UsageError(
            f"{preset.name} cannot go on with an earlier conversation", f"liza programs show {preset.name}"
        )
    return tuple(word.replace("{id}", session) for word in preset.resume.id)


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders replaced by values."""
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _substitute_json(text: str, values: Mapping[str, str]) -> str:
    """As ``_substitute``; if the text is JSON, escape the values so that they stay within its quotes."""
    if not text.startswith('{"'):
        return substitute(text, values)
    return substitute(text, {name: json.dumps(value, ensure_ascii=False)[1:-1] for name, value in values.items()})


def _permission_args(preset: Preset, permissions: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
    if permissions == PROMPTS:
        return preset.permissions.prompts, preset.permissions.prompts_env
    if permissions == BYPASS:
        return preset.permissions.bypass, preset.permissions.bypass_env
    raise UsageError(f"config.permissions is {permissions!r}, expected prompts or bypass", "liza edit")


ALLOWED_VARIABLES = (
    # the person and the machine
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR",
    "TMPDIR", "TMP", "TEMP", "XDG_*",
    # network
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    # the person's git configuration, but no repository: git finds that by the working directory
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_AUTHOR_*", "GIT_COMMITTER_*",
    # tool chains
    "JAVA_HOME", "GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "GOPROXY", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR",
    "PNPM_HOME", "VOLTA_HOME", "PYENV_ROOT", "ASDF_*", "MISE_*", "UV_CACHE_DIR", "PIP_CACHE_DIR", "npm_config_cache",
)  # fmt: skip
UNATTENDED_VARIABLES = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    # A reviewer must see the commit itself, not a replacement ref's object.
    "GIT_NO_REPLACE_OBJECTS": "1",
}


def compose_environment(
    preset: Preset,
    outside: Mapping[str, str],
    *,
    run: str,
    task: str | None,
    root: Path,
    liza: Path,
    identity: Mapping[str, str] = MappingProxyType({}),
    keep: str | None = None,
    allowed: Sequence[str] = (),
) -> dict[str, str]:
    """Return the environment of one session. ``liza`` is the command's absolute path: its directory is first on PATH.

    A session is unattended, so git must not prompt or page. API keys are passed only if the row, or ``allowed``
    (``config.env_allow``), names them.
    ``identity`` is the committer in git's variables, for a program that hides the person's git configuration from its
    tools; variables that the person has set take precedence. Variables of ``outside`` that point into the person's
    checkout are removed; ``keep`` names an environment that is allowed nevertheless (``config.environment``).
    """
    clean = clean_environment.clean_variables(outside, str(root), keep, os.path.realpath).variables
    env = {**identity, **inherit_variables(preset, clean, allowed)}
    env.update(UNATTENDED_VARIABLES)
    env.update(preset.env)
    env["PATH"] = f"{liza.parent}:{env['PATH']}" if env.get("PATH") else f"{liza.parent}:/usr/local/bin:/usr/bin:/bin"
    env.update(LIZA_AGENT_ID=agent_of(run), LIZA_RUN=run, LIZA_ROOT=str(root))
    env.pop("LIZA_TASK", None)
    return env if task is None else {**env, "LIZA_TASK": task}


def inherit_variables(preset: Preset, outside: Mapping[str, str], allowed: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables of ``outside`` that a session inherits."""
    patterns = (*ALLOWED_VARIABLES, *preset.env_allow, *allowed)
    return {name: value for name, value in outside.items() if _is_allowed(name, patterns)}


def _is_allowed(name: str, patterns: tuple[str, ...]) -> bool:
    return not name.startswith("LIZA_") and any(fnmatchcase(name, pattern) for pattern in patterns)


USAGE = UsageFormat(
    when={"type": "usage"},
    combine="sum",
    input=("input_tokens",),
    cached=("cached_tokens",),
    output=("output_tokens",),
    cost="cost_usd",
    free=False,
    session=("session_id",),
)
ANSWERS = r'^\{"type":"(?:text|tool_call|tool_result|usage)"'
FAILURES = tuple(
    FailurePattern(kind=kind, match=rf'^\{{"type":"failure","kind":"{kind}","message":"(?P<words>(?:[^"\\]|\\.)*)"')
    for kind in ("login", "model", "quota", "server", "broken")
)


def uses_acp(preset: Preset, *, terminal: bool) -> bool:
    """Return whether a session is driven over ACP. A session in a terminal never is."""
    return preset.via is Transport.ACP and preset.acp is not None and not terminal


def find_settings(preset: Preset, *, terminal: bool) -> AcpSettings | None:
    """Return how a session is driven over ACP, with its model; None if it is not."""
    if preset.acp is None or not uses_acp(preset, terminal=terminal):
        return None
    return pass_model_over_acp(preset.acp, preset.chosen_model)


def shape_preset(preset: Preset, *, terminal: bool) -> Preset:
    """Return the preset of a session: over ACP with the formats of the sidecar's output, else unchanged.

    The brief is the first prompt, so no instructions file is written. Messages are prompts of the sidecar, so no hooks
    are installed.
    """
    if preset.acp is None or not uses_acp(preset, terminal=terminal):
        return preset
    return msgspec.structs.replace(
        preset,
        instructions=(),
        hooks=HookSettings(),
        events="acp",
        usage=USAGE,
        journal=ConversationLogFormat(),
        noise="",
        failures=FAILURES,
        answers=ANSWERS,
        log="",
        exit_codes={},
    )


def started_program(preset: Preset, *, terminal: bool = False) -> Preset:
    """Return the preset with the command that a session starts: over ACP that of the adapter, if there is one."""
    if preset.acp is None or not uses_acp(preset, terminal=terminal):
        return preset
    return msgspec.structs.replace(
        preset, command=preset.acp.command or preset.command, install=preset.acp.install or preset.install
    )


class SidecarOrder(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``argv`` starts the program, in ``cwd``, with the variables of ``env`` beside the sidecar's (None: without
    it). ``conversation``: the id of an earlier one to load, or None.

    ``silence_limit``: seconds without an update after which a running turn counts as broken.
    """

    program: str
    argv: tuple[str, ...]
    cwd: str
    acp: AcpSettings
    env: dict[str, str | None] = msgspec.field(default_factory=dict)
    conversation: str | None = None
    silence_limit: float = 300.0


def write_order(run_dir: Path, order: SidecarOrder) -> None:
    """Write the order. Raises OSError."""
    atomic.write(run_dir / SIDECAR_FILE, msgspec.json.encode(order) + b"\n")


def read_order(run_dir: Path) -> SidecarOrder | None:
    """Return the order; None if the run has no sidecar. Raises LizaError if it cannot be read."""
    return read_struct(run_dir / SIDECAR_FILE, SidecarOrder)
