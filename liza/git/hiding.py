"""Named sections in a person's file: written, listed and removed by name. Other lines stay.

Used for ``.git/info/exclude`` and ``.git/info/attributes``, which all worktrees share. A section is named after the run
that needs it: concurrent runs need no counter, and a killed run leaves its name.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from liza.git import filter_program
from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.model.errors import GitFailed, Refused
from liza.system import atomic, untrusted_files
from liza.system.locks import lock_path
from liza.text.brief_marks import KEY_ATTRIBUTE, KEY_LENGTH, strip_blocks

BEGIN, END = "# liza:begin ", "# liza:end "
MAX_INFO_SIZE = 1 << 24  # bytes


def write_section(path: Path, name: str, lines: Sequence[str]) -> None:
    """Replace the lines of the section ``name``. Without lines it is removed. Idempotent. Raises OSError."""
    with lock_path(path.parent):
        text = _read_text(path)
        kept = _remove_from_text(text, name)
        if lines:
            joined = "\n".join(lines)
            kept += "" if kept.endswith("\n") or not kept else "\n"
            kept += f"# liza:begin {name}\n{joined}\n# liza:end {name}\n"
        if not kept and text and not path.is_symlink():
            path.unlink()  # The section was all of it: without Liza there is no file.
        elif kept != text:
            _write_atomic(path, kept)


def remove_section(path: Path, name: str) -> None:
    """Remove the section ``name`` if it exists. Raises OSError."""
    write_section(path, name, ())


def read_sections(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the sections of a file: name to lines. Raises OSError."""
    sections: dict[str, tuple[str, ...]] = {}
    name: str | None = None
    section_lines: list[str] = []
    for line in _read_text(path).split("\n"):
        if line.startswith(BEGIN):
            name, section_lines = line.removeprefix(BEGIN), []
        elif name is not None and line == f"{END}{name}":
            sections[name], name = tuple(section_lines), None
        else:
            section_lines.append(line)
    return sections


def _remove_from_text(text: str, name: str) -> str:
    """Return ``text`` without the section ``name``. A mark without its partner is text."""
    kept: list[str] = []
    begin_index: int | None = None
    for line in text.splitlines(keepends=True):
        mark = line.removesuffix("\n")
        kept.append(line)
        if mark == f"{BEGIN}{name}":
            begin_index = len(kept) - 1
        elif begin_index is not None and mark == f"{END}{name}":
            del kept[begin_index:]
            begin_index = None
    return "".join(kept)


def _read_text(path: Path) -> str:
    """Return the text of a file, or an empty string without one.

    A link is followed: some people keep these files elsewhere. Raises NotRegularFile, OSError.
    """
    data = untrusted_files.read_if_exists(path, MAX_INFO_SIZE, follow_links=True)
    return (data or b"").decode("utf-8", "surrogateescape")


def _write_atomic(path: Path, text: str) -> None:
    """Write a file atomically. A symbolic link to a person's own file is followed, not replaced."""
    target = path.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    atomic.write(target, text.encode("utf-8", "surrogateescape"), mode, sync=False)


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


def ignore_liza_dirs(git: Git) -> None:
    """Ignore ``.liza`` in this clone. Idempotent. Raises GitFailed."""
    write_section(info_file(git, "exclude"), _SECTION, ("/.liza",))


def unignore_liza_dirs(git: Git) -> None:
    """Undo ``ignore_liza_dirs``. Idempotent. Raises GitFailed."""
    remove_section(info_file(git, "exclude"), _SECTION)


FILTER_NAME = "liza-brief"
FILTER_KEY = f"filter.{FILTER_NAME}.clean"
MAX_FILE_SIZE = 1 << 23  # bytes; a larger file is not searched for blocks


def install_filter(git: Git, program: Path | Sequence[str | Path] | None = None) -> None:
    """Write the filter into ``.git/config``. Idempotent. Raises GitFailed."""
    argv: Sequence[str | Path]
    if program is None:
        argv = (sys.executable, "-I", "-S", Path(filter_program.__file__).resolve())
    else:
        argv = (program,) if isinstance(program, Path) else program
    command = shlex.join(str(argument) for argument in argv)
    done = git.run("config", "--local", "--get-all", FILTER_KEY, codes=(0, 1)).stdout.decode("utf-8", "replace")
    if done.splitlines() != [command]:
        git.out("config", "--local", "--replace-all", FILTER_KEY, command)


def uninstall_filter(git: Git) -> None:
    """Remove the filter, all bindings and all hidden names from ``.git``. Idempotent. Raises GitFailed."""
    for path in (info_file(git, "attributes"), info_file(git, "exclude")):
        for name in read_sections(path):
            if name.startswith("run="):
                remove_section(path, name)
    git.run("config", "--local", "--remove-section", f"filter.{FILTER_NAME}", codes=(0, 128))


def find_bindable(git: Git, names: Sequence[str]) -> tuple[str, ...]:
    """Return the files of ``names`` without another filter. With ours, git would store those unfiltered.

    Raises GitFailed.
    """
    rows = git.names("check-attr", "-z", "filter", "--", *names) if names else ()
    values = zip(rows[::3], rows[2::3], strict=True)
    return tuple(name for name, value in values if value in ("unspecified", "unset", FILTER_NAME))


def bind_filter(git: Git, names: Sequence[str], run: str, key: str) -> None:
    """Bind the filter to the instructions files ``names`` (relative to the top) for the blocks of ``run``, with
    ``key`` in their marks.

    Raises Refused for a file that has another filter or an unsupported name, GitFailed.
    """
    lines = [f"{_escape_name(name)} filter={FILTER_NAME} {KEY_ATTRIBUTE}={key}" for name in names]
    for name in sorted({*names} - {*find_bindable(git, names)}):
        raise Refused(f"{name} goes through a filter of the project, so no brief can be hidden in it", "liza doctor")
    write_section(info_file(git, "attributes"), f"run={run}", lines)


