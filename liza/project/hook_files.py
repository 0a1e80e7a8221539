"""What git needs for a commit in a new worktree: files that its hooks need, and a key to sign. Nothing is run.

A worktree has the tracked files, the copies of ``config.sandbox_copy``, and what the set-up makes.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from liza.box import support
from liza.box.box import Box, Mount, MountKind
from liza.box.run_mounts import build_reading_box
from liza.box.surroundings import read_surroundings
from liza.git import local_files
from liza.git.boxed_git import is_signing, key_settings, signing_mounts, unlock_command
from liza.git.git_config import git_dirs, read_config
from liza.git.runner import Git, summarize_error
from liza.model import clean_environment
from liza.model.configuration import Config
from liza.model.errors import Finding, GitFailed
from liza.model.paths import Paths, session_committer
from liza.model.value_classes import Value
from liza.programs.presets import command_line, preset_table, program_choice
from liza.system.installation import liza_path

_COMMIT_HOOKS = (
    "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-merge-commit", "post-checkout",
    "post-merge", "post-rewrite", "pre-rebase",
)  # fmt: skip
_MAX_SIZE = 1 << 16  # bytes of a script that is read
# Words with a slash; variables and substitutions before the slash are left out.
_PATH = re.compile(r"[\w@.+-]*(?:/[\w@.+-]+)+")
_NODE_RUNNER = re.compile(r"(?<![\w./-])(?:npx|npm|pnpm|pnpx|yarn|bun|bunx)(?![\w-])")
_MODULES = "node_modules"
# Configuration files of managers of hooks. The key is a word in the hook scripts that the manager writes.
_MANAGERS = {
    "lefthook": tuple(f"{dot}lefthook.{end}" for dot in ("", ".") for end in ("yml", "yaml", "toml", "json")),
    "pre-commit.com": (".pre-commit-config.yaml",),
}


class HookNeed(Value):
    """A file, or a directory of dependencies, by its path in the checkout, and the hook that needs it."""

    hook: str
    path: str


def hooks_directory(git: Git) -> Path:
    """Return the directory of the person's hooks, relative if each worktree has its own. Raises GitFailed."""
    # Liza's own git has its hooks off: `git rev-parse --git-path hooks` names another directory.
    configured = read_config(git).get("core.hookspath", ("",))[-1]
    return Path(configured).expanduser() if configured else git_dirs(git)[1] / "hooks"


def find_needs(git: Git) -> tuple[HookNeed, ...]:
    """Return what the hooks of a commit need and the checkout has, without what all worktrees share.

    Raises GitFailed, OSError.
    """
    root, hooks = git.directory, hooks_directory(git)
    directories = (hooks, hooks.parent) if hooks.name == "_" else (hooks,)  # husky 9 runs the hooks above `_`
    needs = []
    for name in _COMMIT_HOOKS:
        scripts = [directory / name for directory in directories if (root / directory / name).is_file()]
        if scripts and os.access(root / scripts[0], os.X_OK):
            needs += [HookNeed(name, path) for script in scripts for path in _find_files(root, script)]
    return tuple(dict.fromkeys(needs))


def _find_files(root: Path, script: Path) -> Iterator[str]:
    """Yield the paths in ``root`` of a script and of the files there that it names: dependencies as one directory."""
    if not script.is_absolute():
        yield str(script)
    text = _read_script(root, root / script)
    for word in _PATH.findall(text):
        # A path after a variable or a substitution is one beside the script.
        path = next((path for path in (root / script.parent / word.lstrip("/"), root / word) if _is_file(path)), None)
        name = None if path is None else _own_path(root, path)
        if name is not None:
            yield local_files.shorten(name)
    if _NODE_RUNNER.search(text) and (root / _MODULES).is_dir():
        yield _MODULES


def _read_script(root: Path, path: Path) -> str:
    """Return the text of a script without comments, or that of the configuration of its manager. "" if too large."""
    if not path.is_file() or path.stat().st_size > _MAX_SIZE:
        return ""
    text = path.read_text(errors="replace")
    files = [root / name for manager, names in _MANAGERS.items() if manager in text for name in names]
    text = "\n".join(file.read_text(errors="replace") for file in files if file.is_file()) or text
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a word that is too long for a name
        return False


def _own_path(root: Path, path: Path) -> str | None:
    """Return the path relative to ``root``; None if it lies outside, or in the git directory."""
    name = os.path.relpath(os.path.normpath(path), root)
    return None if name.split("/")[0] in ("..", ".", ".git") else name


