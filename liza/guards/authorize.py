"""Authorize: may a run use a tool? Every entry point asks this function.

What cannot be decided is denied, with the reason, unless ``config.guards.on_error`` is ``allow``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from liza.api.api_answers import AuthorizeAnswer
from liza.api.api_requests import AuthorizeRequest
from liza.guards import guard_files, session_guards
from liza.guards.rules.guard_rules import GUARDS_FILE
from liza.guards.rules.judgment import UNJUDGED_RULE, Verdict
from liza.guards.session_guards import SessionGuards
from liza.model.errors import LizaError, NotRegularFile
from liza.model.paths import role_of
from liza.programs.session.run_directory import RunDir
from liza.system import files

OVER_RULE = "session-over"
CONTEXT_RULE = "context"
MAX_SESSIONS = 300
"""Sessions whose guards are kept in memory."""


class GuardsCache:
    """The guards of the runs whose tools a process judges. Thread-safe."""

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._limit = limit
        self._guard = threading.Lock()
        self._sessions: OrderedDict[str, tuple[files.Stamp, SessionGuards]] = OrderedDict()

    def is_current(self, run_dir: RunDir) -> bool:
        """Return whether ``read`` needs no look into the file."""
        stamp = files.read_stamp(run_dir.path / GUARDS_FILE)
        with self._guard:
            entry = self._sessions.get(str(run_dir.path))
        return stamp is not None and entry is not None and entry[0] == stamp

    def read(self, run_dir: RunDir) -> SessionGuards:
        """Return the guards of a run, read again if the file has changed. Raises as ``session_guards.read_guards``."""
        key = str(run_dir.path)
        stamp = files.read_stamp(run_dir.path / GUARDS_FILE)
        if stamp is None:
            raise FileNotFoundError(GUARDS_FILE)
        with self._guard:
            entry = self._sessions.get(key)
            if entry is not None and entry[0] == stamp:
                self._sessions.move_to_end(key)
                return entry[1]
        guards = session_guards.read_guards(key)
        with self._guard:
            self._sessions[key] = stamp, guards
            if len(self._sessions) > self._limit:
                self._sessions.popitem(last=False)
        return guards


def authorize(
    run_dir: RunDir,
    request: AuthorizeRequest,
    environ: Mapping[str, str] | None = None,
    directory: str = "",
    cache: GuardsCache | None = None,
) -> AuthorizeAnswer:
    """Return whether the tool may run. It never raises. A denial is recorded in the run's directory.

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
    verdict = session_guards.judge_tool(guards, request.tool, request.input, environ, directory)
    if not verdict.allowed:
        session_guards.record_denial(str(run_dir.path), request.tool, verdict)
    return verdict


def _read_guards(run_dir: RunDir, cache: GuardsCache) -> SessionGuards:
    """Return the guards of the session; the present ones if its start wrote none, as in earlier versions."""
    try:
        return cache.read(run_dir)
    except FileNotFoundError:
        home = Path.home()
        loaded = guard_files.load_guards(run_dir.paths, home)
        return SessionGuards(guard_files.compose_for_run(run_dir, loaded, home))
