"""The parsers of ruamel. Their import takes 13 ms of CPU time, so `parse` imports this module only for unusual text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _ruamel_yaml import CParser  # type: ignore[import-not-found]
from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError

NextEvent = Callable[[], Any]
__all__ = ["MarkedYAMLError", "YAMLError", "c_parser", "events", "pure_parser"]


def c_parser(text: str) -> NextEvent:
    """Return a function that returns the next event of the C parser."""
    following: NextEvent = CParser(text).get_event
    return following


def pure_parser(text: str) -> NextEvent:
    """Return a function that returns the next event of the pure Python parser."""
    iterator = YAML(typ="safe", pure=True).parse(text)

    def following() -> Any:
        event = next(iterator)
        if isinstance(event, events.ScalarEvent):
            # Raise UnicodeEncodeError for a lone surrogate, also if escaped, as the C parser does.
            event.value.encode()
        return event

    return following
