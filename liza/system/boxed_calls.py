"""Tell whether a process in the box of a session called this command, which runs outside."""

from __future__ import annotations

import os
from typing import Final

CONFINED: Final = "LIZA_CONFINED"
"""Variable of a process in a box, and of a command that was called from one: ``yes``."""
LOOKS: Final = "looks"
"""Value of ``LIZA_CONFINED`` in the box of ``liza confine``: commands run there, and no board of the crew is shown."""


def is_called_from_box() -> bool:
    return os.environ.get(CONFINED) == "yes"


def is_without_board() -> bool:
    """Return whether this process runs in the box of ``liza confine``."""
    return os.environ.get(CONFINED) == LOOKS
