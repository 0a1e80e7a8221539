"""Variables of gates: which ``config.gate_environment`` may set, and which turn off cached results. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from liza.model.clean_environment import REMOVED_VARIABLES

_ENTRY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=[^\0\r\n]*")
_REFUSED_NAMES = ("PATH", "HOME", *REMOVED_VARIABLES)
_REFUSED_PREFIXES = ("LIZA_", "GIT_")
EXPECTED = "NAME=VALUE, without a name that Liza, git or the choice of an environment needs"


def find_refused(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the entries that are no variables of gates. A value is left out: it may be a secret."""
    return tuple(_name(entry) for entry in entries if not _is_allowed(entry))


def uncached_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which test runners run tests whose cached result they would print.

    Go's cache does not know the files that a child process of a test reads. A build ignores this flag.
    """
    return {"GOFLAGS": f"{environ.get('GOFLAGS', '')} -count=1".strip()}


def _is_allowed(entry: str) -> bool:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return False
    return match[1] not in _REFUSED_NAMES and not match[1].startswith(_REFUSED_PREFIXES)


def _name(entry: str) -> str:
    return repr(entry.partition("=")[0][:40])
