"""Which crew `up` starts, and the start of one of its supervisors."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from liza.crew.crew import Crew
from liza.crew.liza_path import liza_path
from liza.rules.errors import UsageError
from liza.rules.paths import ROLES, parse_agent_id, role_of
from liza.rules.reports import up_command

_NAME = re.compile(r"[\w-]*")


@dataclass(frozen=True)
class UpOptions:
    """How large a crew, and which program it runs: ``program`` for all, ``programs`` for an agent or a role before that
    (None: as the tables say). ``terminal``: each session has one that a person can attach to. ``exit_when_done``: stop
    once the goal is no longer in progress."""

    planners: int = 1
    coders: int = 1
    reviewers: int = 1
    program: str | None = None
    programs: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False
    terminal: bool = False
    exit_when_done: bool = False

    def agents(self) -> tuple[str, ...]:
        """The ids of the crew's agents, planners first."""
        counts = (("planner", self.planners), ("coder", self.coders), ("code-reviewer", self.reviewers))
        return tuple(f"{role}-{number}" for role, count in counts for number in range(1, count + 1))

    def restart_command(self) -> str:
        """The command that starts the same crew with the same programs."""
        counts = {"planner": self.planners, "coder": self.coders, "code-reviewer": self.reviewers}
        of_all = {"": self.program} if self.program else {}
        return up_command.format_up_command(counts, {**of_all, **self.programs}, terminal=self.terminal)

    def program_of(self, agent: str) -> str | None:
        """The program that was asked for it."""
        return self.programs.get(agent) or self.programs.get(role_of(agent)) or self.program


def parse_programs(words: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The program for all, and those for a role or an agent: ``NAME``, ``coder=NAME``, ``coder-2=NAME``.

    Raises Usage where one is said twice, or of nobody.
    """
    of_all: list[str] = []
    named: dict[str, str] = {}
    for word in words:
        who, _, spec = word.partition("=")
        name = _parse_who(who) if spec else None
        if name is None:
            of_all.append(word)
        elif name in named:
            raise UsageError(f"{name} is given two programs", "liza up --help")
        else:
            named[name] = spec
    if len(of_all) > 1:
        raise UsageError(f"{' and '.join(of_all)}: one program is for all", f"liza up --program coder={of_all[1]}")
    return (of_all[0] if of_all else None), named


def _parse_who(who: str) -> str | None:
    """The role or the agent id in ``who``; None where a command is meant, as in ``script:A=1 ./agent.sh``.

    Raises Usage for a word that is neither.
    """
    role = "code-reviewer" if who in ("reviewer", "code_reviewer") else who
    if role in ROLES:
        return role
    try:
        return parse_agent_id(who)
    except UsageError as error:
        if _NAME.fullmatch(who):
            raise UsageError(
                f"{who!r} is no role or agent: planner, coder, reviewer, coder-2", "liza agents"
            ) from error
        return None


def start_supervisor(crew: Crew, agent: str, options: UpOptions) -> subprocess.Popen[str]:
    words = [
        str(liza_path().with_name("liza-agent")),
        agent,
        *(["--program", program] if (program := options.program_of(agent)) else []),
        *(["--tmux"] if options.terminal else []),
    ]
    crew.paths.logs.mkdir(parents=True, exist_ok=True)
    if options.detached:
        with supervisor_log(crew, agent).open("ab") as log:
            return subprocess.Popen(
                words,
                cwd=crew.paths.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                text=True,
            )
    # In a group of its own: Ctrl+C reaches this process alone, which then asks each supervisor once.
    return subprocess.Popen(
        [*words, "--until-eof"],
        cwd=crew.paths.root,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
        text=True,
        errors="replace",
    )


def supervisor_log(crew: Crew, agent: str) -> Path:
    return crew.paths.logs / f"{agent}.log"
