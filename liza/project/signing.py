"""Signatures of commits in sessions: what a session needs for them, and one trial in its environment."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from liza.box import support
from liza.box.box import Box, Mount, MountKind
from liza.box.run_mounts import build_reading_box
from liza.box.surroundings import read_surroundings
from liza.git.commit_signing import is_signing, key_settings, signing_mounts, unlock_command
from liza.git.runner import Git, summarize_error
from liza.model import clean_environment
from liza.model.doctor_finding import Finding
from liza.model.errors import GitFailed
from liza.model.model import Config
from liza.model.paths import Paths, session_committer
from liza.model.value_classes import Value
from liza.programs.presets import command_line, preset_table
from liza.system.liza_path import liza_path

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
    chosen = config.programs.get("coder") or config.programs.get("default", "")
    # A program whose command a person gives later, such as `script`, cannot be chosen yet, but it has a row.
    row = table.rows.get(chosen.partition(":")[0])
    preset = row or preset_table.choose_program(None, {}, "coder", config, table).preset
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
    others = [name for name in trial.left_out if name not in usual]
    names = next((names for names in (usual, [*usual, *others]) if names and trial.find_failure(names) is None), None)
    if names is None:
        yield Finding(
            "signing", f"{text}; in a terminal the signing program can ask you for it", False, unlock_command(git)
        )
        return
    needed = trial.find_needed((), names)
    hint = shlex.join(["liza", "config", "set", "env_allow", ",".join((*config.env_allow, *needed))])
    yield Finding("signing", f"{text}; they can with {' and '.join(needed)} of this terminal", False, hint)


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

    def find_needed(self, given: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
        """Return those of ``names`` without which git does not sign. With ``given`` and all of them it does."""
        if len(names) == 1:
            return tuple(names)
        half = len(names) // 2
        first, second = names[:half], names[half:]
        for part in (first, second):
            if self.find_failure((*given, *part)) is None:
                return self.find_needed(given, part)
        needed = self.find_needed((*given, *second), first)
        return (*needed, *self.find_needed((*given, *needed), second))
