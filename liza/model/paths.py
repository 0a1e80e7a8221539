"""Paths of a crew's files, and the syntax of ids. Pure: nothing here reads the disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from liza.model.errors import UsageError
from liza.model.value_classes import Value
from liza.text.formats import to_ascii

ROLES = ("planner", "coder", "code-reviewer")
_AGENT = re.compile(r"(planner|coder|code-reviewer)-([0-9]{1,9})")
_TASK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TASK_SLOT = re.compile(r"(?:(?P<host>[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?)-)?s[0-9]+")
_RUN = re.compile(r"((?:planner|coder|code-reviewer)-[0-9]{1,9})\.([0-9]{1,9})")

PERSON_PREFIX = "human:"

HISTORY_REF = "refs/liza/blackboard"

HOST_LEASE = "host-lease"
"""Name of the file of the lease, beside the directories of runs."""

TASK_LINKS = "tasks"
"""Name of the directory of the links to the slots of tasks, beside the slots. No slot has this name."""

BOXES = ".boxes"
"""Name of the directory of what sessions and commands in boxes have for themselves, beside the slots."""


def state_directory(environ: Mapping[str, str], home: Path) -> Path:
    """Return the directory of Liza's state of this user: below XDG_STATE_HOME, or ``~/.local/state``."""
    # A relative path is invalid by the XDG specification, and is ignored.
    state = environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else home / ".local" / "state") / "liza"


def parse_agent_id(text: str) -> str:
    """Return ``text`` as an agent id; ``reviewer-1`` means ``code-reviewer-1``. Raises UsageError."""
    name = re.sub(r"^(code_)?reviewer-", "code-reviewer-", text)
    if not _AGENT.fullmatch(name):
        raise UsageError(
            f"{text!r} is not an agent id: a role (planner, coder, code-reviewer), a dash and a number",
            "liza agents",
        )
    return name


def sort_agents(agents: Iterable[str]) -> list[str]:
    """Return agent ids in a fixed order: planners, coders, reviewers, each by number; then all other names."""

    def sort_key(name: str) -> tuple[int, int, str]:
        role, _, number = name.rpartition("-")
        return ROLES.index(role) if role in ROLES else len(ROLES), int(number) if number.isdecimal() else 0, name

    return sorted(agents, key=sort_key)


def role_of(agent: str) -> str:
    """Return ``coder`` for ``coder-1``. Raises UsageError."""
    return parse_agent_id(agent).rpartition("-")[0]


def check_task_id(text: str) -> str:
    """Return ``text`` if it is a task id. Raises UsageError otherwise.

    An id becomes part of a path and of a ref, so only letters, digits, ``-`` and ``_`` are allowed.
    """
    if not _TASK.fullmatch(text):
        ascii_form = "-".join(to_ascii(text).split())
        proposed = f"; {ascii_form} is one" if _TASK.fullmatch(ascii_form) else ""
        raise UsageError(
            f"{text!r} is not a task id: letters, digits, '-' and '_', at most 64, first a letter or digit{proposed}",
            "liza task list",
        )
    return text


def person_id(name: str) -> str:
    """Return the name of a person in the history and in messages: ``human:ann``."""
    return f"{PERSON_PREFIX}{name}"


def is_person(actor: str) -> bool:
    """Return whether ``actor`` is a person, not an agent, a run or Liza."""
    return actor.startswith(PERSON_PREFIX)


def run_id(agent: str, number: int) -> str:
    """Return the run id, such as ``coder-1.7``."""
    return f"{agent}.{number}"


def split_run(run: str) -> tuple[str, str]:
    """Return agent and number of a text that may be a run, unchecked: a person can write anything on the board."""
    agent, _, number = run.rpartition(".")
    return agent, number


def agent_of(run: str) -> str:
    """Return ``coder-1`` for ``coder-1.7``. Raises UsageError."""
    match = _RUN.fullmatch(run)
    if not match:
        raise UsageError(f"{run!r} is not a run: an agent id, a dot and a number, such as coder-1.7", "liza agents")
    return match.group(1)


def session_committer(name: str, run: str) -> str:
    """Return the committer's name of a session of ``run``: the person's name and the run."""
    return f"{name} ({run})"


def run_number(run: str, agent: str) -> int | None:
    """Return 7 for ``coder-1.7`` of ``coder-1``; None if ``run`` is not a run of this agent."""
    match = _RUN.fullmatch(run)
    return int(match[2]) if match and match[1] == agent else None


def branch_of(task: str) -> str:
    """Return the name of a task's branch."""
    return f"task/{task}"


def task_slot(host: str, number: int) -> str:
    """Return the name of a slot for tasks: ``s3``, and ``h1-s3`` on a crew with hosts, of which each has its own."""
    return f"{host}-s{number}" if host else f"s{number}"


