"""The scripted reviewer: runs the tests and every command in DONE WHEN. It has no knowledge of the tasks."""

from __future__ import annotations

import re

from liza.demo.agents.agent_commands import print_progress, read_brief, run_command, try_command


def main() -> None:
    """Run one session."""
    brief = read_brief()
    clauses = re.findall(r"`([^`]+)`", brief.require(r"^DONE WHEN\s+(.*)$"))
    commands = [brief.require(r"^Run the tests: (.+)\. Check each clause"), *clauses]
    failed = [(command, failure) for command in commands if (failure := try_command(command)) is not None]
    if failed:
        points = [
            f"{number}. `{command}` fails: {failure}. It has to succeed, and a test has to show it."
            for number, (command, failure) in enumerate(failed, 1)
        ]
        run_command([*brief.liza, "verdict", "reject", "  ".join(points)])
        print_progress("rejected")
        return
    run_command([*brief.liza, "verdict", "approve", f"{len(commands)} commands succeed: {'; '.join(commands)}"])
    print_progress("approved")


if __name__ == "__main__":
    main()
