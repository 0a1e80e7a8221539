"""The module of each command, and its heading in ``liza --help``.

`entry_points` loads only the module of the typed command: an agent runs some commands many times a day, so they start
without importing the others.
"""

from __future__ import annotations

from typing import Final

COMMAND_MODULES: Final[dict[str, str]] = {
    "init": "crew_commands",
    "demo": "crew_commands",
    "doctor": "crew_commands",
    "programs": "programs",
    "up": "crew_commands",
    "down": "crew_commands",
    "serve": "crew_commands",
    "status": "inspect_commands",
    "task": "task",
    "diff": "inspect_commands",
    "history": "inspect_commands",
    "logs": "inspect_commands",
    "attach": "inspect_commands",
    "agents": "inspect_commands",
    "watch": "inspect_commands",
    "metrics": "inspect_commands",
    "validate": "inspect_commands",
    "guard": "guard",
    "answer": "steer_commands",
    "claim": "steer_commands",
    "note": "steer_commands",
    "pause": "steer_commands",
    "resume": "steer_commands",
    "sync": "steer_commands",
    "merge": "steer_commands",
    "land": "steer_commands",
    "push": "steer_commands",
    "queue": "queue",
    "slots": "slots",
    "epics": "epics",
    "breaker": "breaker",
    "ready": "session_commands",
    "submit": "session_commands",
    "verdict": "session_commands",
    "block": "session_commands",
    "handoff": "session_commands",
    "report": "session_commands",
    "heartbeat": "session_commands",
    "exit": "session_commands",
    "hook": "session_commands",
    "archive": "board_commands",
    "gc": "board_commands",
    "edit": "board_commands",
    "config": "config",
    "lock": "board_commands",
    "restore": "board_commands",
}

HEADINGS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "Start",
        (
            "init",
            "demo",
            "doctor",
            "programs list",
            "programs check",
            "programs show",
            "programs trust",
            "programs accounts",
            "up",
            "down",
            "serve",
        ),
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
            "guard test",
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
            "land",
            "push",
            "queue",
            "queue move",
            "queue hold",
            "queue release",
            "queue retry",
            "epics",
            "epics restore",
            "epics accept",
            "breaker",
            "breaker resolve",
            "slots",
            "slots prune",
            "slots repair",
            "slots nuke",
        ),
    ),
    (
        "Agents' own",
        ("ready", "submit", "verdict", "block", "handoff", "report", "heartbeat", "exit", "hook"),
    ),
    ("The file", ("archive", "gc", "edit", "config get", "config set", "lock", "restore")),
)

LONG_COMMANDS: Final = frozenset(
    {"attach", "demo", "doctor", "edit", "lock", "logs", "programs", "serve", "up", "watch"}
)
"""Commands that run threads, or for as long as a person wants: they collect garbage and exit as usual."""
