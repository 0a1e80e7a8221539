"""The guards of one session: ``guards.json`` in the run's directory, and the judgment of its tools.

The file is written when the session starts, so what an agent changes later in the project's file has no effect on it.
Every entry point calls ``judge_request``: hooks, the sidecar and the worker API. What cannot be decided is denied, with
the reason, unless ``config.guards.on_error`` is ``allow``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from liza.guards import guard_files
from liza.guards.rules.acts import CannotJudge, GuardFacts
from liza.guards.rules.guard_rules import DENIALS_FILE, GUARDS_FILE
from liza.guards.rules.judgment import UNJUDGED_RULE, PreparedRules, ToolJudge, Verdict
from liza.guards.shell_parser import parse_script
from liza.model.errors import LizaError, NotRegularFile
from liza.model.paths import role_of
from liza.model.value_classes import Label, RunId, WorkerAnswer, WorkerRequest
from liza.programs.session.run_directory import RunDir
from liza.system import untrusted_files
from liza.system.files import FileCache

OVER_RULE, CONTEXT_RULE = "session-over", "context"
MAX_SESSIONS = 300  # sessions whose guards are kept in memory
MAX_DENIALS = 1 << 20  # size in bytes at which no further denials are recorded
ON_ERROR_ALLOW = "allow"
_DAMAGED = "Use no more tools; a person ends this session, and the next one gets new guards"
_VARIABLES = ("HOME", "TMPDIR", "USER", "LIZA_ROOT", "LIZA_RUN", "LIZA_TASK", "LIZA_AGENT_ID")
_PATHS = ("root", "slots", "worktree", "state", "home")
_PREPARED = ("rules", "vocabulary", "programs", "tests")  # what the prepared rules are made of


class ToolContext(WorkerRequest, frozen=True, kw_only=True):
    """What the runtime believes about its run. A value that contradicts the board is refused."""

    role: Label | None = None
    repository: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    task_id: Label | None = None


class AuthorizeRequest(WorkerRequest, frozen=True, kw_only=True):
    """A tool that is about to run. ``tool`` is the runtime's own name, ``input`` the tool's arguments."""

    run_id: RunId
    tool: Label
    input: dict[str, Any] = msgspec.field(default_factory=dict)
    context: ToolContext = ToolContext()


class AuthorizeAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """``reason`` tells the agent why not, and what to do instead; ``rule`` names the guard rule that decided."""

    allowed: bool
    reason: str | None = None
    rule: str | None = None


class SessionGuards:
    """The guards of a session, as its guards file has them. A process that judges many tools keeps them.

    Raises KeyError, AttributeError or msgspec.ValidationError if the data is damaged.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = {name: value for name, value in data.items() if name not in _PREPARED}
        self.rules = _prepare(json.dumps({name: data[name] for name in _PREPARED if name in data}))

    def judge(self, tool: str, given: object, environ: Mapping[str, str], directory: str = "") -> Verdict:
        """Return the verdict on a tool. It never raises: what cannot be judged is denied, unless ``on_error`` allows
        it. ``directory`` is where the tool starts; empty: in the worktree.
        """
        try:
            if not tool:
                raise ValueError("the program does not say which tool it is about to use")
            facts = build_facts(self.data, environ, directory)
            verdict = ToolJudge(self.rules, facts, parse_script).judge(tool, given)
        except (CannotJudge, RecursionError) as error:
            reason = f"[liza] not run: Liza cannot judge this command: {error}. Write it in a simpler way"
            verdict = Verdict(False, reason, UNJUDGED_RULE)
        except Exception as error:  # noqa: BLE001 - whatever fails here must not let the tool pass
            verdict = Verdict(False, f"[liza] not run: the guards cannot judge this tool: {error}", UNJUDGED_RULE)
        if verdict.rule == UNJUDGED_RULE and self.data.get("on_error") == ON_ERROR_ALLOW:
            return Verdict(True, verdict.reason, UNJUDGED_RULE)
        return verdict


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


