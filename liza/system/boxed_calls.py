"""Tell whether a process in the box of a session called this command, which runs outside."""

from __future__ import annotations

import os
from typing import Final

CONFINED: Final = "LIZA_CONFINED"
"""Variable of a process in a box, and of a command that was called from one: ``yes``."""


def is_called_from_box() -> bool:
    return os.environ.get(CONFINED) == "yes"
