"""How a running session is reached: by its hooks at the edges of a turn, its terminal, or its runtime's stream."""

from __future__ import annotations

from liza.programs.hooks.turn_phase import TurnPhase
from liza.programs.presets import command_line, sidecar_order
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir
from liza.rules.sessions.message_rules import DeliveryChannels


def find_reach(directory: RunDir, preset: Preset, terminal: bool) -> DeliveryChannels:
    """Return the ways into the session of a run, with or without a ``terminal``.

    Hooks count once one of them has run: their installation does not prove that the program runs them. Raises LizaError
    if a file cannot be read.
    """
    turn = directory.read_turn()
    has_hooks = turn is not None and command_line.has_hooks(preset)
    in_turn = turn is not None and turn.phase == TurnPhase.BUSY
    # A sidecar takes messages from the beginning, also before its first report.
    has_stream = turn.is_reported if turn is not None else sidecar_order.read_order(directory.path) is not None
    return DeliveryChannels(
        directory.run, has_hooks=has_hooks, has_terminal=terminal, has_stream=has_stream, in_turn=in_turn
    )
