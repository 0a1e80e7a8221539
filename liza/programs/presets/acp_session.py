"""The preset of a session over ACP: the sidecar is the run's program, and its lines have one form for every program."""

from __future__ import annotations

import msgspec

from liza.programs.presets.acp_settings import AcpSettings, Transport
from liza.programs.presets.preset import (
    ConversationLogFormat,
    FailurePattern,
    HookSettings,
    Preset,
    ToolCallFormat,
    UsageFormat,
)

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
CALLS = (
    ToolCallFormat(when={"type": "tool_call"}, id="id", call=("tool", "title", "input")),
    ToolCallFormat(when={"type": "tool_result"}, id="id", result=("status", "output")),
)
ANSWERS = r'^\{"type":"(?:text|tool_call|tool_result|usage)"'
FAILURES = tuple(
    FailurePattern(kind=kind, match=rf'^\{{"type":"failure","kind":"{kind}","message":"(?P<words>(?:[^"\\]|\\.)*)"')
    for kind in ("login", "quota", "server", "broken")
)


def uses_acp(preset: Preset, *, terminal: bool) -> bool:
    """Return whether a session is driven over ACP. A session in a terminal never is."""
    return preset.via is Transport.ACP and preset.acp is not None and not terminal


def find_settings(preset: Preset, *, terminal: bool) -> AcpSettings | None:
    """Return how a session is driven over ACP; None if it is not."""
    return preset.acp if uses_acp(preset, terminal=terminal) else None


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
        calls=CALLS,
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
