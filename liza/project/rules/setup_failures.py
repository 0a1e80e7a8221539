"""Set-ups that fail for a reason which their output names. Pure."""

from __future__ import annotations

import re
import shlex

from liza.model.value_classes import Value

_REFUSED_FILE_URL = re.compile(r"(?m)^fatal: transport 'file' not allowed$")
# These tools trust a configuration file by its path: in each new worktree it is not trusted.
_TRUST_COMMANDS = (
    (re.compile(r"\bConfig files? .*\bnot trusted\b"), "mise trust"),
    (re.compile(r"\.envrc is blocked\b"), "direnv allow"),
)
_MISSING_COMMIT = re.compile(r"Fetched in submodule path '([^'\n]+)', but it did not contain ([0-9a-f]{40,64})")


class UnpushedSubmodule(Value):
    """A commit of a submodule that is not in the repository from which a set-up fetches it."""

    path: str
    commit: str

    @property
    def reason(self) -> str:
        return f"commit {self.commit[:10]} of submodule {self.path} was not pushed to the submodule's repository"

    def push_command(self, task: str) -> str:
        """Return the command that pushes the commit from the worktree of the task, to a branch named like it."""
        directory = f'"$(liza path {task})"/{shlex.quote(self.path)}'
        return f"git -C {directory} push origin {self.commit}:refs/heads/task/{task}"


def suggest_setup(setup: str, output: str) -> str | None:
    """Return the set-up without the cause that its output, or that of the tests, names; None if it names none."""
    for pattern, command in _TRUST_COMMANDS:
        if pattern.search(output) and command not in setup:
            return f"{command} && {setup}" if setup else command
    # Since 2.38.1 git fetches no submodule from a path of this machine, unless the person allows it.
    if not _REFUSED_FILE_URL.search(output):
        return None
    allowed = "git -c protocol.file.allow=always submodule"
    own = setup.replace("git submodule", allowed)
    return own if own != setup else f"{allowed} update --init --recursive && {setup}"


def find_unpushed_submodule(output: str) -> UnpushedSubmodule | None:
    """Return the submodule commit that git could not fetch, by git's own message; None without one."""
    match = _MISSING_COMMIT.search(output)
    return UnpushedSubmodule(match[1], match[2]) if match else None
