"""Run git. All of Liza's git commands go through this module.

Every command has a timeout. Hooks, fsmonitor, pager, editor, prompts, external diffs and signing are off; filters and
merge drivers run. ``GIT_*`` is removed from the environment. Each git is a session of its own, so that a timeout or
Ctrl+C kills it with all its children.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Protocol

from liza.git import git_start
from liza.model.errors import GitFailed, GitTimeout, Missing
from liza.model.value_classes import Value, field, replace
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
    ("push.gpgSign", "false"),
    ("credential.interactive", "false"),
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
    # A replace ref would show another commit than the one that a verdict names.
    "GIT_NO_REPLACE_OBJECTS": "1",
    # A path that cannot exist. If git can open the file, it prints six lines of advice on grafts.
    "GIT_GRAFT_FILE": f"{os.devnull}/no-grafts",
    # A partial clone fetches missing objects from the URL in its configuration: no `ext::` command there.
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
}

COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
"""A full commit id. Records that agents can write must contain nothing else where a commit is expected."""
_FILTER_ERROR = re.compile(r"(?m)^fatal: .*: (?:smudge|clean) filter '?(.+?)'? failed$")
_MISSING_FILTER = re.compile(r"(?m)^\S.*\bfilter\S*: .*\bnot found$")
_OWNER_REMEDY = re.compile(r"(?m)^\s+(git config --global --add safe\.directory .+)$")
_MISSED_WORKTREE: Final = re.compile(r"(?m)^fatal: failed to read .*/commondir: ")
"""Error of a git that lists the worktrees while another git adds one: the file is there and has no text yet."""
_ADD_LIMIT: Final = 5.0
"""Seconds for which git is run again after that error; the text comes at once, unless the other git was killed."""
_ADD_PAUSE: Final = 0.02
_WRITING = ("--output", "--index-output")
_DIFF_COMMANDS = {"diff", "diff-tree", "diff-index", "diff-files", "log", "show", "format-patch"}


class GitBox(Protocol):
    """Interface of what runs git in a box: programs that the files of a directory name can change nothing outside."""

    def wrap(self, git: Git, args: Sequence[str], argv: Sequence[str]) -> list[str]:
        """Return the command line for ``argv``, which runs git with the arguments ``args``."""
        ...


class GitResult(Value):
    """Result of a git command: exit status and output."""

    code: int
    stdout: bytes
    stderr: str


class Git(Value):
    """git in one directory. ``timeout`` is in seconds."""

    directory: Path
    timeout: float = 60
    git_dir: Path | None = None
    common_dir: Path | None = None
    ceiling: Path | None = None
    inherited_fds: tuple[int, ...] = ()
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    extra_config: tuple[tuple[str, str], ...] = ()
    box: GitBox | None = None

    def at(self, directory: Path) -> Git:
        """Return git in another directory."""
        if directory == self.directory:
            return self
        return replace(self, directory=directory, git_dir=None, common_dir=None, ceiling=None)

    def with_git_dir(self, directory: Path, git_dir: Path, common: Path | None = None) -> Git:
        """Return git on a worktree with a known git directory and a known common git directory.

        git does not read ``directory/.git``, ``commondir`` and ``core.worktree`` then. Additional configuration of this
        worktree is dropped.
        """
        return replace(self, directory=directory, git_dir=git_dir, common_dir=common, ceiling=None, extra_config=())

    def inheriting(self, *descriptors: int) -> Git:
        """Return git that inherits these file descriptors. A lock on one is held until git ends, even if this process
        dies first.
        """
        return replace(self, inherited_fds=(*self.inherited_fds, *descriptors))

    def with_environment(self, **environment: str) -> Git:
        """Return git with additional environment variables."""
        return replace(self, extra_environment={**self.extra_environment, **environment})

    def with_config(self, *pairs: tuple[str, str]) -> Git:
        """Return git with additional configuration, as pairs of key and value. A single value overrides every file; in
        a list it comes last.
        """
        return replace(self, extra_config=(*self.extra_config, *pairs))

    def with_box(self, box: GitBox | None) -> Git:
        """Return git that runs in a box, or in none."""
        return replace(self, box=box)

    def with_timeout(self, seconds: float) -> Git:
        """Return git with another timeout, in seconds."""
        return replace(self, timeout=seconds)

    def out(
        self,
        *args: str,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> str:
        """Return git's output without the final newline. Raises GitFailed, Missing."""
        text = self.raw(*args, stdin=stdin, env=env, timeout=timeout)
        return text.decode("utf-8", "surrogateescape").removesuffix("\n")

    def raw(
        self,
        *args: str,
        stdin: str | bytes | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """Return git's output as bytes. Raises GitFailed, Missing."""
        return self.run(*args, stdin=stdin, env=env, timeout=timeout, codes=(0,)).stdout

    def ok(self, *args: str, stdin: str | bytes | None = None, env: Mapping[str, str] | None = None) -> bool:
        """Return True for exit status 0 and False for 1. Raises GitFailed for any other, Missing."""
        return self.run(*args, stdin=stdin, env=env, codes=(0, 1)).code == 0

    def find_commit(self, revision: str) -> str | None:
        """Return the commit that a ref or another revision names, or None if it names none. Raises GitFailed."""
        done = self.run("rev-parse", "-q", "--verify", f"{revision}^{{commit}}", codes=(0, 1))
        return done.stdout.decode().strip() or None

    def lines(self, *args: str) -> tuple[str, ...]:
        """Return git's output lines. Only a newline ends one: a ref name may contain U+2028. Raises GitFailed."""
        text = self.out(*args)
        return tuple(text.split("\n")) if text else ()

    def names(self, *args: str, stdin: str | bytes | None = None) -> tuple[str, ...]:
        """Return the NUL-terminated strings that git prints with ``-z``. Raises GitFailed."""
        text = self.raw(*args, stdin=stdin).decode("utf-8", "surrogateescape")
        return tuple(text.split("\0")[:-1])

    def run(
        self,
        *args: str,
        stdin: str | bytes | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        codes: Sequence[int] | None = None,
    ) -> GitResult:
        """Run git. ``codes`` are the accepted exit statuses; None accepts any. ``stdin`` may
        be an open file. Raises GitFailed, Missing."""
        _refuse_writing(args)
        environment = {**self._environment(), **self.extra_environment, **(env or {})}
        data, words, limit = _encode(stdin), _add_safe_switches(args), self.timeout if timeout is None else timeout
        result, end = self._spawn(words, data, environment, limit), time.monotonic() + _ADD_LIMIT
        # A file on stdin is read already.
        is_repeatable = data is None or isinstance(data, bytes)
        while is_repeatable and _MISSED_WORKTREE.search(result.stderr) and result.code and time.monotonic() < end:
            time.sleep(_ADD_PAUSE)  # no event tells that the other git has gone on
            result = self._spawn(words, data, environment, limit)
        crash_points.point("git", next(arg for arg in args if not arg.startswith("-")))
        if codes is not None and result.code not in codes:
            raise GitFailed(
                f"git {args[0]} failed in {self.directory} ({result.code}): {summarize_error(result)}",
                find_remedy(result.stderr),
            )
        return result

    @contextlib.contextmanager
    def converse(self, *args: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Yield the input and the output of git while it runs. What the block does not read is dropped.

        Raises GitFailed if git failed, also because it took longer than the timeout, Missing.
        """
        environment = {**self._environment(), **self.extra_environment}
        process = self._start(_add_safe_switches(args), subprocess.PIPE, environment)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        timer = threading.Timer(self.timeout, _kill_group, (process.pid,))
        timer.start()
        try:
            yield process.stdin, process.stdout
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            stderr = process.stderr.read().decode("utf-8", "backslashreplace").strip()
            result = GitResult(git_start.wait(process), b"", stderr)
        finally:
            timer.cancel()
            if process.poll() is None:
                _kill_group(process.pid)
            for stream in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            git_start.wait(process)
        if result.code == -signal.SIGKILL:
            raise GitTimeout(f"git {args[0]} in {self.directory} took longer than {self.timeout:g} s and was killed")
        if result.code != 0:
            raise GitFailed(f"git {args[0]} failed in {self.directory} ({result.code}): {summarize_error(result)}")

    def identity(self) -> tuple[str, str]:
        """Return the configured name and address for Liza's commits, else those of ``GIT_AUTHOR_*`` or
        ``GIT_COMMITTER_*``, else the fallback."""
        name, email = self._configured_person()
        for who in ("AUTHOR", "COMMITTER"):
            name = name or os.environ.get(f"GIT_{who}_NAME", "").strip()
            email = email or os.environ.get(f"GIT_{who}_EMAIL", "").strip()
        return (name, email) if name and email else FALLBACK_IDENTITY

    def _configured_person(self) -> tuple[str, str]:
        """Return the configured name and address, each empty if it is not configured. Raises GitFailed."""
        output = self.run("config", "--get-regexp", "-z", r"^user\.(name|email)$", codes=(0, 1)).stdout
        rows = dict(row.split("\n", 1) for row in output.decode("utf-8", "replace").split("\0") if "\n" in row)
        return rows.get("user.name", "").strip(), rows.get("user.email", "").strip()

    def with_identity(self) -> Git:
        """Return git that commits as the repository's identity."""
        name, email = self.identity()
        variables = {
            f"GIT_{role}_{field}": value
            for role in ("AUTHOR", "COMMITTER")
            for field, value in (("NAME", name), ("EMAIL", email))
        }
        return self.with_environment(**variables)

    def _environment(self) -> dict[str, str]:
        environment = dict(_FIXED_ENVIRONMENT)
        if self.git_dir is not None:
            environment |= {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.directory)}
        if self.common_dir is not None:
            environment["GIT_COMMON_DIR"] = str(self.common_dir)
        if self.ceiling is not None:
            environment["GIT_CEILING_DIRECTORIES"] = str(self.ceiling)
        pairs = (*_FIXED_CONFIG, *self.extra_config)
        environment["GIT_CONFIG_COUNT"] = str(len(pairs))
        for number, (key, value) in enumerate(pairs):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return environment

    def _spawn(
        self, args: Sequence[str], stdin: bytes | IO[bytes] | None, env: Mapping[str, str], timeout: float
    ) -> GitResult:
        if not self.directory.is_dir():
            raise GitFailed(f"git {args[0]} was not run: {self.directory} is not a directory")
        if self.git_dir is not None and (self.git_dir.is_symlink() or not self.git_dir.is_dir()):
            raise GitFailed(
                f"git {args[0]} was not run: {self.git_dir} is not a directory any more",
                shlex.join(["ls", "-ld", str(self.git_dir)]),
            )
        text = stdin if isinstance(stdin, bytes) else None
        stream = subprocess.PIPE if isinstance(stdin, bytes) else subprocess.DEVNULL if stdin is None else stdin
        process = self._start(args, stream, env)
        try:
            out, err = process.communicate(text, timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            process.communicate()
            raise GitTimeout(
                f"git {args[0]} in {self.directory} took longer than {timeout:g} s and was killed"
            ) from None
        except BaseException:
            _kill_group(process.pid)
            process.communicate()
            raise
        return GitResult(process.returncode, out, err.decode("utf-8", "backslashreplace").strip())

    def _start(self, args: Sequence[str], stdin: int | IO[bytes], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        command = [program_path.find_program("git"), "--no-pager", "-C", str(self.directory), *args]
        if self.box is not None:
            command = self.box.wrap(self, args, command)
        try:
            return git_start.start(command, self.directory, env, stdin, self.inherited_fds)
        except FileNotFoundError as error:
            raise Missing("git is not installed, or not in PATH", "liza doctor") from error


def _kill_group(pid: int) -> None:
    """Kill a git process and all its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _refuse_writing(args: Sequence[str]) -> None:
    """Raise GitFailed for an option that makes git write a file.

    Liza never passes one. It can only come from a record that agents can write, in the place of a commit.
    """
    for arg in args:
        if arg == "--":
            return
        option, _, path = arg.partition("=")
        if option in _WRITING:
            raise GitFailed(
                f"git {args[0]} was not run: found {option} in the place of a commit, which would write {path}"
            )


def _add_safe_switches(args: Sequence[str]) -> list[str]:
    """Return ``args`` with switches that prevent external programs and symbolic refs.

    diff commands run no external diff and no text conversion. ``update-ref`` writes the ref itself: through a symbolic
    ref it would write a person's branch.
    """
    if args and args[0] == "update-ref" and "--no-deref" not in args:
        return [args[0], "--no-deref", *args[1:]]
    if args and args[0] in _DIFF_COMMANDS:
        # git would run `git status` in each submodule, with the configuration of the submodule.
        return [args[0], "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", *args[1:]]
    return list(args)


def _encode(text: str | bytes | IO[bytes] | None) -> bytes | IO[bytes] | None:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def join_nul(names: Sequence[str]) -> str:
    """Return ``names`` in the format that git reads with ``-z --stdin``."""
    return "".join(f"{name}\0" for name in names)


def find_remedy(stderr: str) -> str:
    """Return the command for a cause that git's error names, or an empty string.

    Causes: a failing or missing filter, a repository of another user, a partial clone whose remote does not answer.
    """
    if (match := _FILTER_ERROR.search(stderr)) is not None:
        return show_filter_command(match[1])
    if _MISSING_FILTER.search(stderr) is not None:
        return r"git config --show-origin --get-regexp '^filter\.'"
    if "from promisor remote" in stderr:
        return "git fetch"  # it shows what is wrong with the remote
    match = _OWNER_REMEDY.search(stderr)
    return match[1] if match is not None else ""


def show_filter_command(name: str) -> str:
    """Return the command that shows where a filter is configured."""
    pattern = rf"^filter\.{re.sub(r'[^A-Za-z0-9-]', '.', name)}\."
    return shlex.join(["git", "config", "--show-origin", "--get-regexp", pattern])


def describe_filter(name: str, result: GitResult) -> str:
    """Return in one line that a filter failed, with git's error and the first line of the filter itself."""
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("fatal:")]
    own_words = [line for line in lines if not line.startswith(("fatal:", "error:", "hint:"))]
    return " · ".join(
        [f"files of filter {name} cannot be checked out in a worktree: {' '.join(fatal)}", *own_words[:1]]
    )


def summarize_error(result: GitResult) -> str:
    """Return git's error in one line: the last fatal line and the errors, else its last three lines."""
    lines = [line for line in result.stderr.splitlines() if line.strip() and not line.startswith("hint:")]
    fatal = [line for line in lines if line.startswith("fatal:")]
    errors = [line for line in lines if line.startswith("error:")]
    summary = list(dict.fromkeys([*fatal[-1:], *errors])) or lines[-3:]
    missing = _MISSING_FILTER.search(result.stderr)
    if missing is not None:
        summary.insert(0, missing[0])  # git itself says only that the other end hung up
    failed = _FILTER_ERROR.search(result.stderr)
    if failed is not None:
        return describe_filter(failed[1], result)[:600]
    return " · ".join(summary[:3])[:600] or "no error message"
