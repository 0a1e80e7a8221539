"""Options of `up`, and the start of one supervisor process."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from liza.model.errors import UsageError
from liza.model.paths import ROLES, Paths, parse_agent_id, role_of, sort_agents
from liza.model.value_classes import Value, field
from liza.system.installation import liza_path
from liza.tasks.rules import up_command

_NAME = re.compile(r"[\w-]*")


class UpOptions(Value):
    """Size of the crew, or the ``names`` of single agents to start, and their programs.

    ``programs``: by agent or role; ``program``: for all others; None: as the preset tables say. ``terminal``: each
    session has a terminal that a person can attach to. ``exit_when_done``: stop once the goal is no longer in progress.
    ``task``: with ``exit_when_done``, stop also once this task is closed and all others wait for a person. ``only``:
    with it, review and merge only this task and those that it depends on; ``again`` is the command that did so.
    ``verbose``: print also how the work goes on.
    """

    planners: int = 1
    coders: int = 1
    reviewers: int = 1
    names: tuple[str, ...] = ()
    program: str | None = None
    programs: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False
    terminal: bool = False
    exit_when_done: bool = False
    task: str | None = None
    only: str | None = None
    again: str = ""
    verbose: bool = False

    def agents(self) -> tuple[str, ...]:
        """Ids of the agents to start, planners first."""
        if self.names:
            return self.names
        counts = (("planner", self.planners), ("coder", self.coders), ("code-reviewer", self.reviewers))
        return tuple(f"{role}-{number}" for role, count in counts for number in range(1, count + 1))

    def restart_command(self) -> str:
        """Command that starts the same agents with the same programs."""
        if self.again:
            return self.again
        counts = {"planner": self.planners, "coder": self.coders, "code-reviewer": self.reviewers}
        for_all = {"": self.program} if self.program else {}
        programs = {**for_all, **self.programs}
        return up_command.format_up_command(counts, programs, terminal=self.terminal, names=self.names)

    def start_command(self, agent: str) -> str:
        """Command that starts one of these agents again. What `--program` named is remembered on the board."""
        return up_command.format_up_command({}, {}, terminal=self.terminal, names=(agent,))

    def program_of(self, agent: str) -> str | None:
        """Program that the options name for the agent; None if they name none."""
        return self.programs.get(agent) or self.programs.get(role_of(agent)) or self.program


def parse_names(words: Sequence[str]) -> tuple[str, ...]:
    """Return the agents that the words name, each once, planners first. Raises UsageError."""
    for word in words:
        if word.isdecimal():
            raise UsageError(
                f"{word!r} is no agent, such as coder-2; --coders sets a number", f"liza up --coders {word}"
            )
    return tuple(sort_agents({parse_agent_id(word) for word in words}))


def parse_programs(words: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """Return the program for all, and those for a role or an agent: ``NAME``, ``coder=NAME``, ``coder-2=NAME``.

    Raises UsageError if one is given twice, or for an unknown role or agent.
    """
    for_all: list[str] = []
    by_name: dict[str, str] = {}
    for word in words:
        who, _, spec = word.partition("=")
        if not spec and (not who or word.endswith("=")):
            raise UsageError(f"--program {shlex.quote(word)} names no program", "liza programs list")
        name = _parse_who(who) if spec else None
        if name is None:
            for_all.append(word)
        elif name in by_name:
            raise UsageError(f"--program names two programs for {name}", "liza up --help")
        else:
            by_name[name] = spec
    if len(for_all) > 1:
        raise UsageError(
            f"--program names more than one program for all agents: {' and '.join(for_all)}",
            f"liza up --program coder={for_all[1]}",
        )
    return (for_all[0] if for_all else None), by_name


def _parse_who(who: str) -> str | None:
    """Return the role or agent id in ``who``; None if it belongs to a command, as in ``script:A=1 ./agent.sh``.

    Raises UsageError for a word that is neither.
    """
    role = "code-reviewer" if who in ("reviewer", "code_reviewer") else who
    if role in ROLES:
        return role
    try:
        return parse_agent_id(who)
    except UsageError as error:
        if _NAME.fullmatch(who):
            raise UsageError(
                f"{who!r} is not a role or an agent: planner, coder, reviewer, coder-2", "liza agents"
            ) from error
        return None


def start_supervisor(paths: Paths, agent: str, options: UpOptions) -> subprocess.Popen[str]:
    argv = [
        str(liza_path().with_name("liza-agent")),
        agent,
        *(["--program", program] if (program := options.program_of(agent)) else []),
        *(["--tmux"] if options.terminal else []),
        *(["--only", options.only] if options.only else []),
        "--keep-server",
    ]
    paths.logs.mkdir(parents=True, exist_ok=True)
    if options.detached:
        with supervisor_log(paths, agent).open("ab") as log:
            return subprocess.Popen(
                argv,
                cwd=paths.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                text=True,
            )
    # In its own process group: Ctrl+C reaches only this process, which then signals each supervisor once.
    return subprocess.Popen(
        [*argv, "--relayed", *([] if options.verbose else ["--quiet"])],
        cwd=paths.root,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
        text=True,
        errors="replace",
    )


def supervisor_log(paths: Paths, agent: str) -> Path:
    return paths.logs / f"{agent}.log"
