"""The reviewer: runs the tests, and every command that stands in DONE WHEN. It knows nothing about any task."""

from __future__ import annotations

import re

from liza.demo.agents.hands import attempt, read_brief, say, tell


def main() -> None:
    """One session."""
    brief = read_brief()
    clauses = re.findall(r"`([^`]+)`", brief.need(r"^DONE WHEN\s+(.*)$"))
    commands = [brief.need(r"^Run the tests: (.+)\. Check each clause"), *clauses]
    failed = [(command, red) for command in commands if (red := attempt(command)) is not None]
    if failed:
        points = [
            f"{number}. `{command}` fails: {red}. It has to succeed, and a test has to show it."
            for number, (command, red) in enumerate(failed, 1)
        ]
        tell([*brief.liza, "verdict", "reject", "  ".join(points)])
        say("rejected")
        return
    tell([*brief.liza, "verdict", "approve", f"{len(commands)} commands succeed: {'; '.join(commands)}"])
    say("approved")


if __name__ == "__main__":
    main()
