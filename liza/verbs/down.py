"""down: end the crew's supervisors; with purge, take everything of Liza out of the repository."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from liza.crew import layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.crew.project import commands
from liza.crew.recovery import saved_specs
from liza.crew.result import Result
from liza.programs.session import run_directory, session_process
from liza.programs.terminal import tmux
from liza.repo import symbolic_refs
from liza.repo.config_pins import git_dirs
from liza.repo.hiding import brief_filter, exclude
from liza.repo.survey import survey
from liza.rules.errors import BoardInconsistent, LizaError, NoCrew, Refused
from liza.rules.paths import HISTORY_REF
from liza.rules.reports.up_command import up_command_for
from liza.system import processes
from liza.system.file_lock import Lock, last_holder_pid

SALVAGE_PREFIX = "refs/liza/salvage/"
STOP_TIMEOUT = 40.0
FORCED_STOP_TIMEOUT = 8.0


@dataclass(frozen=True)
class PurgeResult:
    """What went, what stayed because it is nowhere else, what went from .liza without being read, which supervisors
    and sessions were ended first, and what is left in the directory of the worktrees."""

    deleted_refs: tuple[str, ...]
    kept_refs: tuple[str, ...]
    unread_files: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def down(crew: Crew, *, now: bool = False) -> Result:
    """Stop every supervisor, politely or at once, and wait until they are gone. Raises Refused for one that stays,
    and where processes work here whose lock files were deleted."""
    require_person(crew, planner=False)
    stopped = []
    for lock in sorted(crew.paths.locks.glob("supervisor-*.lock")):
        agent = lock.name.removeprefix("supervisor-").removesuffix(".lock")
        if crew.is_supervised(agent):
            _stop(crew, agent, now=now)
            stopped.append(agent)
    ended = end_unsupervised_sessions(crew)
    tmux.close_all_panes(crew.paths.root)
    layout.refuse_survivors(crew, layout.AGAIN)
    result = "changed" if stopped or ended else "unchanged"
    told = f"stopped {', '.join(stopped)}" if stopped else "no supervisor runs"
    told += f"; ended {', '.join(ended)}, which lived on without one" if ended else ""
    return Result(
        result, None, None, _restart_command(crew, stopped), {"stopped": stopped, "sessions_ended": ended}, told
    )


def _restart_command(crew: Crew, stopped: list[str]) -> str:
    """The command that starts them again; the plain one where the board cannot be asked."""
    try:
        return up_command_for(crew.board.read(), *stopped)
    except LizaError:
        return "liza up"


def _stop(crew: Crew, agent: str, *, now: bool) -> None:
    path = crew.paths.supervisor_lock(agent)
    pid = last_holder_pid(path)
    if pid is None:
        raise Refused(f"the supervisor of {agent} holds its lock and cannot be named", f"fuser {path}")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        if now:
            # Another signal: two of a kind that come together are one.
            os.kill(pid, signal.SIGINT)
    lock = Lock(path)
    lock.acquire(timeout=FORCED_STOP_TIMEOUT if now else STOP_TIMEOUT)
    lock.release()


def end_unsupervised_sessions(crew: Crew) -> list[str]:
    """End what lives on without a supervisor: it waits to be adopted, and with the crew down nobody will."""
    ended = []
    agents = sorted(path.name for path in crew.paths.runs.iterdir()) if crew.paths.runs.is_dir() else []
    for agent in agents:
        if not crew.is_supervised(agent):
            ended += [run for run in run_directory.list_runs(crew.paths, agent) if _end_session(crew, run)]
    _kill_orphan_tests(crew)
    return ended


def _kill_orphan_tests(crew: Crew) -> None:
    lock = Lock(crew.paths.merge_lock)
    if lock.try_acquire():
        commands.kill_orphan_commands(crew.paths.root)
        lock.release()


def _end_session(crew: Crew, run: str) -> bool:
    directory = crew.run_dir(run)
    match session_process.read_state(directory.path):
        case session_process.RunningSession() | session_process.ShimStarting():
            directory.write_stop(crew.clock.now(), "stop")
            session_process.stop(directory.path, run, crew.paths.root, grace=2.0)
            return True
        case session_process.VanishedSession():
            # Killed together with its shim: nobody ended what it had started.
            processes.kill_run(run, crew.paths.root)
    return False


def purge(crew: Crew) -> PurgeResult:
    """Stop the crew and leave the repository as it was before init. Commits that are nowhere else keep their branch.

    Raises Refused, GitFailed, Missing.
    """
    with suppress(BoardInconsistent, NoCrew):
        layout.refuse_damaged(crew, crew.board.read())
    lock = Lock(crew.paths.locks / "purge.lock")
    if not lock.try_acquire():
        raise Refused("another purge is under way", "liza status")
    try:
        return _purge(crew)
    finally:
        lock.release()


def _purge(crew: Crew) -> PurgeResult:
    at_work = _living_runs(crew)
    stopped = down(crew)
    ended = (*stopped.details["stopped"], *dict.fromkeys((*at_work, *stopped.details["sessions_ended"])))
    specs, programs = saved_specs.save_specs(crew), saved_specs.save_programs(crew)
    found = survey(crew.paths.root, crew.git.pins)
    made = _read_created_branch(crew.paths.liza / "made.json")
    crew.worktrees.remove_all()
    slots = crew.paths.slots
    left = tuple(str(path) for path in sorted(slots.iterdir())) if slots.is_dir() else ()
    brief_filter.uninstall_filter(crew.git)
    exclude.unignore_liza_dirs(crew.git)
    gone, kept = _delete_branches(crew, made, found.branch)
    for place in ("candidates", "tested", "review"):
        _delete_refs(crew, f"refs/liza/{place}")
    _delete_refs(crew, "refs/liza/laid-back")
    if specs.saved:
        kept.append(saved_specs.SPECS_REF)
    if kept:
        # What stays is explained by the history, so that stays too.
        kept.append(HISTORY_REF)
    else:
        _delete_refs(crew, HISTORY_REF)
        gone.append(HISTORY_REF)
    if programs.saved:
        # It explains itself, without the history.
        kept.append(saved_specs.PROGRAMS_REF)
    shutil.rmtree(crew.paths.liza)
    return PurgeResult(tuple(gone), tuple(kept), (*specs.skipped, *programs.skipped), ended, left)


def _living_runs(crew: Crew) -> list[str]:
    """The runs whose session lives."""
    agents = sorted(path.name for path in crew.paths.runs.iterdir()) if crew.paths.runs.is_dir() else []
    runs = [run for agent in agents for run in run_directory.list_runs(crew.paths, agent)]
    return [
        run
        for run in runs
        if isinstance(session_process.read_state(crew.run_dir(run).path), session_process.RunningSession)
    ]


def _read_created_branch(path: Path) -> str | None:
    return json.loads(path.read_text())["branch"] if path.exists() else None


def _delete_branches(crew: Crew, made: str | None, current: str | None) -> tuple[list[str], list[str]]:
    """Liza's refs go when everything of theirs is on a branch that stays; integration is judged first, salvages last:
    what a branch of a task keeps need not be kept twice."""
    gone = _delete_symbolic_refs(crew, made)
    mine = [
        *_list_refs(crew, "refs/heads/task/"),
        *_list_refs(crew, drift.LAST_INTEGRATION_REF),
        *_list_refs(crew, SALVAGE_PREFIX),
    ]
    branches = _list_refs(crew, "refs/heads/")
    if made is not None and made != current and f"refs/heads/{made}" in branches:
        mine.insert(0, f"refs/heads/{made}")
    staying = [ref for ref in (*branches, *_list_refs(crew, "refs/remotes/", "refs/tags/")) if ref not in mine]
    kept: list[str] = []
    for ref in mine:
        if _has_unique_content(crew, ref, staying):
            kept.append(ref)
            staying.append(ref)
        else:
            crew.git.out("update-ref", "-d", ref)
            gone.append(ref)
    return gone, kept


def _has_unique_content(crew: Crew, ref: str, staying: list[str]) -> bool:
    """Whether a ref holds something that none of those that stay holds. A salvage has a commit of its own even where
    there was nothing to save but the commit that it stands on."""
    alone = crew.git.out("rev-list", "-n2", ref, "--not", *staying).split()
    if len(alone) != 1 or not ref.startswith(SALVAGE_PREFIX):
        return bool(alone)
    _, *parents = crew.git.out("rev-list", "--no-walk", "--parents", ref).split()
    trees = crew.git.out("rev-parse", *(f"{commit}^{{tree}}" for commit in (ref, *parents))).split()
    return len(trees) != 2 or trees[0] != trees[1]


def _list_refs(crew: Crew, *prefixes: str) -> list[str]:
    """The plain refs below: a symbolic one holds nothing."""
    rows = crew.git.lines("for-each-ref", "--format=%(refname) %(symref)", *prefixes)
    return [row.strip() for row in rows if row.endswith(" ")]


def _delete_symbolic_refs(crew: Crew, made: str | None) -> list[str]:
    """Symbolic refs in the place of Liza's go, and what they name stays."""
    head = git_dirs(crew.git)[0] / "HEAD"
    used = head.read_text(errors="replace").removeprefix("ref:").strip()
    gone = [ref for ref in symbolic_refs.find_symbolic(crew.git, made) if ref != used]
    for ref in gone:
        crew.git.out("update-ref", "-d", ref)
    return gone


def _delete_refs(crew: Crew, prefix: str) -> None:
    for ref in _list_refs(crew, prefix):
        crew.git.out("update-ref", "-d", ref)
