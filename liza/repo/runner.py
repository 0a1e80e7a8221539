"""The only way to git: nothing of the repository's or the environment's choosing runs, and everything ends in time.

Hooks, fsmonitor, pager, editor, prompts and signing are off, ``GIT_*`` is cleared, and configuration that names a
program and was not there at init is made harmless (see ``pins``). Each git is a session of its own, so that a time
limit, or Ctrl+C here, ends it with all its children.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from liza.repo import git_start
from liza.rules.errors import GitFailed, Missing
from liza.system import crash_points, program_path

FALLBACK_IDENTITY = ("Liza", "liza@localhost")

_FIXED_CONFIG = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.editor", "true"),
    ("core.askPass", "true"),
    ("color.ui", "false"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("merge.verifySignatures", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("diff.ignoreSubmodules", "dirty"),
    ("diff.submodule", "short"),
    ("i18n.commitEncoding", "UTF-8"),
    ("i18n.logOutputEncoding", "UTF-8"),
    ("protocol.ext.allow", "never"),
    ("advice.graftFileDeprecated", "false"),
)

_FIXED_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "SSH_ASKPASS_REQUIRE": "force",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    # What a ref or a file says a commit is must not stand for the commit: verdicts name commits.
    "GIT_NO_REPLACE_OBJECTS": "1",
    # No file can be there: git is silent then, while one that it can open makes it advise on grafts in six lines.
    "GIT_GRAFT_FILE": f"{os.devnull}/no-grafts",
    # A clone without all objects fetches what it lacks, from wherever its configuration says by then.
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
}

_READ_WHOLE = ("config", "info/attributes", "info/exclude", "packed-refs", "shallow")
_REF = re.compile(r"refs/[^\0^~:]+")
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
"""The whole name of a commit: all that is taken for one from a record that anybody can write."""
_LOCK_ERROR = re.compile(r"Unable to create '(.+\.lock)': File exists")
_MAX_GITFILE = 4096 + 16
_WRITING = ("--output", "--index-output")
_DIFF_COMMANDS = {"diff", "diff-tree", "diff-index", "diff-files", "log", "show", "format-patch"}


class ConfigOverrides(Protocol):
    """What the runner asks of pins: configuration to lay over the repository's own."""

    def overrides(self, git: Git) -> Sequence[tuple[str, str]]: ...


@dataclass(frozen=True)
class GitResult:
    """A git that ended: its exit code and what it wrote."""

    code: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True)