def host_of_slot(slot: str) -> str:
    """Return the host whose slot it is; empty for a slot of a crew without hosts, or that is not for tasks."""
    match = _TASK_SLOT.fullmatch(slot)
    return match["host"] or "" if match else ""


def is_task_slot(slot: str) -> bool:
    """Return whether a slot is for tasks, and not an agent's or the merger's."""
    return _TASK_SLOT.fullmatch(slot) is not None


class BoxPaths(Value):
    """Paths of what the boxes of one slot have for themselves.

    A box can write the content of each directory, but neither ``git_pointer`` nor ``directory`` itself.
    """

    directory: Path

    @property
    def git(self) -> Path:
        """The git directory of the run: objects that it added, and copies of refs, index, HEAD and configuration."""
        return self.directory / "git"

    @property
    def git_pointer(self) -> Path:
        """File that a box sees as the ``.git`` of the worktree: it names ``git``."""
        return self.directory / "dotgit"

    @property
    def tmp(self) -> Path:
        """What the box sees as /tmp and /var/tmp."""
        return self.directory / "tmp"

    @property
    def liza(self) -> Path:
        """What the box sees as ``.liza``: copies of the board and of the assignment."""
        return self.directory / "liza"

    @property
    def cache(self) -> Path:
        """Directory of the caches of package managers."""
        return self.directory / "cache"

    @property
    def state(self) -> Path:
        """Directory of the settings and conversations of agent programs."""
        return self.directory / "state"

    def program_state(self, program: str) -> Path:
        """As ``state``, of one program."""
        return self.state / program


