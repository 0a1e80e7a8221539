"""How a session is reached while it runs: by its own hooks at the edges of a turn, or by its terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

from liza.programs import screens, startup
from liza.programs.preset import Preset
from liza.programs.rundir import RunDir
from liza.programs.screens import Screen
from liza.rules.delivering import Reach

BUSY = ("started", "busy")
SURE = 0.7


def reach(directory: RunDir, preset: Preset, screen: Screen | None, patterns: Sequence[str] = ()) -> Reach:
    """The ways into the session of a run; ``screen`` is what its terminal shows, where it has one, and ``patterns`` on
    its last line mean that it waits, besides the row's prompt.

    Hooks count once one of them has spoken: that they were installed is no proof that the program heeds them.
    Raises LizaError where a file cannot be read.
    """
    turn = directory.turn()
    fetches = turn is not None and startup.has_hooks(preset)
    return Reach(
        run=directory.run,
        fetches=fetches,
        types=screen is not None,
        idle=screen is not None and _waits(screen, preset, patterns),
    )


def _waits(screen: Screen, preset: Preset, patterns: Sequence[str]) -> bool:
    if screens.shows_prompt(screen, preset.ready_prompt) or screen.waiting > SURE:
        return True
    last = next((line for line in reversed(screen.text.splitlines()) if line.strip()), "")
    return any(re.search(pattern, last) for pattern in patterns)
