"""Look for servers on this machine that run sources of another checkout than the tested one, with /proc.

Only what this user can see there is evidence: neither a process of another user nor a server in another network
namespace is. Without /proc nothing is found.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from liza.crew.crew import Crew
from liza.git import git_config
from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.model.errors import FailsInBox
from liza.model.gates import GateFinding
from liza.model.paths import Paths
from liza.project import commands
from liza.project.rules import foreign_servers, output_causes
from liza.project.rules.foreign_servers import CheckoutTrees, ListeningProcess
from liza.project.rules.output_causes import BoxNeeds, PathKind
from liza.project.rules.project_kinds import INIT
from liza.system import ancestors, locks, peers, processes


def find_servers(crew: Crew, git: Git, tested: Sequence[str], commands: Sequence[str]) -> GateFinding | None:
    """Return the finding about servers of other checkouts that tests may take for their own; None if there are none.

    ``git``: of a worktree at the tested commit. ``tested``: names of the slots that have that commit. ``commands``:
    the project's commands that are run there. Raises GitFailed, OSError.
    """
    trees = _find_trees(crew, tested)
    servers = foreign_servers.find_foreign_servers(
        _iter_listening(crew.paths, trees),
        trees,
        peers.read_port_range(),
        lambda address: foreign_servers.is_word_in(address, commands) or _is_in_files(git, address),
    )
    own = (locks.find_holder(crew.paths.server_lock), *locks.find_holders(crew.paths.page_lock)) if servers else ()
    return foreign_servers.judge_servers([server for server in servers if server.process.pid not in own])


def _find_trees(crew: Crew, tested: Sequence[str]) -> CheckoutTrees:
    slots, root = os.path.realpath(crew.paths.slots), os.path.realpath(crew.paths.root)
    linked = git_config.list_worktrees(git_dirs(crew.git)[1], skip_unreadable=True).values()
    others = (str(gitfile.parent) for gitfile in linked if gitfile.parent.parent != Path(slots))
    return CheckoutTrees(root, slots, tuple(others), tuple(tested))


def _iter_listening(paths: Paths, trees: CheckoutTrees) -> Iterator[ListeningProcess]:
    """Yield the processes that listen, without those whose program cannot be that of a foreign server."""
    listening = peers.list_listening()
    for pid in peers.list_pids() if listening else ():
        program = locks.read_program(pid)
        if program is None or pid == os.getpid() or not foreign_servers.may_run_sources(program, trees):
            continue
        addresses = dict.fromkeys(listening[inode] for inode in peers.iter_sockets(pid) if inode in listening)
        directory = locks.read_directory(pid) if addresses else None
        if directory is None:
            continue
        words = locks.read_command(pid)
        yield ListeningProcess(
            pid,
            processes.parent_pid(pid),
            program,
            str(directory),
            words,
            tuple(_iter_files(words, directory)),
            tuple(addresses),
            _is_of_tests(paths.root, pid),
        )


def _iter_files(words: Sequence[str], directory: Path) -> Iterator[str]:
    """Yield the absolute paths of the existing files that a command line names, without its program."""
    for word in words[1:]:
        path = os.path.realpath(directory / word)
        if not word.startswith("-") and os.path.isfile(path):  # noqa: PTH113 - arguments may have any bytes
            yield path


def _is_of_tests(root: Path, pid: int) -> bool:
    environment = next(ancestors.process_environments(pid), {})
    is_command = environment.get("LIZA_RUN") == ancestors.PROJECT_COMMAND_RUN
    return is_command and environment.get("LIZA_ROOT") == str(root)


def _is_in_files(git: Git, address: str) -> bool:
    return git.ok("grep", "-q", "-I", "-F", "-w", "-e", address)


SHARE = "--share"
"""Option of `liza init` for a path of ``config.shared``."""
_WITHOUT = f"{INIT} --confinement off"


def describe_failure(what: str, outcome: commands.CommandOutcome, paths: Paths, shared: Sequence[str]) -> FailsInBox:
    """Return the error for a command that fails in a box and passes without one. ``shared``: what is shared already."""
    needs = find_needs(outcome.tail(commands.SEARCHED_LINES), paths)
    text = f"{what} only in a box: {outcome.command}\n{outcome.tail()}"
    if not needs.paths:
        text += f"\nIt needs {needs.text}" if needs.text else "\nIt passes without a box"
        return FailsInBox(text, _WITHOUT)
    absent = [path for path in needs.paths if not Path(path).exists()]
    create = f"{shlex.join(['mkdir', '-p', *absent])} && " if absent else ""
    options = " ".join(shlex.join([SHARE, path]) for path in dict.fromkeys((*shared, *needs.paths)))
    return FailsInBox(f"{text}\nIt needs {needs.text}", f"{create}{INIT} {options}, or: {_WITHOUT}")


def share_command(needs: BoxNeeds, shared: Sequence[str]) -> str:
    """Return the command that shares what commands of a crew need, besides what is shared; empty if that is nothing."""
    paths = dict.fromkeys((*shared, *needs.paths))
    return shlex.join(["liza", "config", "set", "shared", ",".join(paths)]) if needs.paths else ""


def find_needs(output: str, paths: Paths) -> BoxNeeds:
    """Return what an output of a command that failed in a box says that it needs."""
    home = os.path.realpath(Path.home())
    return output_causes.find_needs(output, _examine, home, (str(paths.slots), str(paths.liza)))


def _examine(path: str) -> tuple[PathKind, str]:
    real = os.path.realpath(path)
    try:
        mode = Path(real).stat().st_mode
    except OSError:
        return PathKind.ABSENT, real
    kinds = {stat.S_IFSOCK: PathKind.SOCKET, stat.S_IFDIR: PathKind.DIRECTORY}
    return kinds.get(stat.S_IFMT(mode), PathKind.OTHER), real
