"""Names that git ignores: `.liza` and `.worktrees` everywhere, others in one slot only.

`.git/info/exclude` is shared by all worktrees: the person's `git status` would change. So those of a slot are in a
file in its git directory. ``core.excludesFile`` names that file for Liza's git in the slot and for sessions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from liza.git.git_config import git_dirs
from liza.git.hiding import marked_sections
from liza.git.runner import Git
from liza.model.paths import Paths
from liza.system import atomic

_FILE = "liza-excludes"
_SETTING = "core.excludesFile"


def write_excludes(git: Git, names: Iterable[str]) -> None:
    """Ignore ``names`` in the slot of ``git``, beside the person's own patterns. A directory ends with a slash.

    Without names the file is removed. Raises GitFailed, OSError.
    """
    path, patterns = git_dirs(git)[0] / _FILE, [_pattern(name) for name in names]
    if not patterns:
        path.unlink(missing_ok=True)
        return
    lines = "".join(f"{pattern}\n" for pattern in patterns).encode("utf-8", "surrogateescape")
    atomic.write(path, _own_patterns(git) + lines, sync=False)


def slot_config(git_dir: Path) -> tuple[tuple[str, str], ...]:
    """Return the configuration that makes Liza's git ignore the names of the slot with this git directory."""
    path = git_dir / _FILE
    return ((_SETTING, str(path)),) if path.exists() else ()


def session_variables(git_dir: Path, more: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """Return the variables that make the git of a session ignore the names of the slot with this git directory.

    ``more``: further settings of that git.

    The variable is the one that `git -c` sets for its children. Some programs remove variables with KEY in their name
    from the environment, so GIT_CONFIG_KEY_0 would make every git of such a session fail.
    """
    settings = " ".join(_quoted(f"{name}={value}") for name, value in (*slot_config(git_dir), *more))
    return {"GIT_CONFIG_PARAMETERS": settings} if settings else {}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _own_patterns(git: Git) -> bytes:
    """Return the content of the file that ``core.excludesFile`` names without Liza; its own value replaces that."""
    plain = git.with_git_dir(git.directory, *git_dirs(git))
    configured = plain.run("config", "--type=path", "--get", _SETTING, codes=(0, 1)).stdout.decode(errors="replace")
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    path = git.directory / (configured.removesuffix("\n") or f"{home}/git/ignore")
    text = path.read_bytes() if path.is_file() else b""
    return text if not text or text.endswith(b"\n") else text + b"\n"


def _pattern(name: str) -> str:
    """Return the pattern for one path. A pattern cannot contain a line break, so any character matches there."""
    return "/" + re.sub(r"[\\*?\[ ]", r"\\\g<0>", name).replace("\n", "?").replace("\r", "?")


_SECTION = "crew"


def info_file(git: Git, name: str) -> Path:
    """Return the path of ``.git/info/<name>``. Creates its directory. Raises GitFailed."""
    directory = git_dirs(git)[1] / "info"
    directory.mkdir(exist_ok=True)
    return directory / name


def ignore_liza_dirs(git: Git, paths: Paths) -> None:
    """Ignore ``.liza`` in this clone, and the slots if they are in the repository. Idempotent. Raises GitFailed."""
    patterns = ("/.liza", "/.worktrees") if paths.slots.is_relative_to(paths.root) else ("/.liza",)
    marked_sections.write_section(info_file(git, "exclude"), _SECTION, patterns)


def unignore_liza_dirs(git: Git) -> None:
    """Undo ``ignore_liza_dirs``. Idempotent. Raises GitFailed."""
    marked_sections.remove_section(info_file(git, "exclude"), _SECTION)
