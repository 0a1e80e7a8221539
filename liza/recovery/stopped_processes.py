"""Find processes of the crew that a signal stopped (SIGSTOP, Ctrl+Z): they look alive, and do nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from liza.model.agent_states import StoppedProcesses
from liza.model.paths import Paths
from liza.system import locks, proc_stat
from liza.system.locks import last_holder_pid


def find_stopped(paths: Paths, agents: Iterable[str]) -> StoppedProcesses:
    """Return the stopped supervisors, and the stopped processes that started supervisors or keep the crew.

    Nothing without /proc. Raises OSError.
    """
    supervisors, keepers = {}, set[int]()
    for agent in agents:
        path = paths.supervisor_lock(agent)
        pid = last_holder_pid(path)
        fields = None if pid is None else proc_stat.read_stat(pid)
        if pid is None or fields is None:
            continue
        parent = int(fields[proc_stat.PARENT])
        if _is_stopped(pid) and _is_holder(path, pid):
            supervisors[agent] = pid
        if _is_stopped(parent) and _is_holder(path, pid):
            keepers.add(parent)
    pid = last_holder_pid(paths.keeper_lock)
    if pid is not None and _is_stopped(pid) and _is_holder(paths.keeper_lock, pid):
        keepers.add(pid)
    return StoppedProcesses(supervisors, tuple(sorted(keepers)))


def _is_stopped(pid: int) -> bool:
    fields = proc_stat.read_stat(pid)
    return fields is not None and fields[proc_stat.STATE] == b"T"


def _is_holder(path: Path, pid: int) -> bool:
    """Whether the process holds the lock: agents can write in the file, and its pid may be used again."""
    return locks.find_holder(path) == pid
