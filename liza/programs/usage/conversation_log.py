"""The file in which a program logs its conversation: the usage of each request, while the session is running."""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from liza.programs.presets.preset import ConversationLogFormat, Preset
from liza.programs.usage.usage_report import combine_usage, is_id, usage_of_object, value_at
from liza.rules.sessions.spending import TokenUsage

SHORT_ID_LENGTH = 8


def find_log_files(preset: Preset, conversation: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of a conversation; none if the id is invalid."""
    form = preset.journal
    if not form.file or conversation is None or not is_id(conversation):
        return ()
    own = environ.get(preset.config_dir_env) if preset.config_dir_env else None
    home = environ.get("HOME")
    if own is None and home is None:
        return ()
    config = own or str(Path(home or "/") / form.config)
    values = {"{config}": config, "{id}": conversation, "{short}": conversation[:SHORT_ID_LENGTH]}
    pattern = form.file
    for name, value in values.items():
        pattern = pattern.replace(name, glob.escape(value))
    # Path.glob does not accept absolute patterns.
    return tuple(Path(path) for path in sorted(glob.glob(pattern)))  # noqa: PTH207


class ConversationUsage:
    """Adds up the usage in the lines of a log, without those of an earlier session."""

    def __init__(self, form: ConversationLogFormat, started: datetime) -> None:
        self._form = form
        self._started = started
        self._requests: dict[str, TokenUsage] = {}
        self._context_usage: float | None = None

    def add(self, event: Any) -> None:
        """Add one object of the log."""
        used = usage_of_object(self._form, event)
        if used is None or self._is_older(event):
            return
        key = value_at(event, self._form.key) if self._form.key else None
        self._requests[str(key) if key is not None else f" {len(self._requests)}"] = used
        if used.tokens and not (self._form.nested and value_at(event, self._form.nested)):
            # A message that the program writes itself has no tokens.
            self._context_usage = self._used_part(event, used.tokens)

    @property
    def used(self) -> TokenUsage | None:
        """The usage of all requests; None before the first."""
        return combine_usage(self._form, list(self._requests.values())) if self._requests else None

    @property
    def context_usage(self) -> float | None:
        """The part of the context window that the newest request used, 0 to 1; None if the window is unknown."""
        return self._context_usage

    def _used_part(self, event: Any, tokens: int) -> float | None:
        """Return the used part of the window; None if it is unknown, or cannot be the model's: more is in it."""
        window = value_at(event, self._form.window) if self._form.window else None
        if window is None and self._form.model:
            model = str(value_at(event, self._form.model))
            sizes = (size for name, size in self._form.windows.items() if fnmatch.fnmatchcase(model, name))
            window = next(sizes, None)
        if not isinstance(window, int | float) or isinstance(window, bool) or not tokens <= window:
            return None
        return tokens / window

    def _is_older(self, event: Any) -> bool:
        when = _parse_time(value_at(event, self._form.time)) if self._form.time else None
        return when is not None and when < self._started


def _parse_time(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            when = datetime.fromisoformat(value)
            return when if when.tzinfo else when.replace(tzinfo=UTC)
        return datetime.fromtimestamp(float(value) / 1000, UTC) if isinstance(value, int | float) else None
    except (ValueError, OverflowError, OSError):
        return None
