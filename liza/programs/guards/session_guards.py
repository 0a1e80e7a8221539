"""The guards of one session: ``guards.json`` in the run's directory, and the judgment of its tools.

The file is written when the session starts, so what an agent changes later in the project's file has no effect on it. A
hook reads it with ``json`` alone; it has no other source for the session's facts.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from liza.programs.guards.shell_parser import parse_script
from liza.rules.errors import NotRegularFile
from liza.rules.guards.acts import GuardFacts
from liza.rules.guards.guard_paths import DENIALS_FILE, GUARDS_FILE
from liza.rules.guards.judgment import UNJUDGED_RULE, Verdict
from liza.rules.guards.prepared_rules import PreparedRules
from liza.rules.guards.shell_syntax import CannotJudge
from liza.rules.guards.tool_judgment import ToolJudge
from liza.system import untrusted_files

MAX_DENIALS = 1 << 20  # size in bytes at which no further denials are recorded
ON_ERROR_ALLOW = "allow"
_DAMAGED = "Use no more tools; a person ends this session, and the next one gets new guards"
_VARIABLES = ("HOME", "TMPDIR", "USER", "LIZA_ROOT", "LIZA_RUN", "LIZA_TASK", "LIZA_AGENT_ID")
_PATHS = ("root", "slots", "worktree", "state")
_PREPARED = ("rules", "tools", "shell", "tests")
"""What the prepared rules are made of."""
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class SessionGuards:
    """The guards of a session, as its guards file has them. A process that judges many tools keeps them."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self._rules: PreparedRules | None = None
        self._like: SessionGuards | None = None

    @property
    def rules(self) -> PreparedRules:
        """The prepared rules. Raises KeyError or TypeError if the file was changed."""
        if self._rules is None:
            self._rules = PreparedRules(self.data) if self._like is None else self._like.rules
        return self._rules

    def share_rules(self, other: SessionGuards) -> bool:
        """Use the prepared rules of another session if both have the same. Return whether they have.

        To prepare the rules takes 4 ms and 100 KB. The sessions of a crew differ in their paths only.
        """
        if any(self.data.get(name) != other.data.get(name) for name in _PREPARED):
            return False
        shared = {name: other.data[name] for name in _PREPARED if name in other.data}
        self.data, self._like = {**self.data, **shared}, other
        return True


def read_guards(directory: str) -> SessionGuards:
    """Return the guards in a run's guards file. Raises FileNotFoundError, OSError, ValueError, NotRegularFile."""
    path = f"{directory}/{GUARDS_FILE}"
    try:
        data = json.loads(untrusted_files.read_record(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. {_DAMAGED}") from error
    if not isinstance(data, dict) or not isinstance(data.get("rules"), list) or not data["rules"]:
        raise ValueError(f"{path} is damaged: it has no rules. {_DAMAGED}")
    return SessionGuards(data)


def judge_tool(
    guards: SessionGuards, tool: str, given: object, environ: Mapping[str, str], directory: str = ""
) -> Verdict:
    """Return the verdict on a tool. It never raises: what cannot be judged is denied, unless ``on_error`` allows it.

    ``directory`` is where the tool starts; empty: in the worktree.
    """
    try:
        if not tool:
            raise ValueError("the program does not say which tool it is about to use")
        facts = build_facts(guards.data, environ, directory)
        verdict = ToolJudge(guards.rules, facts, parse_script).judge(tool, given)
    except CannotJudge as error:
        verdict = Verdict(False, f"[liza] not run: {error}", UNJUDGED_RULE)
    except (AttributeError, KeyError, TypeError) as error:
        verdict = Verdict(False, f"[liza] not run: {GUARDS_FILE} is damaged: {error!r}. {_DAMAGED}", UNJUDGED_RULE)
    except Exception as error:  # noqa: BLE001 - whatever fails here must not let the tool pass
        verdict = Verdict(False, f"[liza] not run: the guards cannot judge this tool: {error}", UNJUDGED_RULE)
    if verdict.rule == UNJUDGED_RULE and guards.data.get("on_error") == ON_ERROR_ALLOW:
        return Verdict(True, verdict.reason, UNJUDGED_RULE)
    return verdict


def authorize_tool(
    run_directory: str, guards: SessionGuards, tool: str, given: object, environ: Mapping[str, str], directory: str
) -> Verdict:
    """Judge a tool of a session, and record a denial in the directory of its run. Raises nothing."""
    verdict = judge_tool(guards, tool, given, environ, directory)
    if not verdict.allowed:
        record_denial(run_directory, tool, verdict)
    return verdict


def build_facts(data: Mapping[str, Any], environ: Mapping[str, str], directory: str = "") -> GuardFacts:
    """Return the facts of the session, with links resolved."""
    paths = {name: os.path.realpath(data[name]) if data.get(name) else "" for name in _PATHS}
    home = str(data.get("home") or environ.get("HOME", ""))
    return GuardFacts(
        role=str(data.get("role", "")),
        task=str(data.get("task") or ""),
        branch=str(data.get("branch") or ""),
        home=os.path.realpath(home) if home else "",
        directory=os.path.realpath(directory) if directory.startswith("/") else "",
        variables={name: environ[name] for name in _VARIABLES if environ.get(name)},
        real=os.path.realpath,
        exists=os.path.lexists,
        **paths,
    )


def record_denial(directory: str, tool: str, verdict: Verdict) -> None:
    """Append a denial to the list of the run. It is counted only, so an error is ignored."""
    line = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rule": verdict.rule,
        "tool": tool[:200],
        "reason": (verdict.reason or "")[:2000],
    }
    try:
        descriptor = untrusted_files.open_regular(f"{directory}/{DENIALS_FILE}", _APPEND)
        with os.fdopen(descriptor, "ab") as file:
            if os.fstat(descriptor).st_size < MAX_DENIALS:
                file.write(json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode() + b"\n")
    except (OSError, NotRegularFile):
        return