class GuardsCache:
    """The guards of the runs whose tools a process judges. Thread-safe."""

    def __init__(self) -> None:
        self._sessions: FileCache[SessionGuards] = FileCache(MAX_SESSIONS)

    def read(self, run_dir: RunDir) -> SessionGuards:
        """Return the guards of a run, read again if the file has changed. Raises as ``read_guards``."""
        return self._sessions.read(run_dir.path / GUARDS_FILE, lambda: read_guards(str(run_dir.path)))


def judge_request(
    run_dir: RunDir,
    request: AuthorizeRequest,
    environ: Mapping[str, str] | None = None,
    directory: str = "",
    cache: GuardsCache | None = None,
) -> AuthorizeAnswer:
    """Return whether a run may use a tool. It never raises. A denial is recorded in the run's directory.

    ``environ`` is the environment of the session, if it is known; ``directory`` is where the tool starts.
    ``cache`` spares reading the guards again for each tool.
    """
    verdict = _check_session(run_dir) or _check_context(run_dir, request)
    if verdict is None:
        verdict = _judge(run_dir, request, environ or {}, directory, cache or GuardsCache())
    return AuthorizeAnswer(allowed=verdict.allowed, reason=verdict.reason, rule=verdict.rule)


def _check_session(run_dir: RunDir) -> Verdict | None:
    """Deny every tool in a session that is over."""
    try:
        stop, code = run_dir.read_stop(), run_dir.closing_code()
    except (LizaError, OSError) as error:
        return Verdict(False, f"[liza] not run: {error}", OVER_RULE)
    if stop is not None:
        why = f"was stopped ({stop.reason})"
    elif code is not None:
        why = "has called its closing command"
    else:
        return None
    return Verdict(False, f"[liza] {run_dir.run} {why}. Use no more tools, and end here.", OVER_RULE)


def _check_context(run_dir: RunDir, request: AuthorizeRequest) -> Verdict | None:
    """Deny a request whose context is not that of the run."""
    given = request.context
    if given.role is None and given.task_id is None and given.repository is None:
        return None
    try:
        record = run_dir.read_record()
    except (LizaError, OSError) as error:
        return Verdict(False, f"[liza] not run: {error}", CONTEXT_RULE)
    role, task = role_of(run_dir.agent), record.task if record else None
    for name, value, expected in (
        ("role", given.role, role),
        ("task_id", given.task_id, task),
        ("repository", given.repository, str(run_dir.paths.root)),
    ):
        if value is not None and value != expected:
            return Verdict(False, f"[liza] {run_dir.run} has the {name} {expected}, not {value}.", CONTEXT_RULE)
    return None


def _judge(
    run_dir: RunDir, request: AuthorizeRequest, environ: Mapping[str, str], directory: str, cache: GuardsCache
) -> Verdict:
    try:
        guards = _read_guards(run_dir, cache)
    except (LizaError, NotRegularFile, OSError, ValueError, RecursionError) as error:
        return Verdict(False, f"[liza] not run: the guards of this session cannot be read: {error}", UNJUDGED_RULE)
    verdict = guards.judge(request.tool, request.input, environ, directory)
    if not verdict.allowed:
        record_denial(run_dir.path, request.tool, verdict)
    return verdict


def _read_guards(run_dir: RunDir, cache: GuardsCache) -> SessionGuards:
    """Return the guards of the session; the present ones if its start wrote none, as in earlier versions."""
    try:
        return cache.read(run_dir)
    except FileNotFoundError:
        home = Path.home()
        loaded = guard_files.load_guards(run_dir.paths, home)
        return SessionGuards(guard_files.compose_for_run(run_dir, loaded, home))


def record_denial(directory: Path, tool: str, verdict: Verdict) -> None:
    """Append a denial to the list of the run. It is counted only, so an error is ignored."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = {"time": now, "rule": verdict.rule, "tool": tool[:200], "reason": (verdict.reason or "")[:2000]}
    with suppress(OSError, NotRegularFile):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = untrusted_files.open_regular(directory / DENIALS_FILE, flags)
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