class Paths(Value):
    """Paths of one crew. All but the slots are below ``root``, the top of the person's checkout.

    ``chosen_slots`` is the directory of the slots. None: beside the repository.
    """

    root: Path
    chosen_slots: Path | None = None

    @property
    def liza(self) -> Path:
        return self.root / ".liza"

    @property
    def state(self) -> Path:
        return self.liza / "state.yaml"

    @property
    def board_address(self) -> Path:
        """Address of the board, if it is on a server. Such a crew has no ``state``."""
        return self.liza / "board.toml"

    @property
    def board_copy(self) -> Path:
        """The last text that was read of a board on a server. Its time is that of the read."""
        return self.runs / "board-copy.yaml"

    @property
    def pages_record(self) -> Path:
        """Digests of the documents below ``specs`` as this clone read or saved them last on a server."""
        return self.runs / "pages.json"

    @property
    def signals_copy(self) -> Path:
        """The signals that were read last of a board on a server."""
        return self.runs / "signals-copy.json"

    @property
    def state_lock(self) -> Path:
        return self.liza / "state.yaml.lock"

    @property
    def journal(self) -> Path:
        return self.liza / "log.yaml"

    @property
    def tx(self) -> Path:
        return self.liza / "tx"

    @property
    def archive(self) -> Path:
        """Directory of the files with archived tasks."""
        return self.liza / "archive"

    @property
    def unwritable_tasks(self) -> Path:
        """The tasks that the last merger could not set aside on the board, with the reasons."""
        return self.tx / "unwritable"

    @property
    def archive_failed(self) -> Path:
        """Exists while closed tasks cannot be archived and the alert log says so."""
        return self.tx / "archive.failed"

    @property
    def creation(self) -> Path:
        """What `liza init` created: the integration branch and its first commit."""
        return self.liza / "made.json"

    @property
    def write_intent(self) -> Path:
        return self.tx / "seal"

    @property
    def request_sync(self) -> Path:
        """The failures in a row of reading the open pull request; absent after a success."""
        return self.tx / "request-sync"

    @property
    def request_tips(self) -> Path:
        """The commits that submitted pull requests were at when origin was read last."""
        return self.tx / "request-tips"

    @property
    def landed_branch(self) -> Path:
        """The branch of the person that integration was brought to last; absent before."""
        return self.tx / "landed-branch"

    @property
    def history_conflict(self) -> Path:
        """Why revisions are not recorded: the history has others of the same numbers; absent after a success."""
        return self.tx / "history-conflict"

    @property
    def notices(self) -> Path:
        """Directory with a record and a lock for each target of notices."""
        return self.liza / "notices"

    @property
    def next_board(self) -> Path:
        """The board that a writer renames to commit it."""
        return self.tx / "next"

    @property
    def recorded_mark(self) -> Path:
        """The number of the newest revision that the history has."""
        return self.tx / "recorded"

    @property
    def locks(self) -> Path:
        return self.liza / "locks"

    def supervisor_lock(self, agent: str) -> Path:
        return self.locks / f"supervisor-{agent}.lock"

    def task_lock(self, task: str) -> Path:
        return self.locks / f"task-{task}.lock"

    @property
    def merge_lock(self) -> Path:
        return self.liza / "merge.lock"

    @property
    def merge_turn(self) -> Path:
        return self.locks / "merge-turn.lock"

    @property
    def host_lock(self) -> Path:
        """Held by the process that renews the lease of this host, of a crew on several hosts."""
        return self.locks / "host.lock"

    @property
    def host_lease(self) -> Path:
        """What this host knows of its lease."""
        return self.runs / HOST_LEASE

    @property
    def keeper_lock(self) -> Path:
        """Held by the process that watches over the crew: a `liza up` in a terminal, or the keeper."""
        return self.locks / "keeper.lock"

    @property
    def keeper_mark(self) -> Path:
        """Exists from the start of the keeper to its orderly end; its time is that of the start."""
        return self.locks / "keeper.started"

    @property
    def push_lock(self) -> Path:
        """Held while the branches of tasks are pushed."""
        return self.locks / "push.lock"

    @property
    def evidence_failure(self) -> Path:
        """Why statements about landed commits could not be written last; absent after a success."""
        return self.runs / "evidence-failure.json"

    @property
    def evidence_lock(self) -> Path:
        """Lock of the process that writes statements about landed commits."""
        return self.locks / "evidence.lock"

    @property
    def push_failure(self) -> Path:
        """Why the branches of tasks could not be pushed; gone once they are."""
        return self.runs / "push-failure.json"

    @property
    def recorder_lock(self) -> Path:
        return self.locks / "recorder.lock"

    @property
    def pins_lock(self) -> Path:
        return self.locks / "pins.lock"

    @property
    def submit_lock(self) -> Path:
        """Lock of the process that submits work of a branch: it chooses an id and writes a document."""
        return self.locks / "submit.lock"

    @property
    def submit_merge_lock(self) -> Path:
        """Lock of the command that reviews and merges submitted work in a terminal."""
        return self.locks / "submit-merge.lock"

    @property
    def worktree_lock(self) -> Path:
        return self.locks / "worktree-add.lock"

    @property
    def runs(self) -> Path:
        return self.liza / "run"

    @property
    def usage(self) -> Path:
        return self.liza / "usage.jsonl"

    def shared_log(self, name: str) -> Path:
        """Copy of the lines that all hosts of a crew have added to a log. A crew with one host has none."""
        return self.liza / "hosts" / f"{name}.jsonl"

    @property
    def down_lock(self) -> Path:
        """Held while `down` stops the supervisors."""
        return self.locks / "down.lock"

    @property
    def server_lock(self) -> Path:
        """Held by the HTTP server of the crew."""
        return self.locks / "server.lock"

    @property
    def page_lock(self) -> Path:
        """Held in shared mode by each `liza web`."""
        return self.locks / "page.lock"

    @property
    def server_start_lock(self) -> Path:
        """Held by the supervisor that starts the HTTP server."""
        return self.locks / "server-start.lock"

    @property
    def server_failure(self) -> Path:
        """Why the server could not be started; gone once it listens."""
        return self.runs / "server-failure.json"

    @property
    def unconfined(self) -> Path:
        """Why agents do not run in boxes; gone once they do."""
        return self.runs / "unconfined.json"

    @property
    def api_socket(self) -> Path:
        return self.runs / "api.sock"

    @property
    def api_port(self) -> Path:
        """File with the port of the server on 127.0.0.1."""
        return self.runs / "api.port"

    def worker_port(self, run: str) -> Path:
        """As ``api_port``, for one living run."""
        return self.runs / f"worker-{run}.port"

    def run(self, run: str) -> Path:
        return self.runs / agent_of(run) / run

    def signal(self, name: str) -> Path:
        return self.liza / name

    @property
    def records(self) -> Path:
        """Work records of agents that were imported from other crews."""
        return self.liza / "records"

    @property
    def gates(self) -> Path:
        """Measurements of the gates, one line per run."""
        return self.liza / "gates.jsonl"

    @property
    def alerts(self) -> Path:
        return self.liza / "alerts.log"

    @property
    def pins(self) -> Path:
        return self.liza / "pins.json"

    @property
    def contracts(self) -> Path:
        return self.liza / "contracts"

    @property
    def specs(self) -> Path:
        return self.liza / "specs"

    @property
    def logs(self) -> Path:
        return self.liza / "logs"

    @property
    def slots(self) -> Path:
        return self.chosen_slots or self.root.parent / f"{self.root.name}.worktrees"

    @property
    def slots_record(self) -> Path:
        """File that records the directory of the slots."""
        return self.liza / "worktrees.json"

    def slot(self, name: str) -> Path:
        return self.slots / name

    def box(self, slot: str) -> BoxPaths:
        """Paths of what a box of a slot has for itself."""
        return BoxPaths(self.slots / BOXES / slot)

    @property
    def task_links(self) -> Path:
        return self.slots / TASK_LINKS

    def task_link(self, task: str) -> Path:
        return self.task_links / task
