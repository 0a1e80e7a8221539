"""Causes of a failed command that its output names, and what to do about them. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final

from liza.model.value_classes import Value, field

_PATH: Final = re.compile(r"(?:(?<![\w.:/])|(?<=unix://))/(?:[\w.@%+,~=-]+/)*[\w.@%+,~=-]*[\w@%+~=-]")
_READ_ONLY: Final = re.compile(r"read-only file system|EROFS", re.IGNORECASE)
_ABSENT: Final = re.compile(r"does not exist|No such file|not found|ENOENT", re.IGNORECASE)
_HIDDEN: Final = ("/tmp", "/var/tmp", "/run")
"""Directories that a box has for itself."""
_NO_KEYS: Final = re.compile(r"Permission denied \(publickey|Host key verification failed|could not read Username")
KEYS_TEXT: Final = "keys or a password of yours, which a box hides"
_SYSTEM: Final = ("/bin", "/dev", "/etc", "/lib", "/opt", "/proc", "/sbin", "/sys", "/usr")
"""Nothing below these is proposed to be shared: it is not the person's."""


class PathKind(StrEnum):
    """What is at a path outside of the box."""

    SOCKET = "socket"
    DIRECTORY = "directory"
    OTHER = "other"
    ABSENT = "absent"


Examine = Callable[[str], tuple[PathKind, str]]
"""Returns what is at a path outside of the box, and its real path."""


class BoxNeeds(Value):
    """What a command needs beside its box. ``paths``: what a person can share, each with a phrase that says why.
    ``keys``: whether a host wants keys or a password of the person.
    """

    paths: Mapping[str, str] = field(default_factory=dict)
    keys: bool = False

    @property
    def text(self) -> str:
        """The needs in a few words; empty without one."""
        return ", and ".join([*self.paths.values(), *([KEYS_TEXT] if self.keys else [])])


def find_needs(output: str, examine: Examine, home: str, own: Iterable[str]) -> BoxNeeds:
    """Return what the output of a command that failed in a box says that it needs. ``own``: directories of Liza."""
    shown = (home, *own)
    paths: dict[str, str] = {}
    for line in output.splitlines():
        for path in _PATH.findall(line):
            kind, real = examine(path)
            if kind is PathKind.SOCKET:
                paths[real] = f"the socket {real}"
            elif _READ_ONLY.search(line):
                directory = _find_written(Path(path), examine, home, (*_SYSTEM, *own))
                paths |= {directory: f"{directory}, which it writes"} if directory else {}
            elif _ABSENT.search(line) and kind is not PathKind.ABSENT and _is_hidden(real, shown):
                paths[real] = f"{real}, which is not in a box"
    return BoxNeeds(paths, _NO_KEYS.search(output) is not None)


def _is_hidden(real: str, shown: tuple[str, ...]) -> bool:
    """Return whether a path is below a directory that a box has for itself."""
    is_shown = any(Path(real).is_relative_to(directory) for directory in shown)
    return real not in _HIDDEN and not is_shown and any(Path(real).is_relative_to(name) for name in _HIDDEN)


def _find_written(path: Path, examine: Examine, home: str, kept: tuple[str, ...]) -> str:
    """Return the directory that a command writes in which ``path`` is; empty for one that a person would not share."""
    if any(path.is_relative_to(directory) for directory in kept):
        return ""
    below = ""
    for directory in (path, *path.parents):
        kind, real = examine(str(directory))
        if kind is PathKind.DIRECTORY:
            if real == home and below and not Path(below).suffix:
                return f"{home}/{below}"
            return "" if real in ("/", "/home", home) else real
        below = directory.name
    return ""


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


