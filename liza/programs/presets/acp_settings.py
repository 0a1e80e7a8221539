"""How a program is driven over ACP (Agent Client Protocol): the table ``[programs.X.acp]``, and the preset made of it.

The sidecar writes the same lines for every program. Therefore usage, tool calls and failures of such a session are read
in one form, and what differs between programs is in this table.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from liza.model.model import FrozenStruct


class Transport(StrEnum):
    """How a session without a terminal is driven: ``via`` is the default, ``NAME:acp`` or ``NAME:headless`` selects."""

    HEADLESS = "headless"
    ACP = "acp"


class AcpUsage(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the program reports its usage. A path names keys from the outermost, with dots.

    ``source``: in the answer to a prompt, or in the updates of the turn. ``counts``: one turn, the whole session, the
    conversation with its earlier sessions, or one request. ``cached`` is part of ``input``; ``cost`` is a path in the
    update ``usage_update``, summed over the session.
    """

    source: Literal["answer", "updates"] = "answer"
    counts: Literal["turn", "session", "conversation", "request"] = "turn"
    input: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    cost: str = ""


class AcpFailurePattern(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """An expression for the last text of a turn, or for the text of its error: the model did not answer, because of
    ``kind``. The message for a person is the group ``words``, or the rest of the text."""

    kind: Literal["login", "quota", "server", "broken"]
    match: str


class AcpSettings(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The table ``acp`` of a row. Times are seconds.

    ``command``: empty if the program itself speaks ACP; else its adapter, which ``install`` installs. ``mode`` is set
    with session/set_mode, ``options`` with session/set_config_option, ``model`` with session/set_model: before the
    first prompt.
    ``drain``: how long the program may take to exit after its stdin was closed. ``load_min_age``: the age of a session
    from which on its conversation is loaded: one program overwrites a younger one when it is told to load it.
    ``orphans_tools``: a cancelled turn leaves its tool running. ``command_paths`` and ``file_paths``: where a tool call
    holds the command, and the file. ``lacks`` tells a person what is missing over ACP.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)
    install: str = ""
    verified: str = ""
    lacks: str = ""
    mode: str = ""
    model: str = ""
    options: dict[str, str] = msgspec.field(default_factory=dict)
    drain: float = 3.0
    load_min_age: float = 0.0
    orphans_tools: bool = False
    command_paths: tuple[str, ...] = ("rawInput.command",)
    file_paths: tuple[str, ...] = ("rawInput.file_path", "rawInput.path", "locations.*.path", "content.*.path")
    usage: AcpUsage = AcpUsage()
    failures: tuple[AcpFailurePattern, ...] = ()
