"""The size of the context window of a session's model, as its program's output, its log or its row gives it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from liza.programs.presets.preset import ConversationLogFormat, UsageFormat
from liza.programs.usage_report import value_at

_MAX_MODELS = 100


class ContextWindows:
    """The windows of one session's models, in tokens.

    The output outranks the row: it knows which window the person has chosen, and what a gateway allows.
    """

    def __init__(self, output: UsageFormat, log: ConversationLogFormat) -> None:
        self._output, self._log = output, log
        self._model = ""
        self._sizes: dict[str, int] = {}

    def read_output(self, event: Any) -> None:
        """Read one object of the output: the full name of the session's model, and the windows of its models."""
        form = self._output
        if form.model and isinstance(name := value_at(event, form.model), str):
            self._model = name
        table = value_at(event, form.models.table) if form.models.window else None
        for model, entry in table.items() if isinstance(table, dict) else ():
            size = _as_size(value_at(entry, form.models.window))
            if size is not None and len(self._sizes) < _MAX_MODELS:
                self._sizes[model] = size

    def find(self, logged: Any, model: str) -> int | None:
        """Return the window of a request of ``model``; None if it is unknown. ``logged``: the window in its line."""
        if logged is not None or not model:
            return _as_size(logged)
        if self._model.startswith(model):
            size = self._sizes.get(self._model) or _match(self._output.windows, self._model)
            if size is not None:
                return size
        return self._sizes.get(model) or _match(self._log.windows, model)


def _match(sizes: Mapping[str, int], model: str) -> int | None:
    return next((size for name, size in sizes.items() if fnmatch.fnmatchcase(model, name)), None)


def _as_size(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
