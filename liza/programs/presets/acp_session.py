"""The preset of a session that a sidecar drives over ACP (Agent Client Protocol), and what the sidecar has to start.

The sidecar writes the same lines for every program. Therefore usage, tool calls and failures of such a session are read
in one form, and what differs between programs is in the table ``[programs.X.acp]``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from liza.model.value_classes import FrozenStruct
from liza.programs.presets.preset import (
    AcpSettings,
    ConversationLogFormat,
    FailurePattern,
    HookSettings,
    Preset,
    Transport,
    UsageFormat,
)
from liza.programs.session.run_directory import SIDECAR_FILE, read_struct
from liza.system import atomic

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
