"""Which command lives in which module, and under which heading of ``liza --help`` it stands.

The door loads only the module of the word that was typed: a command that an agent says many times a day starts in
the time that Python needs, not in the time that all commands need.
"""

from __future__ import annotations

from typing import Final

MODULES: Final[dict[str, str]] = {
    "init": "start",
    "demo": "start",
    "doctor": "start",
    "programs": "programs",
    "up": "start",
    "down": "start",
    "status": "look",
    "task": "task",
    "diff": "look",
    "history": "look",
    "logs": "look",
    "attach": "look",
    "agents": "look",
    "watch": "look",
    "metrics": "look",
    "validate": "look",
    "answer": "answer",
    "claim": "steer",
    "note": "steer",
    "pause": "steer",
    "resume": "steer",
    "sync": "steer",
    "merge": "steer",
    "ready": "agents",
    "submit": "agents",
    "verdict": "agents",
    "block": "agents",
    "handoff": "agents",
    "report": "agents",
    "heartbeat": "agents",
    "exit": "agents",
    "hook": "agents",
    "edit": "file",
    "lock": "file",
    "restore": "file",
}

HEADINGS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "Start",
        ("init", "demo", "doctor", "programs list", "programs check", "programs show", "programs trust", "up", "down"),
    ),
    (
        "Look",
        (
            "status",
            "task list",
            "task show",
            "diff",
            "history",
            "logs",
            "attach",
            "agents",
            "watch",
            "metrics",
            "validate",
        ),
    ),
    (
        "Steer",
        (
            "task add",
            "task edit",
            "task unblock",
            "answer",
            "task supersede",
            "task drop",
            "task release",
            "claim",
            "note",
            "pause",
            "resume",
            "sync",
            "merge",
        ),
    ),
    (
        "Agents' own",
        ("ready", "submit", "verdict", "block", "handoff", "report", "heartbeat", "exit", "hook"),
    ),
    ("The file", ("edit", "lock", "restore")),
)

QUICK: Final = frozenset({"ready", "submit", "heartbeat", "status"})
"""Said without any further word, these need no parser; see ``quick``."""
