"""How a session is reached while it runs: by its own hooks at the edges of a turn, or by its terminal."""

from __future__ import annotations

from liza.programs.presets import command_line
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir
from liza.rules.sessions.message_rules import Reach


def reach(directory: RunDir, preset: Preset, terminal: bool) -> Reach:
    """The ways into the session of a run, which has a ``terminal`` or none.

    Hooks count once one of them has spoken: that they were installed is no proof that the program heeds them.
    Raises LizaError where a file cannot be read.
    """
    turn = directory.turn()
    fetches = turn is not None and command_line.has_hooks(preset)
    return Reach(directory.run, fetches=fetches, types=terminal, busy=turn is not None and turn.phase == "busy")