def missing_runner(command: str, code: int | None, tail: str) -> str | None:
    """Return the missing program or module if a command failed for that reason; else None.

    Failed tests have another exit status, or miss a module that the command does not name.
    """
    for module in re.findall(r"No module named '?([\w.]+)'?", tail):
        if re.search(rf"-m\s+{re.escape(module)}\b", command):
            return f"the module {module}"
    for pattern in (
        r"(?:sh|bash)(?::| -c:)(?: line)? \d+: ([^\s:]+): (?:not found|command not found)",
        r"^([^\s:]+): (?:command )?not found",
        r"make(?:\[\d+\])?: ([^\s:]+): No such file or directory",
        r"(?:sh|bash): (?:line )?\d+: ([^\s:]+): No such file or directory",
        r"[Ff]ailed to spawn: [`'\"]?([^\s`'\"]+)",
        r"[Cc]ommand not found: ([^\s]+)",
    ):
        match = re.search(pattern, tail, re.MULTILINE)
        by_tool = match is not None and re.search(r"spawn|make|ommand not found: ", match[0])
        if match and (code in (126, 127) or by_tool or "Error 127" in tail):
            return match[1]
    return "its program" if code in (126, 127) else None


def list_missing_programs(output: str) -> list[str]:
    """Return the names of programs that cannot be run, as shells and tools report them."""
    reason = r"not found|cannot execute|bad interpreter|No such file|required file not found"
    return re.findall(rf"([^\s:'\"]+)['\"]?: (?:{reason})", output)


def list_words(command: str) -> list[str]:
    """Return the words of a shell command that may be names of files, without variables set before it."""
    return re.findall(r"[^\s'\"`;&|(){}<>]+", re.sub(r"^(?:\w+=\S*\s+)+", "", command))


def suggests_crlf(output: str) -> bool:
    """Return whether a shell complains as it does about lines that end with a carriage return."""
    return re.search(r"\r(?!\n)|\\r'|\^M|[Ss]yntax error: (?:unexpected )?end of file", output) is not None


def describe_crlf(script: str) -> str:
    """Return why a script with CRLF line ends does not run."""
    return f"{script} has CRLF line ends, with which no shell can run it"


def crlf_remedy(script: str) -> str:
    """Return the command that commits a script with LF line ends, and has git check it out with them everywhere."""
    path = PurePosixPath(script)  # without a leading "./"
    pattern, name = shlex.quote(f"/{path} text eol=lf"), shlex.quote(str(path))
    add = f"git add .gitattributes && git add --renormalize {name}"
    return f"echo {pattern} >> .gitattributes && {add} && git commit -m 'Use LF in scripts'"


def missing_module(tail: str) -> str | None:
    """Return a module that the tests import and that is not installed, if their output names one; else None."""
    pattern = r"(?:ModuleNotFoundError: No module named|Cannot find module|Cannot find package) '([^'./][^']*)'"
    match = re.search(pattern, tail)
    return match[1] if match else None


_MISSING_PLUGIN = (
    re.compile(r"\bfixture '(?P<name>\w+)' not found"),
    re.compile(r"recursive dependency involving fixture '(?P<name>\w+)'"),
    re.compile(r"error: unrecognized arguments: (?P<option>--[\w-]+)"),
)


def missing_plugin(output: str) -> str | None:
    """Return what a plugin of pytest that is not installed would give the tests; None if no plugin is missing."""
    for pattern in _MISSING_PLUGIN:
        match = pattern.search(output)
        if match is not None:
            fields = match.groupdict()
            return f"the option {fields['option']}" if "option" in fields else f"the fixture {fields['name']}"
    return None


def install_setup(setup: str, command: str, module: str) -> str | None:
    """Return the set-up that installs a module, too; None if no installer is known for it.

    A module of Python has the name of its package, or not: the person sees both names.
    """
    name = shlex.quote(module.partition(".")[0] if _PIP_INSTALL.search(setup) else _npm_package(module))
    if _PIP_INSTALL.search(setup):
        pip = _PIP_INSTALL.findall(setup)[-1]
        return f"{setup} {name}" if setup.rstrip().split("&&")[-1].lstrip().startswith(pip) else None
    if re.match(r"(?:npm|npx|node|pnpm|yarn)\b", command):
        return f"{setup} && npm install --no-save {name}" if setup else f"npm install --no-save {name}"
    return None


_PIP_INSTALL = re.compile(r"(?:\S*/)?pip3? install\b")


def _npm_package(module: str) -> str:
    """Return the package of a module: two parts with a scope, else one."""
    parts = module.split("/")
    return "/".join(parts[:2] if module.startswith("@") else parts[:1])
