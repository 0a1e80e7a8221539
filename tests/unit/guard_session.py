"""A session with the default guards, for tests: the worktree is outside of the person's checkout."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import liza
from liza.guards.rules.acts import CannotJudge, GuardFacts
from liza.guards.rules.judgment import UNJUDGED_RULE, PreparedRules, ToolJudge, Verdict
from liza.guards.shell_parser import parse_script

ROOT, SLOTS, WORKTREE, HOME = "/home/ann/shop", "/home/ann/.cache/slots", "/home/ann/.cache/slots/one", "/home/ann"
STATE = "/var/state/ann/liza"
TESTS = "make check && ./bin/test --all > report.txt"


@cache
def defaults() -> dict[str, Any]:
    """The guards that come with Liza."""
    text = (Path(liza.__file__).parent / "guards" / "guards.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def facts(role: str = "coder", **changes: Any) -> GuardFacts:
    given: dict[str, Any] = {
        "role": role,
        "branch": "task/cart",
        "root": ROOT,
        "slots": SLOTS,
        "worktree": WORKTREE,
        "directory": WORKTREE,
        "home": HOME,
        "state": STATE,
        "exists": lambda path: path in (f"{WORKTREE}/README.md", f"{WORKTREE}/src"),
        "variables": {"LIZA_ROOT": ROOT, "TMPDIR": "/tmp"},
    }
    return GuardFacts(**{**given, **changes})


@cache
def prepared() -> PreparedRules:
    """The prepared rules of this session."""
    data = defaults()
    return PreparedRules(
        {"rules": data["rule"], "vocabulary": data["tools"], "programs": data["shell"], "tests": TESTS}
    )


def judge_tool(tool: str, given: object, role: str = "coder", rules: Any = (), **changes: Any) -> Verdict:
    """The verdict on a tool call; one that cannot be judged is denied by the rule of that name."""
    found = defaults()
    data = {"rules": [*rules, *found["rule"]], "vocabulary": found["tools"], "programs": found["shell"], "tests": TESTS}
    try:
        return ToolJudge(PreparedRules(data) if rules else prepared(), facts(role, **changes), parse_script).judge(
            tool, given
        )
    except (CannotJudge, ValueError) as error:
        return Verdict(False, str(error), UNJUDGED_RULE)


def judge(command: str, role: str = "coder", **changes: Any) -> Verdict:
    """The verdict on a shell command."""
    return judge_tool("bash", {"command": command}, role, **changes)
