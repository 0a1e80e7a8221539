"""down: stop the crew's supervisors; with --purge, remove everything of Liza from the repository."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from liza.api import api_server
from liza.board.contract import Board
from liza.briefs import checkout_brief
from liza.crew import deleted_parts, layout, recorder
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import branch_moves, git_refs, hiding
from liza.git.runner import Git
from liza.git.salvage import EARLIER_PREFIX, SALVAGE_PREFIX
from liza.git.survey import survey
from liza.hosts import host_start
from liza.merging import merge_lock
from liza.model.configuration import Config
from liza.model.derived import find_current_work
from liza.model.errors import BoardInconsistent, BoardUnavailable, LizaError, LockTimeout, NoCrew, Refused, UnknownId
from liza.model.model import State
from liza.model.paths import HISTORY_REF, Paths, parse_agent_id, sort_agents
from liza.model.session_ends import StopReason
from liza.model.targets import EPIC_PREFIX
from liza.model.value_classes import Value
from liza.programs import liveness
from liza.programs.session import run_directory, session_process
from liza.programs.terminal import tmux
from liza.project import commands
from liza.recovery import saved_specs
from liza.system import crash_points, files, locks, processes
from liza.system.locks import Lock, describe_holder, is_flock_held, wait_for_release
from liza.tasks import task_branches
from liza.tasks.rules.up_command import restart_command_for, start_command_for, up_command_for
from liza.text.formats import did_you_mean

STOP_TIMEOUT = 40.0  # seconds for a supervisor to stop its session and exit
FORCED_STOP_TIMEOUT = 8.0  # seconds, with --now
LOCK_TIMEOUT = 1.0  # seconds: a process that only checks whether the lock is free holds it for a moment


class PurgeResult(Value):
    """Result of a purge.

    ``kept_refs`` have content that no other ref has; with any of them the history of the board is kept.
    ``unread_files`` were deleted from .liza without a copy, because they could not be read. ``ended``: supervisors and
    sessions that were stopped first. ``left``: paths that remain in directories of worktrees. ``branch``: the
    integration branch if it stays only because no record says that this crew created it.
    """

    deleted_refs: tuple[str, ...]
    kept_refs: tuple[str, ...]
    unread_files: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    branch: str | None = None


def down(crew: Crew, *, now: bool = False) -> Result:
    """Stop every supervisor (with ``now``: without delay) and wait until they have exited.

    Raises Refused if one cannot be stopped, or if processes run here whose lock files were deleted.
    """
    require_person(crew, planner=False)
    stopped = _stop_supervisors(crew, now=now)
    ended = end_unsupervised_sessions(crew)
    is_server_stopped = api_server.stop(crew.paths)
    host_start.stop_if_last(crew.paths)
    tmux.close_all_panes(crew.paths.root)
    checkout_brief.remove_abandoned(crew)
    layout.refuse_survivors(crew.paths, deleted_parts.AGAIN)
    result = "changed" if stopped or ended or is_server_stopped else "unchanged"
    message = f"stopped {', '.join(stopped)}" if stopped else "no supervisor runs"
    message += f"; ended {', '.join(ended)}, which lived on without one" if ended else ""
    message += "; stopped the server of the worker API" if is_server_stopped and not stopped else ""
    details = {"stopped": stopped, "sessions_ended": ended, "server_stopped": is_server_stopped}
    return Result(result, None, None, _restart_command(crew.board, stopped), details, message)


def stop_agents(crew: Crew, agents: Sequence[str], *, now: bool = False) -> Result:
    """Stop the supervisors and sessions of single agents; the others go on.

    The lock of `down` stays free: it would tell the others that the whole crew is stopped. An agent whose supervisor
    leaves on request is not started again by the keeper. Raises UsageError, UnknownId, and what ``down`` raises.
    """
    require_person(crew, planner=False)
    state = crew.board.read()
    names = sort_agents({parse_agent_id(word) for word in agents})
    for agent in names:
        if agent not in state.agents and not crew.is_supervised(agent):
            raise UnknownId(f"no agent {agent}{did_you_mean(agent, state.agents)}", "liza agents")
        if host := crew.find_holder(agent):
            raise Refused(f"the supervisor of {agent} is on the host {host}: stop it there", "liza host list")
    stopped = [agent for agent in names if crew.is_supervised_here(agent)]
    for agent in stopped:
        _stop(crew.paths, agent, now=now)
    ended = [run for agent in names for run in run_directory.list_runs(crew.paths, agent) if _end_session(crew, run)]
    for agent in names:
        tmux.close_agent_panes(crew.paths.root, agent)
    api_server.stop_if_last(crew)
    host_start.stop_if_last(crew.paths)
    details = {"stopped": stopped, "sessions_ended": ended, "server_stopped": False}
    result = "changed" if stopped or ended else "unchanged"
    # The board before the stop has what they held: another agent may have taken it meanwhile.
    message = _describe_stopped(state, names, stopped, ended)
    return Result(result, None, None, start_command_for(crew.board.read(), names), details, message)


def _describe_stopped(state: State, names: Sequence[str], stopped: Sequence[str], ended: Sequence[str]) -> str:
    """Return which agents were stopped, which did not run, and the tasks that they held in ``state``."""
    idle = [name for name in names if name not in stopped]
    parts = [f"stopped {', '.join(stopped)}"] if stopped else []
    parts += [f"no supervisor of {', '.join(idle)} runs"] if idle else []
    parts += [f"ended {', '.join(ended)}, which lived on without one"] if ended else []
    held = [work.task for name in names if (work := find_current_work(state, name)) is not None and work.task]
    parts += [f"{', '.join(held)} {'is' if len(held) == 1 else 'are'} left to other agents"] if held else []
    return "; ".join(parts)


def _stop_supervisors(crew: Crew, *, now: bool) -> list[str]:
    """Stop every supervisor; return their agents. Meanwhile the lock tells `liza up` that they do not leave by
    themselves."""
    stopped = []
    lock = Lock(crew.paths.down_lock)
    with suppress(LockTimeout):
        # Another `down` may hold it.
        lock.acquire(timeout=LOCK_TIMEOUT)
    crash_points.point("down.locked")
    try:
        for path in sorted(crew.paths.locks.glob("supervisor-*.lock")):
            agent = path.name.removeprefix("supervisor-").removesuffix(".lock")
            if crew.is_supervised_here(agent):
                _stop(crew.paths, agent, now=now)
                stopped.append(agent)
    finally:
        lock.release()
    return stopped


def is_under_way(paths: Paths) -> bool:
    """Whether a `down` stops the supervisors now. Each `liza up` of the crew asks at the same changes of the board."""
    with files.convert_os_errors():
        return is_flock_held(paths.down_lock)


def _restart_command(board: Board, stopped: list[str]) -> str:
    """Command that starts the stopped agents again; plain `liza up` if the board cannot be read."""
    try:
        state = board.read()
        return restart_command_for(state, stopped) if stopped else up_command_for(state)
    except LizaError:
        return "liza up"


def _stop(paths: Paths, agent: str, *, now: bool) -> None:
    path = paths.supervisor_lock(agent)
    pid = locks.find_holder(path)
    if pid is None:
        # It ended since the look at its lock, or that lock was another process's that looked as well.
        if wait_for_release(path, LOCK_TIMEOUT):
            return
        pid = locks.find_holder(path)
    if pid is None:
        raise Refused(f"the supervisor of {agent} holds its lock, but its pid is unknown", f"fuser {path}")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        if now:
            # A different signal: two equal signals that are pending at once are delivered as one.
            os.kill(pid, signal.SIGINT)
    limit = FORCED_STOP_TIMEOUT if now else STOP_TIMEOUT
    if not wait_for_release(path, limit):
        raise LockTimeout(f"{path} was not free within {limit:g} s: {describe_holder(path)}", "liza status")


def end_unsupervised_sessions(crew: Crew) -> list[str]:
    """End sessions and project commands without a supervisor; return the runs. A stopped crew would not adopt them."""
    ended = []
    agents = sorted(path.name for path in crew.paths.runs.iterdir()) if crew.paths.runs.is_dir() else []
    for agent in agents:
        if not crew.is_supervised_here(agent):
            ended += [run for run in run_directory.list_runs(crew.paths, agent) if _end_session(crew, run)]
    _kill_orphan_tests(crew)
    return ended


def _kill_orphan_tests(crew: Crew) -> None:
    lock = Lock(crew.paths.merge_lock)
    if lock.try_acquire():
        try:
            commands.kill_orphan_commands(crew.paths.root)
        finally:
            lock.release()
            merge_lock.wake_for_next_merge(crew)


def _end_session(crew: Crew, run: str) -> bool:
    directory = crew.run_dir(run)
    match liveness.read_state(directory.path):
        case liveness.RunningSession() | liveness.ShimStarting():
            directory.write_stop(crew.clock.now(), StopReason.STOP)
            session_process.stop(directory.path, run, crew.paths.root, grace=2.0)
            return True
        case liveness.VanishedSession():
            # The session and its shim were both killed: the processes that it started may still run.
            processes.kill_run(run, crew.paths.root)
    return False


def purge(crew: Crew) -> PurgeResult:
    """Stop the crew and restore the repository to its state before init. A branch whose commits are on no other branch
    is kept.

    Raises Refused, GitFailed, Missing.
    """
    try:
        layout.refuse_damaged(crew.paths, crew.board.read())
    except BoardUnavailable as error:
        message = f"nothing was purged: only the board tells what of this clone is saved, and {error.message}"
        raise BoardUnavailable(message, error.hint) from error
    except (BoardInconsistent, NoCrew):
        pass  # A purge is one way out.
    lock = Lock(crew.paths.locks / "purge.lock")
    if not lock.try_acquire():
        raise Refused("another purge is under way", "liza status")
    try:
        return _purge(crew)
    finally:
        lock.release()


def _purge(crew: Crew) -> PurgeResult:
    if (conflict := recorder.read_conflict(crew)) is not None:
        # A purge deletes the history, and here also the only copy of the revisions that it lacks.
        raise conflict
    at_work = _living_runs(crew)
    stopped = down(crew)
    ended = (*stopped.details["stopped"], *dict.fromkeys((*at_work, *stopped.details["sessions_ended"])))
    specs, programs = saved_specs.save_specs(crew), saved_specs.save_programs(crew)
    surveyed = survey(crew.paths.root)
    created_branch = _read_created_branch(crew.paths.creation)
    crew.worktrees.remove_all()
    slots = crew.paths.slots
    remaining = tuple(str(path) for path in sorted(slots.iterdir())) if slots.is_dir() else ()
    checkout_brief.remove_all(crew)
    hiding.uninstall_filter(crew.git)
    hiding.unignore_liza_dirs(crew.git)
    deleted, kept = _delete_branches(crew, created_branch, surveyed.branch)
    branch = None if created_branch else _find_branch_left(crew, surveyed.branch)
    if branch is not None and _has_own_commits(crew.git, branch):
        kept.append(f"refs/heads/{branch}")
        branch = None
    for name in (
        "base",
        "candidates",
        "tested",
        "review",
        "landed",
        "pushed",
        "pushing",
        "laid-back",
        "fetched",
        "remote",
        "merge-term",
        "notes",
        "notes-draft",
        "notes-fetched",
    ):
        _delete_refs(crew.git, f"refs/liza/{name}")
    kept += [saved_specs.SPECS_REF] if specs.saved else []
    kept += [saved_specs.PROGRAMS_REF] if programs.saved else []
    for history in _list_refs(crew.git, HISTORY_REF):
        # The history explains the other refs: it is kept with any of them, and deleted with the last one.
        if kept:
            kept.append(history)
        else:
            crew.git.out("update-ref", "-d", history)
            deleted.append(history)
    # The statements at refs/notes/liza stay: they are as much the person's as the commits that landed.
    git_refs.remove_empty_directory(crew.git)
    remaining += tuple(f"{path} is a mount point" for path in files.remove_tree(crew.paths.liza))
    return PurgeResult(tuple(deleted), tuple(kept), (*specs.skipped, *programs.skipped), ended, remaining, branch)


def _living_runs(crew: Crew) -> list[str]:
    """Runs whose session lives."""
    agents = sorted(path.name for path in crew.paths.runs.iterdir()) if crew.paths.runs.is_dir() else []
    runs = [run for agent in agents for run in run_directory.list_runs(crew.paths, agent)]
    return [run for run in runs if isinstance(liveness.read_state(crew.run_dir(run).path), liveness.RunningSession)]


def _read_created_branch(path: Path) -> str | None:
    return json.loads(path.read_text())["branch"] if path.exists() else None


def _find_branch_left(crew: Crew, current: str | None) -> str | None:
    """Return the integration branch; None if it does not exist or is checked out in the repository."""
    name = Config().integration_branch
    with suppress(LizaError):
        name = crew.board.read().config.integration_branch
    return name if name != current and _list_refs(crew.git, f"refs/heads/{name}") else None


def _has_own_commits(git: Git, branch: str) -> bool:
    """Return whether no other branch or tag has the commits of ``branch``."""
    refs = _list_refs(git, "refs/heads/", "refs/remotes/", "refs/tags/")
    return _has_unique_content(git, f"refs/heads/{branch}", [ref for ref in refs if ref != f"refs/heads/{branch}"])


def _delete_branches(crew: Crew, created: str | None, current: str | None) -> tuple[list[str], list[str]]:
    """Delete Liza's refs whose commits are all on a ref that is kept; return the deleted and the kept refs.

    Order: integration, branches of epics and tasks, salvage refs. A commit that a task branch keeps needs no salvage
    ref.
    """
    git = crew.git
    deleted: list[str] = []
    candidates = [
        *_list_task_branches(crew),
        *_list_refs(git, branch_moves.LAST_INTEGRATION_REF),
        *_list_refs(git, branch_moves.last_tip_ref("")),
        *_list_refs(git, SALVAGE_PREFIX, EARLIER_PREFIX),
    ]
    epics = [
        ref.removeprefix(branch_moves.last_tip_ref(""))
        for ref in _list_refs(git, branch_moves.last_tip_ref(EPIC_PREFIX))
    ]
    candidates[:0] = [f"refs/heads/{branch}" for branch in epics if _list_refs(git, f"refs/heads/{branch}")]
    branches = _list_refs(git, "refs/heads/")
    if created is not None and created != current and f"refs/heads/{created}" in branches:
        candidates.insert(0, f"refs/heads/{created}")
    staying = [ref for ref in (*branches, *_list_refs(git, "refs/remotes/", "refs/tags/")) if ref not in candidates]
    kept: list[str] = []
    checkouts = {f"refs/heads/{branch}" for branch in branch_moves.list_checkouts(git).values() if branch}
    for ref in candidates:
        # A branch that is checked out in a worktree that stays is kept: its files belong to its commit.
        if ref in checkouts or _has_unique_content(git, ref, staying):
            kept.append(ref)
            staying.append(ref)
        else:
            git.out("update-ref", "-d", ref)
            deleted.append(ref)
    return deleted, kept


def _list_task_branches(crew: Crew) -> list[str]:
    """Branches of tasks, not those of a person below ``task/``; none if the board or the archive cannot be read."""
    branches = [ref.removeprefix("refs/heads/") for ref in _list_refs(crew.git, "refs/heads/task/")]
    try:
        persons = task_branches.find_persons_branches(crew, branches)
    except (LizaError, OSError):
        return []
    return [f"refs/heads/{branch}" for branch in branches if branch not in persons]


def _has_unique_content(git: Git, ref: str, staying: list[str]) -> bool:
    """Whether a ref has content that none of the ``staying`` refs has.

    A salvage ref always has a commit of its own, also if its tree equals that of its parent: that one has none.
    """
    unique = git.out("rev-list", "-n2", ref, "--not", *staying).split()
    if len(unique) != 1 or not ref.startswith((SALVAGE_PREFIX, EARLIER_PREFIX)):
        return bool(unique)
    _, *parents = git.out("rev-list", "--no-walk", "--parents", ref).split()
    trees = git.out("rev-parse", *(f"{commit}^{{tree}}" for commit in (ref, *parents))).split()
    return len(trees) != 2 or trees[0] != trees[1]


def _list_refs(git: Git, *prefixes: str) -> list[str]:
    return list(git.lines("for-each-ref", "--format=%(refname)", *prefixes))


def _delete_refs(git: Git, prefix: str) -> None:
    for ref in _list_refs(git, prefix):
        git.out("update-ref", "-d", ref)
