"""git's directories, its records of linked worktrees, and the settings in its configuration files.

People's worktrees have records in ``.git/worktrees``, too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from liza.git.runner import Git, describe_filter, show_filter_command
from liza.model.errors import NotRegularFile
from liza.model.value_classes import Value
from liza.system import untrusted_files

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


class FailingFilter(Value):
    """Why a filter fails, and the command that shows its configuration. ``is_local``: a clone has no such filter."""

    reason: str
    show_command: str
    is_local: bool


def find_failing_filters(git: Git, commit: str) -> Iterator[FailingFilter]:
    """Yield the required filters that fail for a file of ``commit`` in a linked worktree.

    Each filter is run on one of its files, in a temporary worktree of which git has no record. Raises GitFailed,
    OSError.
    """
    query = ("config", "--show-scope", "--type=bool", "--get-regexp", r"^filter\..*\.required$")
    rows = [row.split() for row in git.run(*query, codes=(0, 1)).stdout.decode("utf-8", "replace").splitlines()]
    scopes = {key: scope for scope, key, value in (row for row in rows if len(row) == 3) if value == "true"}
    if not scopes:
        return
    common = git_dirs(git)[1]
    with tempfile.TemporaryDirectory(prefix="liza-") as directory:
        git_dir, worktree = Path(directory) / "git", Path(directory) / "tree"
        git_dir.mkdir()
        worktree.mkdir()
        (git_dir / "commondir").write_text(f"{common}\n")
        (git_dir / "HEAD").write_text(f"{commit}\n")
        linked = git.with_git_dir(worktree, git_dir, common)
        linked.out("read-tree", commit)
        for key, scope in scopes.items():
            name = key.removeprefix("filter.").removesuffix(".required")
            files = linked.names("ls-files", "-z", "--", f":(attr:filter={name})")
            # Check the file out, then read it back as `git status` and `git add` do.
            for words in (("checkout-index",), ("diff-files", "--shortstat")) if files else ():
                result = linked.run(*words, "--", files[0])
                if result.code != 0:
                    yield FailingFilter(describe_filter(name, result), show_filter_command(name), scope == "local")
                    break


def switch_filters_off(git: Git) -> tuple[tuple[str, str], ...]:
    """Return the settings with which no filter runs. Files have the content that is in the commit. Raises GitFailed."""
    pattern = r"^filter\..*\.(clean|smudge|process|required)$"
    keys = git.run("config", "--null", "--name-only", "--get-regexp", pattern, codes=(0, 1)).stdout
    names = dict.fromkeys(filter(None, keys.decode("utf-8", "surrogateescape").split("\0")))
    return tuple((name, "") for name in names if "=" not in name)


_MAX_GITFILE = 4096 + 16  # bytes in a file `.git`: PATH_MAX and "gitdir: "


def records_directory(common: Path) -> Path:
    """Return the directory of the records in the git directory that all worktrees share."""
    return common / "worktrees"


def list_worktrees(common: Path, *, skip_unreadable: bool = False) -> dict[Path, Path]:
    """Return the git directory of each linked worktree with the path of its ``.git`` file, existing or not, sorted.

    Records that name no such file are left out. ``skip_unreadable``: so are those that this user may not read, for a
    caller that looks for something in all of them. Otherwise raises OSError.
    """
    directory = records_directory(common)
    records = sorted(directory.iterdir()) if directory.is_dir() else ()
    worktrees = {}
    for record in records:
        with suppress(PermissionError) if skip_unreadable else nullcontext():
            gitfile = recorded_path(record)
            if gitfile is not None:
                worktrees[record] = gitfile
    return worktrees


def recorded_path(git_dir: Path) -> Path | None:
    """Return the path of the ``.git`` file that a worktree record names, existing or not; None if it names none."""
    try:
        # A path is arbitrary bytes, and a record may be incomplete.
        text = os.fsdecode(untrusted_files.read_record(git_dir / "gitdir")).removesuffix("\n")
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        return None
    return Path(os.path.normpath(git_dir / text)) if text else None


def read_gitfile(path: Path) -> Path | None:
    """Return the git directory that a file ``.git`` names; None if it names none, or is not a regular file.

    The result is relative to the directory of the file if the file says so. Raises OSError.
    """
    try:
        text = os.fsdecode(untrusted_files.read(path, _MAX_GITFILE)).rstrip("\n")
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        return None
    return path.parent / text.removeprefix("gitdir: ") if text.startswith("gitdir: ") else None
