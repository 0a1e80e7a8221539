"""The guards of one session: ``guards.json`` in the run's directory, and the judgment of its tools.

The file is written when the session starts, so what an agent changes later in the project's file has no effect on it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from liza.guards.rules.acts import CannotJudge, GuardFacts
from liza.guards.rules.guard_rules import DENIALS_FILE, GUARDS_FILE
from liza.guards.rules.judgment import UNJUDGED_RULE, PreparedRules, ToolJudge, Verdict
from liza.guards.shell_parser import parse_script
from liza.model.errors import NotRegularFile
from liza.system import untrusted_files

MAX_DENIALS = 1 << 20  # size in bytes at which no further denials are recorded
ON_ERROR_ALLOW = "allow"
_DAMAGED = "Use no more tools; a person ends this session, and the next one gets new guards"
_VARIABLES = ("HOME", "TMPDIR", "USER", "LIZA_ROOT", "LIZA_RUN", "LIZA_TASK", "LIZA_AGENT_ID")
_PATHS = ("root", "slots", "worktree", "state", "home")
_PREPARED = ("rules", "vocabulary", "programs", "tests")  # what the prepared rules are made of


class SessionGuards:
    """The guards of a session, as its guards file has them. A process that judges many tools keeps them.

    Raises KeyError, AttributeError or msgspec.ValidationError if the data is damaged.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = {name: value for name, value in data.items() if name not in _PREPARED}
        self.rules = _prepare(json.dumps({name: data[name] for name in _PREPARED if name in data}))


@lru_cache(maxsize=4)
def _prepare(text: str) -> PreparedRules:
    """Return prepared rules. The sessions of a crew have the same, and share them."""
    return PreparedRules(json.loads(text))


def read_guards(directory: str) -> SessionGuards:
    """Return the guards in a run's guards file. Raises FileNotFoundError, OSError, ValueError, NotRegularFile."""
    path = f"{directory}/{GUARDS_FILE}"
    try:
        data = json.loads(untrusted_files.read_record(path))
        if not isinstance(data, dict) or not data.get("rules"):
            raise ValueError("it has no rules")
        return SessionGuards(data)
    except (ValueError, RecursionError, AttributeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path} is damaged: {error}. {_DAMAGED}") from error


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
    except (CannotJudge, RecursionError) as error:
        reason = f"[liza] not run: Liza cannot judge this command: {error}. Write it in a simpler way"
        verdict = Verdict(False, reason, UNJUDGED_RULE)
    except Exception as error:  # noqa: BLE001 - whatever fails here must not let the tool pass
        verdict = Verdict(False, f"[liza] not run: the guards cannot judge this tool: {error}", UNJUDGED_RULE)
    if verdict.rule == UNJUDGED_RULE and guards.data.get("on_error") == ON_ERROR_ALLOW:
        return Verdict(True, verdict.reason, UNJUDGED_RULE)
    return verdict


def build_facts(data: Mapping[str, Any], environ: Mapping[str, str], directory: str = "") -> GuardFacts:
    """Return the facts of the session, with links resolved."""
    data = {**data, "home": data.get("home") or environ.get("HOME")}
    paths = {name: os.path.realpath(data[name]) if data.get(name) else "" for name in _PATHS}
    start = os.path.realpath(directory) if directory.startswith("/") else paths["worktree"] or paths["root"]
    return GuardFacts(
        role=str(data.get("role", "")),
        branch=str(data.get("branch") or ""),
        directory=start,
        is_confined=bool(data.get("confined")),
        variables={name: environ[name] for name in _VARIABLES if environ.get(name)},
        real=os.path.realpath,
        exists=os.path.lexists,
        **paths,
    )


def record_denial(directory: str, tool: str, verdict: Verdict) -> None:
    """Append a denial to the list of the run. It is counted only, so an error is ignored."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = {"time": now, "rule": verdict.rule, "tool": tool[:200], "reason": (verdict.reason or "")[:2000]}
    with suppress(OSError, NotRegularFile):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = untrusted_files.open_regular(f"{directory}/{DENIALS_FILE}", flags)
        with os.fdopen(descriptor, "ab") as file:
            if os.fstat(descriptor).st_size < MAX_DENIALS:
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


def count_denials(directory: Path) -> dict[str, tuple[int, str]]:
    """Return how often each rule denied tools of a run, and its last reason. Lines that cannot be read are skipped."""
    try:
        data = untrusted_files.read_if_exists(directory / DENIALS_FILE, 2 * MAX_DENIALS) or b""
    except (OSError, NotRegularFile):
        return {}
    counts: dict[str, tuple[int, str]] = {}
    for text in data.splitlines():
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            line = json.loads(text)
            rule, reason = str(line["rule"]), str(line.get("reason", ""))
            counts[rule] = counts.get(rule, (0, ""))[0] + 1, reason
    return counts
