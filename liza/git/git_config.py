"""git's directories, and the settings in its configuration files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from liza.git.runner import Git

_SCOPES = ("system", "global", "local", "worktree")

ConfigValues = dict[str, tuple[str, ...]]


def read_config(git: Git, scopes: Sequence[str] = _SCOPES) -> ConfigValues:
    """Return every setting in git's configuration files: key to values, in order; the last value counts."""
    fields = git.names("config", "--list", "--includes", "--show-scope", "-z")
    values_by_key: dict[str, list[str]] = {}
    for scope, setting in zip(fields[::2], fields[1::2], strict=True):
        # The listing also has the runner's own settings, with the scope "command".
        if scope in scopes:
            key, _, value = setting.partition("\n")
            values_by_key.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in values_by_key.items()}


def describe_setup(git: Git) -> frozenset[str]:
    """Return a line for each setting and each hook of the repository: two results show what changed between them.

    Raises GitFailed, OSError.
    """
    hooks = git_dirs(git)[1] / "hooks"
    names = [path.name for path in hooks.iterdir() if path.suffix != ".sample"] if hooks.is_dir() else []
    settings = read_config(git, ("local", "worktree")).items()
    lines = [f"git configuration {key} = {value!r}" for key, values in settings for value in values]
    return frozenset([*lines, *(f"git hook {name}" for name in names)])


def config_files(git: Git) -> tuple[Path, ...]:
    """Return the files that git's configuration can come from, existing or not, without included files. Raises
    GitFailed.
    """
    git_dir, common = git_dirs(git)
    home = Path.home()
    global_file = os.environ.get("GIT_CONFIG_GLOBAL")
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config"
    user_files = (Path(global_file),) if global_file else (home / ".gitconfig", xdg)
    system = tuple(Path(top) / "etc" / "gitconfig" for top in ("/", "/usr/local", "/opt/homebrew"))
    system_file = os.environ.get("GIT_CONFIG_SYSTEM")
    return (
        common / "config",
        git_dir / "config.worktree",
        *user_files,
        *((Path(system_file),) if system_file else system),
    )


def git_dirs(git: Git) -> tuple[Path, Path]:
    """Return the git directory of a worktree and the one that all worktrees share. Raises GitFailed."""
    if git.git_dir is not None and git.common_dir is not None:
        return git.git_dir, git.common_dir
    if git.git_dir is not None and (git.git_dir / "commondir").is_file():
        return git.git_dir, (git.git_dir / (git.git_dir / "commondir").read_text().strip()).resolve()
    lines = git.out("rev-parse", "--absolute-git-dir", "--git-common-dir").split("\n")
    return Path(lines[0]), (git.directory / lines[1]).resolve()
