"""The reviewer: runs the tests, and every command that stands in DONE WHEN. It knows nothing about any task."""

from __future__ import annotations

import re

from liza.demo.agents.agent_commands import print_progress, read_brief, run_command, try_command


def main() -> None:
    """One session."""
    brief = read_brief()
    clauses = re.findall(r"`([^`]+)`", brief.require(r"^DONE WHEN\s+(.*)$"))
    commands = [brief.require(r"^Run the tests: (.+)\. Check each clause"), *clauses]
    failed = [(command, red) for command in commands if (red := try_command(command)) is not None]
    if failed:
        points = [
            f"{number}. `{command}` fails: {red}. It has to succeed, and a test has to show it."
            for number, (command, red) in enumerate(failed, 1)
        ]
        run_command([*brief.liza, "verdict", "reject", "  ".join(points)])
        print_progress("rejected")
        return
    run_command([*brief.liza, "verdict", "approve", f"{len(commands)} commands succeed: {'; '.join(commands)}"])
    print_progress("approved")


if __name__ == "__main__":
    main()