_RUN = "coder-1.1"
_TRIAL_LIMIT = 10.0  # seconds; a key that waits for a touch or a passphrase does not sign before
_USUAL_VARIABLES = ("SSH_AUTH_SOCK", "GNUPGHOME")
_PUSH_REMARK = "in their box they have the socket of your ssh agent, which can also push"
_BOX_REMARK = "their box has public keys and the socket of an agent, no private key"
# With these a program could ask in this terminal, which a session does not have.
_TERMINAL_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "GPG_TTY", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE")


def inspect_signing(paths: Paths, git: Git, config: Config) -> Iterator[Finding]:
    """Try one signature in the environment of a coder's session, if the person's git signs.

    The commit of the trial is not kept. If it fails, find the variables of this terminal with which it succeeds.
    Raises GitFailed, Missing, UsageError.
    """
    if not is_signing(git):
        return
    table = preset_table.load_presets(paths)
    preset = program_choice.choose_program(None, {}, "coder", config, table).preset
    name, email = git.identity()
    session = command_line.compose_environment(
        preset,
        os.environ,
        run=_RUN,
        task=None,
        root=paths.root,
        liza=liza_path(),
        identity={"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email},
        keep=config.environment,
        allowed=config.env_allow,
    )
    session["GIT_COMMITTER_NAME"] = session_committer(session["GIT_COMMITTER_NAME"], _RUN)
    program = support.choose_box_program(config.confinement)
    settings = key_settings(git, session["GIT_COMMITTER_EMAIL"])
    trial = _Trial(paths, git.with_config(*settings), session, program)
    failure = trial.find_failure(())
    if failure is None:
        push = "" if program is None or "SSH_AUTH_SOCK" not in session else f"; {_PUSH_REMARK}"
        text = "sessions sign their commits; merges and other commits of Liza itself are not signed"
        yield Finding("signing", text + push)
        return
    if program is not None:
        failure += f" ({_BOX_REMARK})"
    text = f"sessions cannot sign their commits, as your git does: {failure}"
    usual = [name for name in _USUAL_VARIABLES if name in trial.left_out]
    choices = [*((name,) for name in usual), tuple(usual)] if usual else []
    names = next((names for names in choices if trial.find_failure(names) is None), None)
    if names is None:
        yield Finding(
            "signing", f"{text}; in a terminal the signing program can ask you for it", False, unlock_command(git)
        )
        return
    hint = shlex.join(["liza", "config", "set", "env_allow", ",".join((*config.env_allow, *names))])
    yield Finding("signing", f"{text}; they can with {' and '.join(names)} of this terminal", False, hint)


class _TrialBox(Value):
    """A box like that of a session, in which git signs."""

    box: Box

    def wrap(self, _git: Git, _args: Sequence[str], argv: Sequence[str]) -> list[str]:
        return self.box.wrap(argv)


class _Trial:
    """Trials of a signature by ``git`` in the environment ``session``, and with more variables of this process.

    ``left_out``: names of the variables that a session does not inherit. ``program``: bubblewrap; None: without a box.
    """

    def __init__(self, paths: Paths, git: Git, session: Mapping[str, str], program: str | None) -> None:
        self._paths, self._program = paths, program
        self._git, self._session = git.with_timeout(_TRIAL_LIMIT), session
        clean = clean_environment.clean_variables(os.environ, str(git.directory)).variables
        self.left_out = tuple(
            name
            for name in sorted(clean)
            if name not in session and name not in _TERMINAL_VARIABLES and not name.startswith(("GIT_", "LIZA_"))
        )

    def find_failure(self, names: Sequence[str]) -> str | None:
        """Sign a commit with these variables, too. Return git's error, or None."""
        # An empty variable counts as unset for ssh and gpg.
        absent = dict.fromkeys((*self.left_out, *_TERMINAL_VARIABLES), "")
        given = {name: os.environ[name] for name in names}
        with tempfile.TemporaryDirectory() as objects:
            kept = self._git.out("rev-parse", "--path-format=absolute", "--git-path", "objects")
            git = self._git.with_environment(
                **{**absent, **self._session, **given},
                GIT_OBJECT_DIRECTORY=objects,
                GIT_ALTERNATE_OBJECT_DIRECTORIES=kept,
            ).with_box(self._make_box({**self._session, **given}, Path(objects)))
            try:
                result = git.run("commit-tree", "-S", "-m", "trial", "HEAD^{tree}")
            except GitFailed as error:  # at the time limit
                return error.message
        return None if result.code == 0 else summarize_error(result)

    def _make_box(self, environ: Mapping[str, str], objects: Path) -> _TrialBox | None:
        """Return the box in which a commit is signed into ``objects``; None without confinement."""
        if self._program is None:
            return None
        around = read_surroundings(self._program, self._paths, environ)
        keys = signing_mounts(self._git, environ, Path.home())
        return _TrialBox(build_reading_box(around, (*keys, Mount(MountKind.WRITABLE, objects))))
