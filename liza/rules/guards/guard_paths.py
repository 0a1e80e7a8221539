"""Names of the files of guards."""

from __future__ import annotations

GUARDS_TOML = "guards.toml"
"""The project's rules, in ``.liza``."""
GUARDS_FILE = "guards.json"
"""The rules and facts of a session, in the directory of its run."""
DENIALS_FILE = "denials.jsonl"
"""The denials of a session, in the directory of its run."""
