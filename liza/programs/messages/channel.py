"""How a session is reached while it runs: by its own hooks at the edges of a turn, or by its terminal."""

from __future__ import annotations

from liza.programs.presets import command_line
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir
from liza.rules.sessions.message_rules import DeliveryChannels


def find_reach(directory: RunDir, preset: Preset, terminal: bool) -> DeliveryChannels:
    """The ways into the session of a run, which has a ``terminal`` or none.

    Hooks count once one of them has spoken: that they were installed is no proof that the program heeds them.
    Raises LizaError where a file cannot be read.
    """
    turn = directory.read_turn()
    fetches = turn is not None and command_line.has_hooks(preset)
    return DeliveryChannels(
        directory.run, has_hooks=fetches, has_terminal=terminal, in_turn=turn is not None and turn.phase == "busy"
    )
