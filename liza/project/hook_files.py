"""What git needs for a commit in a new worktree: files that its hooks need, and a key to sign. Nothing is run.

A worktree has the tracked files, the copies of ``config.sandbox_copy``, and what the set-up makes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
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
from liza.programs.presets import command_line, preset_table
from liza.system.installation import liza_path

_COMMIT_HOOKS = (
    "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-merge-commit", "post-checkout",
    "post-merge", "post-rewrite", "pre-rebase",
)  # fmt: skip
_MAX_SIZE = 1 << 16  # bytes of a script that is read
_MAX_SCRIPTS = 50
# Each expansion that may name a directory is replaced by _MARK. The hook's directory and the top are tried for it.
_EXPANSION = re.compile(
    r"\$\(\s*(?:dirname|cd|pwd|realpath|readlink|git\s+rev-parse)\b(?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    r"|`\s*(?:dirname|pwd|git\s+rev-parse)\b[^`]*`|\$\{[^}]*\}|\$\w+|\\\n"
)
_MARK = "\x01"
_TOKEN = re.compile(r"""(?<!\S)#[^\n]*|\$\(|[;&|(){}!`\n]|(?:"[^"]*"|'[^']*'|[^\s;&|(){}`"'])+""")
_BEFORE_COMMAND = re.compile(
    r"then|do|else|elif|if|while|until|exec|command|time|env|eval|sudo|source|\.|-\S*|\w+=.*"
    r"|(?:ba|z|da|k)?sh|(?:\S*/)?(?:bash|sh|env|node|deno|ruby|perl|php|python[\d.]*)"
)
_OTHER_DIRECTORY = re.compile(r"""(?<!\S)(?:cd|--prefix|--cwd|--dir|-C)[\s=]+(?:["']?\x01["']?/)?["']?([\w./-]+)""")
_JAVASCRIPT_RUNNERS = ("npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx")
_MODULES = "node_modules"
_READ_NOTHING = ("[", "[[", "test", "rm", "mkdir", "touch", "cp", "mv", "ln", "echo", "printf", "grep", "git", "cd")
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
            needs += [HookNeed(name, path) for path in _follow(root, scripts)]
    return tuple(dict.fromkeys(needs))


def _follow(root: Path, scripts: list[Path]) -> Iterator[str]:
    """Yield the paths in ``root`` of these scripts, and of what they run and read, directly or through scripts."""
    pending, seen = list(scripts), set(scripts)
    while pending and len(seen) <= _MAX_SCRIPTS:
        script = pending.pop(0)
        name = _own_path(root, root / script)
        if name is not None and not script.is_absolute():
            yield name
        if name is not None and not set(local_files.DEPENDENCY_DIRECTORIES).isdisjoint(Path(name).parts):
            continue
        for path in _find_references(root, script):
            if Path(path) not in seen:
                seen.add(Path(path))
                pending.append(Path(path))


def _find_references(root: Path, script: Path) -> Iterator[str]:
    """Yield the paths in ``root`` of the files that a script runs or reads. A file of dependencies is one directory."""
    text = _read_script(root, root / script)
    shebang = text.partition("\n")[0]
    is_shell = not shebang.startswith("#!") or re.search(r"sh\b", shebang) is not None
    text = _EXPANSION.sub(lambda match: " " if match[0] == "\\\n" else _MARK, text)
    others = [root / name for name in _OTHER_DIRECTORY.findall(text)]
    commands, arguments = _find_words(text) if is_shell else ([], re.findall(r"""["']([\w@.+/-]+)["']""", text))
    for word in (*commands, *arguments):
        if set("/.").isdisjoint(word) or word[0] in "/~":
            continue
        beside = root / script.parent
        tried = (beside, *others, root) if word[0] == _MARK else (*others, root, beside)
        directory = next((path for path in tried if _is_file(path / word.lstrip(f"{_MARK}/"))), None)
        file = None if directory is None else directory / word.lstrip(f"{_MARK}/")
        name = None if file is None else _own_path(root, file)
        if directory == beside and script.is_absolute():
            yield os.path.normpath(str(file))  # all worktrees share it
        elif name is not None:
            yield local_files.shorten(name)
    bin_directory = root / _MODULES / ".bin"  # on the PATH of a hook of husky
    if any(
        word in _JAVASCRIPT_RUNNERS or (_is_file(bin_directory / word) and not shutil.which(word)) for word in commands
    ):
        names = [_own_path(root, path / _MODULES) for path in (*others, root)]
        yield from (name for name in names if name is not None and (root / name).is_dir())


def _read_script(root: Path, path: Path) -> str:
    """Return the text of a script, with the commands that a hook manager reads from its own file. "" if too large."""
    if not path.is_file() or path.stat().st_size > _MAX_SIZE:
        return ""
    text = path.read_text(errors="replace")
    for manager, names in _MANAGERS.items():
        if manager in text:
            files = [root / name for name in names if (root / name).is_file()]
            commands = [re.sub(r"\b(run|entry):", "\n", file.read_text(errors="replace")) for file in files]
            # The script itself only searches for the manager, which is usually installed for all worktrees.
            is_shared = shutil.which(manager) or any(
                _is_file(Path(path)) for path in re.findall(r"(?<!\S)/[\w./-]+", text)
            )
            return "\n".join(["" if is_shared else text, *commands])
    return text


def _find_words(text: str) -> tuple[list[str], list[str]]:
    """Return the words of a shell script that are run, or read by ``.``, and their arguments. Variables are replaced by
    a mark."""
    commands: list[str] = []
    arguments: list[str] = []
    is_expected, is_read = True, True
    for token in _TOKEN.findall(text):
        word = token.replace('"', "").replace("'", "")
        if token[0] in ";&|(){}!`\n" or token == "$(":
            is_expected = is_read = True
        elif token[0] == "#" or not word:
            continue
        elif re.search(r"\s", word):  # sh -c "…"
            inner = _find_words(word)
            commands += inner[0]
            arguments += inner[1]
        elif is_expected:
            is_expected = _BEFORE_COMMAND.fullmatch(word) is not None
            is_read = word not in _READ_NOTHING
            if not is_expected or "/" in word:
                commands.append(word)
        elif ">" in word:
            is_read = False
        elif is_read:
            arguments += [word.lstrip("<"), word.partition("=")[2]]
    return commands, [word for word in arguments if word]


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