def unbind_filter(git: Git, run: str) -> None:
    """Remove the bindings of ``run``; those of other runs stay. Idempotent. Raises GitFailed."""
    remove_section(info_file(git, "attributes"), f"run={run}")


def hide_files(git: Git, names: Sequence[str], run: str) -> None:
    """Exclude untracked instructions files that contain only a block from ``git status``.

    Raises GitFailed.
    """
    write_section(info_file(git, "exclude"), f"run={run}", [_escape_name(name) for name in names])


def unhide_files(git: Git, run: str) -> None:
    """Remove the hidden names of ``run``; those of other runs stay. Idempotent. Raises GitFailed."""
    remove_section(info_file(git, "exclude"), f"run={run}")


def list_bound_runs(git: Git) -> tuple[str, ...]:
    """Return the runs with bindings or hidden names. Recovery compares them with the living runs."""
    sections = {
        **read_sections(info_file(git, "attributes")),
        **read_sections(info_file(git, "exclude")),
    }
    return tuple(sorted(name.removeprefix("run=") for name in sections if name.startswith("run=")))


def list_bound_files(git: Git) -> tuple[str, ...]:
    """Return the file names, relative to the top of a worktree, that are bound or hidden for any run."""
    lines = [
        line.partition(f" filter={FILTER_NAME}")[0]
        for path in (info_file(git, "attributes"), info_file(git, "exclude"))
        for name, section in read_sections(path).items()
        if name.startswith("run=")
        for line in section
    ]
    return tuple(sorted({_unescape_name(line) for line in lines}))


def is_tracked(git: Git, name: str) -> bool:
    """Return whether git tracks the file ``name`` in this worktree. Raises GitFailed."""
    return bool(git.names("--literal-pathspecs", "ls-files", "-z", "--", name))


def remove_blocks(git: Git, text: bytes) -> bytes:
    """Return ``text`` without the blocks of bound runs, as the filter does. Raises OSError, GitFailed."""
    return strip_blocks(text, filter_program.read_keys(str(git_dirs(git)[0])))


def read_without_blocks(git: Git, name: str) -> bytes:
    """Return a file of the worktree without the blocks of bound runs; empty if there is no file. Raises OSError,
    GitFailed."""
    path = git.directory / name
    try:
        if path.stat().st_size > MAX_FILE_SIZE:
            # Any text that is not empty: the caller then keeps the file.
            return b"larger than any brief"
        return remove_blocks(git, path.read_bytes())
    except FileNotFoundError:
        return b""


def find_committed_blocks(git: Git, base: str, head: str) -> tuple[str, ...]:
    """Return the text files in which the commits since ``base`` have a mark of a bound run. Raises OSError, GitFailed.

    The filter sees only the files that are bound, and only complete blocks: not a copy, a renamed file, or a block with
    an edited mark.
    """
    keys = [key for key in filter_program.read_keys(str(git_dirs(git)[0])) if len(key) == KEY_LENGTH and key.isalnum()]
    if not keys:
        return ()
    options = ("--name-only", "-z", "--no-renames", "--diff-filter=d", "--no-ext-diff", "--no-textconv")
    names = git.names("diff", *options, f"-G key=({'|'.join(keys)})", base, head, "--")
    # A commit that removes a mark has the key in its difference, too.
    return tuple(name for name in names if any(key.encode() in git.raw("show", f"{head}:{name}") for key in keys))


def refresh_index_entry(git: Git, name: str) -> bool:
    """Refresh the index entry of a file with a block: git takes a file for modified if its size differs from the entry.

    Only done if the index has exactly the file without the block, also during a merge: in any other case ``git add``
    would stage or resolve a person's work. Not done for a file that ``git add -N`` has announced, nor while another git
    command holds the lock of the index. Return whether it was done. Raises GitFailed if the index cannot be read.
    """
    rows = git.names("--literal-pathspecs", "ls-files", "-s", "-z", "--", name)
    if len(rows) != 1:
        return False
    mode, stored, rest = rows[0].split(" ", 2)
    if not mode.startswith("100") or not rest.startswith("0\t") or not (git.directory / name).is_file():
        return False
    if git.out("hash-object", "--", name) != stored:
        return False
    # git diff-files reports an announced file as added: the index has it as empty.
    if not read_without_blocks(git, name) and git.names(
        "--literal-pathspecs", "diff-files", "--diff-filter=A", "--name-only", "-z", "--", name
    ):
        return False
    try:
        git.out("--literal-pathspecs", "add", "--", name)
    except GitFailed:
        return False
    return True


def is_left_out(git: Git, name: str) -> bool:
    """Return whether git tracks ``name`` and a sparse checkout leaves it out of this worktree. Raises GitFailed."""
    rows = git.names("--literal-pathspecs", "ls-files", "-t", "-z", "--", name)
    return any(row.startswith("S ") for row in rows)


def _escape_name(name: str) -> str:
    """Return the gitignore or gitattributes pattern that matches this one file at the top of a worktree."""
    if not name or name.startswith("/") or re.search(r"""[\s"\\]""", name) or ".." in Path(name).parts:
        raise Refused(f"{name!r} cannot be the name of an instructions file", "liza programs show")
    escaped = re.sub(r"([*?\[\]])", r"\\\1", name)
    return f"/{escaped}"


def _unescape_name(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern.removeprefix("/"))
