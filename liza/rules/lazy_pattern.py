"""Regular expressions that are compiled at their first use."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, AnyStr


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern of a module as ``re.compile`` does, but compile it at its first use.

    Compiling takes 0.1 to 2 ms, and a short command uses few of the patterns of the modules that it imports. Do not
    pass the result to functions of ``re``.
    """
    lazy: Any = _LazyPattern(pattern, flags)
    return lazy  # type: ignore[no-any-return]


class _LazyPattern:
    """The methods and attributes of a compiled pattern."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled: re.Pattern[Any] = re.compile(self.pattern, self._flags)
        value = getattr(compiled, name)
        # Found without this method from now on: some patterns are used for each scalar of a board.
        setattr(self, name, value)
        return value
