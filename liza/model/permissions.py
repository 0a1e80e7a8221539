"""Whether the agent programs ask before they act: ``config.permissions``. Pure."""

from __future__ import annotations

from typing import Final

PROMPTS: Final = "prompts"
"""The program does only what needs no permission prompt."""
BYPASS: Final = "bypass"
"""The program skips its prompts."""
VALUES: Final = (PROMPTS, BYPASS)
_EARLIER_WORD: Final = "confined"
"""What version 0.1 wrote for ``prompts``."""


def read_permissions(text: str) -> str:
    """Return the present word for one that an earlier version may have written."""
    return PROMPTS if text == _EARLIER_WORD else text


def choose_permissions(setting: str | None, *, is_boxed: bool) -> str:
    """Return the permissions of a session. The box replaces prompts, unless a person wants both."""
    return setting or (BYPASS if is_boxed else PROMPTS)