class Git:
    """git in one directory. ``timeout`` is in seconds; ``pins`` says which programs the configuration may name."""

    directory: Path
    pins: ConfigOverrides | None = None
    timeout: float = 60
    git_dir: Path | None = None
    common_dir: Path | None = None
    ceiling: Path | None = None
    inherited_fds: tuple[int, ...] = ()
    extra_environment: Mapping[str, str] = field(default_factory=dict)

    def at(self, directory: Path) -> Git:
        """git in another directory, under the same pins."""
        if directory == self.directory:
            return self
        return replace(self, directory=directory, git_dir=None, common_dir=None, ceiling=None)

    def with_git_dir(self, directory: Path, git_dir: Path, common: Path | None = None) -> Git:
        """git on a work tree whose git directory is known, and the one that all work trees share: what lies at
        ``directory/.git``, at ``commondir`` or at ``core.worktree`` is not asked."""
        return replace(self, directory=directory, git_dir=git_dir, common_dir=common, ceiling=None)

    def at_root(self, directory: Path) -> Git:
        """git in ``directory``, which must be a repository by itself: none above it is looked for."""
        return replace(self, directory=directory, git_dir=None, common_dir=None, ceiling=directory.parent)

    def inheriting(self, *descriptors: int) -> Git:
        """git that inherits these file descriptors: a lock on them lasts as long as git does, whoever dies first."""
        return replace(self, inherited_fds=(*self.inherited_fds, *descriptors))

    def with_environment(self, **environment: str) -> Git:
        """git with more environment."""
        return replace(self, extra_environment={**self.extra_environment, **environment})

    def unpinned(self) -> Git:
        """git without pins, for reading the configuration that pins are made of."""
        return replace(self, pins=None)

    def with_timeout(self, seconds: float) -> Git:
        """git with another time limit."""
        return replace(self, timeout=seconds)

    def out(
        self,
        *args: str,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> str:
        """What git prints, without the final newline. Raises GitFailed, Missing."""
        text = self.raw(*args, stdin=stdin, env=env, timeout=timeout)
        return text.decode("utf-8", "surrogateescape").removesuffix("\n")

    def raw(
        self,
        *args: str,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """What git prints, byte by byte. Raises GitFailed, Missing."""
        return self.run(*args, stdin=stdin, env=env, timeout=timeout, codes=(0,)).stdout

    def ok(self, *args: str, stdin: str | bytes | None = None, env: Mapping[str, str] | None = None) -> bool:
        """git's answer to a yes-or-no question: exit 0 or 1; everything else raises GitFailed."""
        return self.run(*args, stdin=stdin, env=env, codes=(0, 1)).code == 0

    def lines(self, *args: str) -> tuple[str, ...]:
        """The lines that git prints. Only a newline ends one: a ref name may hold U+2028. Raises GitFailed."""
        text = self.out(*args)
        return tuple(text.split("\n")) if text else ()

    def names(self, *args: str, stdin: str | bytes | None = None) -> tuple[str, ...]:
        """What a git with ``-z`` prints, one string for each NUL. Raises GitFailed."""
        text = self.raw(*args, stdin=stdin).decode("utf-8", "surrogateescape")
        return tuple(text.split("\0")[:-1])

    def run(
        self,
        *args: str,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        codes: Sequence[int] | None = None,
    ) -> GitResult:
        """Run git. ``codes`` are the exit codes that are answers; None takes any. Raises GitFailed, Missing."""
        _refuse_writing(args)
        environment = {**self._environment(), **self.extra_environment, **(env or {})}
        done = self._spawn(
            _add_safe_switches(args), _encode(stdin), environment, self.timeout if timeout is None else timeout
        )
        crash_points.point("git", next(word for word in args if not word.startswith("-")))
        if codes is not None and done.code not in codes:
            raise GitFailed(
                f"git {args[0]} failed in {self.directory} ({done.code}): {summarize_error(done)}",
                lock_removal_command(done.stderr),
            )
        return done

    def identity(self) -> tuple[str, str]:
        """Name and address for Liza's own commits: the configured ones, else those of ``GIT_AUTHOR_*`` or
        ``GIT_COMMITTER_*`` in the environment, else Liza's own."""
        found = self.unpinned().run("config", "--get-regexp", "-z", r"^user\.(name|email)$", codes=(0, 1)).stdout
        rows = dict(row.split("\n", 1) for row in found.decode("utf-8", "replace").split("\0") if "\n" in row)
        name, email = rows.get("user.name", "").strip(), rows.get("user.email", "").strip()
        for who in ("AUTHOR", "COMMITTER"):
            name = name or os.environ.get(f"GIT_{who}_NAME", "").strip()
            email = email or os.environ.get(f"GIT_{who}_EMAIL", "").strip()
        return (name, email) if name and email else FALLBACK_IDENTITY

    def with_identity(self, person: tuple[str, str] | None = None, when: datetime | None = None) -> Git:
        """git whose commits bear ``person`` (name, address), else the repository's identity; ``when`` else now."""
        name, email = person or self.identity()
        words = {
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", name), ("EMAIL", email))
        }
        if when is not None:
            words |= {f"GIT_{who}_DATE": f"{int(when.timestamp())} +0000" for who in ("AUTHOR", "COMMITTER")}
        return self.with_environment(**words)

    def _environment(self) -> dict[str, str]:
        environment = dict(_FIXED_ENVIRONMENT)
        if self.git_dir is not None:
            environment |= {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.directory)}
        if self.common_dir is not None:
            environment["GIT_COMMON_DIR"] = str(self.common_dir)
        if self.ceiling is not None:
            environment["GIT_CEILING_DIRECTORIES"] = str(self.ceiling)
        pairs = [*(self.pins.overrides(self) if self.pins else ()), *_FIXED_CONFIG]
        environment["GIT_CONFIG_COUNT"] = str(len(pairs))
        for number, (key, value) in enumerate(pairs):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return environment

    def _refuse_endless_files(self, args: Sequence[str]) -> None:
        """Raises GitFailed where a file that git reads whole is none: of a device it would fill the memory, at a pipe
        it would wait. Or where the repository itself leads to another one: git asks that file for refs, whatever the
        environment says."""
        verb = args[0]
        if (
            self.common_dir is not None
            and self.common_dir == self.git_dir
            and os.path.lexists(self.common_dir / "commondir")
        ):
            place = self.common_dir / "commondir"
            raise GitFailed(f"git {verb} was not run: {place} leads into another repository", f"rm {place}")
        common = self.common_dir or _find_common_dir(self.directory)
        for place in () if common is None else (common / name for name in _READ_WHOLE):
            try:
                found = place.stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise GitFailed(f"git {verb} was not run: {error}", f"ls -l {place}") from error
            if not stat.S_ISREG(found.st_mode):
                raise GitFailed(f"git {verb} was not run: {place} is no plain file any more", f"ls -lL {place}")
        for place in _state_files(args, self.git_dir or _find_git_dir(self.directory), common):
            if _is_endless(place):
                hint = shlex.join(["rm", str(place)])
                raise GitFailed(f"git {verb} was not run: {place} is no file but something that never ends", hint)

    def _spawn(self, args: Sequence[str], stdin: bytes | None, env: Mapping[str, str], timeout: float) -> GitResult:
        self._refuse_endless_files(args)
        if not self.directory.is_dir():
            raise GitFailed(f"git {args[0]} was not run: {self.directory} is not a directory")
        if self.git_dir is not None and (self.git_dir.is_symlink() or not self.git_dir.is_dir()):
            raise GitFailed(
                f"git {args[0]} was not run: {self.git_dir} is no directory any more", f"ls -ld {self.git_dir}"
            )
        command = [program_path.find_program("git"), "--no-pager", "-C", str(self.directory), *args]
        stream = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        try:
            process = git_start.start(command, self.directory, env, stream, self.inherited_fds)
        except FileNotFoundError as error:
            raise Missing("git is not installed, or not in PATH", "liza doctor") from error
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            raise GitFailed(f"git {args[0]} in {self.directory} took longer than {timeout:g} s and was ended") from None
        except BaseException:
            _kill_group(process)
            raise
        return GitResult(process.returncode, out, err.decode("utf-8", "replace").strip())


def _find_common_dir(directory: Path) -> Path | None:
    """The git directory that the work trees of a repository share, without asking git; None where that is not told."""
    place = directory / ".git"
    own = _find_git_dir(directory)
    return own if own is None or own == place else own.parent.parent


def _find_git_dir(directory: Path) -> Path | None:
    """The git directory of a work tree, without asking git; None where that is not told."""
    place = directory / ".git"
    if place.is_dir():
        return place
    if not place.is_file() or place.stat().st_size > _MAX_GITFILE:
        return None
    named = place.read_text(errors="surrogateescape").removeprefix("gitdir: ").rstrip("\n")
    return directory / named


def _state_files(args: Sequence[str], own: Path | None, common: Path | None) -> set[Path]:
    """The files of the state of a work tree, and of the refs that these arguments spell out, there or not."""
    found = set() if own is None else {own / "HEAD", own / "index"}
    if common is not None:
        refs = (_REF.match(word) for word in args)
        found |= {common / "HEAD", *(common / ref.group() for ref in refs if ref)}
    return found


def _is_endless(place: Path) -> bool:
    """Whether a pipe, a device or a socket stands there. Of everything else that is wrong git tells by itself."""
    try:
        mode = place.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a git and everything it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _refuse_writing(args: Sequence[str]) -> None:
    """Raises GitFailed for an option that has git write a file: nobody here asks for that, so it stood in the place of
    a commit in a record that anybody can write."""
    for word in args:
        if word == "--":
            return
        option, _, path = word.partition("=")
        if option in _WRITING:
            raise GitFailed(f"git {args[0]} was not run: {option} stands for a commit, and would write into {path}")


def _add_safe_switches(args: Sequence[str]) -> list[str]:
    """``args`` with the switches that keep external diffs and text conversions from running, and with the one that has
    a ref written, or deleted, itself: a symbolic ref would lead to a branch of the person's."""
    if args and args[0] == "update-ref" and "--no-deref" not in args:
        return [args[0], "--no-deref", *args[1:]]
    if args and args[0] in _DIFF_COMMANDS:
        # A submodule's own configuration is nobody's pin, and git would run a status of its own in each.
        return [args[0], "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", *args[1:]]
    return list(args)


def _encode(text: str | bytes | None) -> bytes | None:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def lock_removal_command(said: str) -> str:
    """The command that removes a directory at which git stopped, for it took it for a lock; else nothing."""
    found = _LOCK_ERROR.search(said)
    return shlex.join(["rm", "-r", found[1]]) if found is not None and Path(found[1]).is_dir() else ""


def summarize_error(done: GitResult) -> str:
    """What git said at its end: the line that ended it first, then other failures, else its last lines."""
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("hint:")]
    fatal = [line for line in lines if line.startswith("fatal:")]
    errors = [line for line in lines if line.startswith("error:")]
    telling = list(dict.fromkeys([*fatal[-1:], *errors])) or lines[-3:]
    return " · ".join(telling[:3])[:600] or "it said nothing"
