"""Make the git directory of a run, which its box sees instead of the repository's own.

The slot stays an ordinary linked worktree. In the box the file ``.git`` of the slot names this directory. It has an
empty object store that borrows from the repository, and copies of refs, HEAD, index and configuration: the run can
commit, rebase, stash and collect garbage, and changes nothing of the repository. One git process reads the
configuration; everything else is copied, so that the size of the repository hardly matters.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.box.slot_directories import remove_tree
from liza.git.git_config import config_files, git_dirs
from liza.git.runner import COMMIT, Git
from liza.model.errors import GitFailed, NotRegularFile, Refused
from liza.model.paths import BoxPaths
from liza.system import atomic, crash_points, untrusted_files

REMOTE = "liza"
"""Name of the repository in a run: after ``git fetch liza``, ``liza/integration`` is the branch as it is now."""
BASE_PREFIX = "refs/liza/base/"
"""Each run has a ref of the repository here: it keeps what the run borrows, until the run is imported and over."""

_SAVED_DIRECTORIES = ("modules", "lfs")
"""Directories of a run's git that its next session gets: repositories of submodules, and files of LFS."""
_NOT_COPIED = re.compile(r"(commondir|gitdir|locked|config|config\.worktree|logs|modules|lfs|liza.*|.*\.lock)")
"""Entries of the git directory of a slot that a run does not get."""
_PRIVATE_REFS = re.compile(rb"refs/(liza|stash|bisect|worktree|rewritten)(/|$)")
_REF_LINE = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (refs/\S+)")
_OWN_SETTINGS = re.compile(rf"core\.(worktree|bare)|extensions\.worktreeconfig|remote\.{REMOTE}\..*", re.DOTALL)
"""Settings that name the place of the repository, or that a run has of its own."""
_MARK = "liza-boxed"
"""File in the git directory of a slot that names the run whose own git directory counts."""


def make_run_git(git: Git, box: BoxPaths, run: str = "", *, salvages_of: str = "") -> None:
    """Make the git directory of a run, or of the project's commands without ``run``, from that of its slot.

    A further session of the same task keeps the directory: stashes, branches, and an operation in progress. ``git`` is
    that of the slot; no process of the slot runs. ``salvages_of``: a task whose saved work the run sees. A killed call
    is completed by the next one. Raises Refused for a repository with reftables, GitFailed, OSError.
    """
    admin, common = git_dirs(git)
    if (common / "reftable").is_dir():
        raise Refused(
            f"{common} stores refs as reftables, which Liza cannot copy into a box",
            "git refs migrate --ref-format=files",
        )
    box.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    new, old = _beside(box, "new"), _beside(box, "old")
    _complete_earlier(box, new, old)
    refs = read_refs(common, salvages_of)
    earlier = read_mark(admin)
    if run and earlier is not None and _is_usable(box.git, common):
        _refresh_refs(box.git, refs, _branch_of(admin))
        _copy_names(common, box.git)
    else:
        _make_directory(git, new, refs)
        _add_set_up(box, new)
        crash_points.point("run-git", "written")
        _replace_directory(box, new, old)
    atomic.write(box.git_pointer, os.fsencode(f"gitdir: {box.git}\n"), 0o644, sync=False)
    if run:
        _keep_base(common, box.git, run, refs)
        crash_points.point("run-git", "based")
        atomic.write(admin / _MARK, run.encode(), sync=False)
        if earlier is not None and earlier != run:
            remove_base(git, earlier)


def read_mark(admin: Path) -> str | None:
    """Return the run whose git directory has what is not in the slot's own one yet; None without one.

    ``admin``: the git directory of the slot, which no box can write. Raises OSError, NotRegularFile.
    """
    text = untrusted_files.read_if_exists(admin / _MARK, untrusted_files.MAX_RECORD_SIZE)
    return None if text is None else text.decode("utf-8", "replace").strip()


def leave_run_git(git: Git) -> None:
    """Record that the slot's own git directory counts again: what the run made was imported or saved. Idempotent.

    Repositories of submodules stay where they are. Raises GitFailed, OSError.
    """
    admin = git_dirs(git)[0]
    run = read_mark(admin)
    if run is not None:
        remove_base(git, run)
        (admin / _MARK).unlink(missing_ok=True)


def update_run_git(git: Git, box: BoxPaths) -> None:
    """Copy HEAD, the index, ignored names and attributes again: another commit is checked out, or a brief is hidden.

    No process of the slot runs. What the set-up wrote into the configuration stays. Raises OSError.
    """
    admin, common = git_dirs(git)
    _copy_names(common, box.git)
    for name in ("index", "HEAD"):
        remove_tree(box.git / name)  # a link would be followed
        if (admin / name).is_file():
            shutil.copy2(admin / name, box.git / name)


def record_set_up(git: Git, box: BoxPaths) -> None:
    """Record the configuration and the hooks of git that the set-up added: later git directories of the slot get them.

    No process of the slot runs. Raises GitFailed, OSError.
    """
    forget_set_up(box)
    text = untrusted_files.read_if_exists(box.git / "config") or b""
    rows = git.names("config", "--list", "-z", "--no-includes", "--file", "-", stdin=text)
    settings = [(key, value if mark else None) for key, mark, value in (row.partition("\n") for row in rows)]
    usual = _read_settings(git)
    added = [row for row in settings if row not in usual and not _OWN_SETTINGS.fullmatch(row[0])]
    record = _set_up_record(box)
    (record / "hooks").mkdir(mode=0o700, parents=True)
    (record / "config").write_bytes(os.fsencode("".join(_format_setting(key, value) for key, value in added)))
    hooks = box.git / "hooks"
    for hook in os.scandir(hooks) if hooks.is_dir() and not hooks.is_symlink() else ():
        if hook.is_file(follow_symlinks=False):
            with suppress(NotRegularFile):
                atomic.write(record / "hooks" / hook.name, untrusted_files.read_record(hook.path), 0o755, sync=False)


def forget_set_up(box: BoxPaths) -> None:
    """Remove what ``record_set_up`` recorded: the set-up runs again. Idempotent. Raises OSError."""
    remove_tree(_set_up_record(box))


def _set_up_record(box: BoxPaths) -> Path:
    """Directory that no box can write."""
    return box.directory / "set-up"


def remove_base(git: Git, run: str) -> None:
    """Delete the ref that keeps what a run borrows. Idempotent. Raises GitFailed."""
    git.out("update-ref", "-d", f"{BASE_PREFIX}{run}")


def format_alternates(common: Path) -> bytes:
    """Return the file with which an object store borrows from that of the repository."""
    return os.fsencode(f"{common / 'objects'}\n")


def find_stores(common: Path) -> tuple[Path, ...]:
    """Return the object stores that the repository itself borrows from: a box has to show them. Raises OSError."""
    stores: list[Path] = []
    pending = [common / "objects"]
    while pending and len(stores) < 10:
        objects = pending.pop()
        text = untrusted_files.read_if_exists(objects / "info" / "alternates") or b""
        for line in text.splitlines():
            if line and not line.startswith((b"#", b'"')):
                store = (objects / os.fsdecode(line)).resolve()
                if store not in stores and store.is_dir():
                    stores.append(store)
                    pending.append(store)
    return tuple(stores)


def read_refs(common: Path, salvages_of: str = "") -> dict[bytes, bytes]:
    """Return the refs of a repository and their values, without Liza's own: a commit id, or ``ref: `` and a name.

    ``salvages_of``: a task whose salvages are included. Raises OSError, NotRegularFile.
    """
    own = f"refs/liza/salvage/{salvages_of}/".encode() if salvages_of else b"\0"
    refs = _read_all_refs(common)
    return {name: value for name, value in refs.items() if not _PRIVATE_REFS.match(name) or name.startswith(own)}


def _read_all_refs(git_dir: Path) -> dict[bytes, bytes]:
    packed = untrusted_files.read_if_exists(git_dir / "packed-refs", MAX_REFS) or b""
    lines = (_REF_LINE.fullmatch(line) for line in packed.split(b"\n"))
    refs = {line[2]: line[1] for line in lines if line is not None}
    refs.update(_read_loose(git_dir))
    return refs


def _beside(box: BoxPaths, suffix: str) -> Path:
    return box.git.with_name(f"{box.git.name}.{suffix}")


def _complete_earlier(box: BoxPaths, new: Path, old: Path) -> None:
    """Complete what a killed call left: the directory of the last run is in its place, with what is kept."""
    if not os.path.lexists(box.git) and old.is_dir() and not old.is_symlink():
        old.rename(box.git)
    if box.git.is_symlink() or not box.git.is_dir():
        remove_tree(box.git)
    for name in _SAVED_DIRECTORIES:
        path = new / name
        if new.is_symlink() or path.is_symlink() or not path.is_dir() or os.path.lexists(box.git / name):
            continue
        box.git.mkdir(mode=0o700, exist_ok=True)
        path.rename(box.git / name)
    for path in (new, old, *(box.git / name for name in _SAVED_DIRECTORIES if (box.git / name).is_symlink())):
        remove_tree(path)


def _is_usable(git_dir: Path, common: Path) -> bool:
    """Return whether the directory of an earlier run borrows from this repository and has a commit at HEAD.

    Read by hand: an agent wrote it.
    """
    try:
        parts = ("objects", "objects/info", "info", "refs")
        names = (git_dir, *(git_dir / name for name in parts))
        if any(path.is_symlink() or not path.is_dir() for path in names):
            return False
        if untrusted_files.read_record(git_dir / "objects" / "info" / "alternates") != format_alternates(common):
            return False
        head = untrusted_files.read_record(git_dir / "HEAD").strip().decode("ascii", "replace")
        ref = head.removeprefix("ref: ")
        return COMMIT.fullmatch(head) is not None or (ref != head and read_tip(git_dir, ref) is not None)
    except (OSError, NotRegularFile, GitFailed):
        return False


def _make_directory(git: Git, new: Path, refs: Mapping[bytes, bytes]) -> None:
    admin, common = git_dirs(git)
    new.mkdir(mode=0o700)
    _copy_entries(admin, new)
    (new / "info").mkdir(exist_ok=True)
    for name in ("info", "pack"):
        (new / "objects" / name).mkdir(parents=True)
    (new / "objects" / "info" / "alternates").write_bytes(format_alternates(common))
    _write_refs(new, refs)
    (new / "config").write_bytes(os.fsencode(_format_config(common, _read_settings(git))))
    _copy_names(common, new)
    _copy_hooks(common, new)


def _add_set_up(box: BoxPaths, new: Path) -> None:
    """Add what the set-up of the slot configured."""
    record = _set_up_record(box)
    if record.is_dir():
        with (new / "config").open("ab") as file:
            file.write((record / "config").read_bytes())
        shutil.copytree(record / "hooks", new / "hooks", dirs_exist_ok=True)


def _branch_of(admin: Path) -> bytes:
    """Return the ref that HEAD of a slot names; empty if HEAD is detached."""
    head = untrusted_files.read_record(admin / "HEAD").strip()
    return head.removeprefix(b"ref: ") if head.startswith(b"ref: ") else b""


def _refresh_refs(git_dir: Path, refs: Mapping[bytes, bytes], own: bytes) -> None:
    """Give the refs of a further session the values that they have now. Its own branch, and what only the run has,
    stay as they are. Raises OSError, NotRegularFile."""
    present = _read_all_refs(git_dir)
    present.update((name, value) for name, value in _with_remote(refs).items() if name != own)
    lines = _format_packed(present)
    atomic.write(git_dir / "packed-refs", lines, 0o644, sync=False)
    # Until they are removed the loose refs have the values of the last session, which the next call finds again.
    for entry in os.scandir(git_dir / "refs"):
        remove_tree(Path(entry.path))
    _write_symbolic(git_dir, present)


def _replace_directory(box: BoxPaths, new: Path, old: Path) -> None:
    """Put the new directory in the place of the last one, and take over what is kept."""
    for name in _SAVED_DIRECTORIES:
        with suppress(FileNotFoundError):
            (box.git / name).rename(new / name)
    crash_points.point("run-git", "saved")
    with suppress(FileNotFoundError):
        box.git.rename(old)
    crash_points.point("run-git", "retired")
    new.rename(box.git)
    crash_points.point("run-git", "renamed")
    remove_tree(old)


def _copy_entries(admin: Path, new: Path) -> None:
    """Copy HEAD, index, sparse checkout and an operation in progress. The times stay: git compares them with files."""
    for entry in os.scandir(admin):
        if _NOT_COPIED.fullmatch(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.copytree(entry.path, new / entry.name, symlinks=True)
        elif entry.is_file(follow_symlinks=False):
            shutil.copy2(entry.path, new / entry.name)


def _write_refs(new: Path, refs: Mapping[bytes, bytes]) -> None:
    """Write refs as packed ones, symbolic ones as files. The branches are those of the remote, too."""
    rows = _with_remote(refs)
    (new / "packed-refs").write_bytes(_format_packed(rows))
    _write_symbolic(new, rows)


def _with_remote(refs: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    branches = {name: value for name, value in refs.items() if name.startswith(b"refs/heads/")}
    remote = f"refs/remotes/{REMOTE}/".encode()
    return {
        **refs,
        **{
            remote + name.removeprefix(b"refs/heads/"): value
            for name, value in branches.items()
            if not value.startswith(b"ref: ")
        },
    }


def _format_packed(refs: Mapping[bytes, bytes]) -> bytes:
    rows = (refs[name] + b" " + name + b"\n" for name in sorted(refs) if not refs[name].startswith(b"ref: "))
    return b"# pack-refs with: sorted \n" + b"".join(rows)


def _write_symbolic(git_dir: Path, refs: Mapping[bytes, bytes]) -> None:
    """Write the symbolic refs, and the directory without which git takes ``git_dir`` for none."""
    (git_dir / "refs" / "heads").mkdir(parents=True, exist_ok=True)
    for name, value in refs.items():
        if value.startswith(b"ref: "):
            path = git_dir / os.fsdecode(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(value + b"\n")


def _read_loose(common: Path) -> Iterator[tuple[bytes, bytes]]:
    pending = [b"refs"]
    root = os.fsencode(common)
    while pending:
        directory = pending.pop()
        try:
            entries = list(os.scandir(os.path.join(root, directory)))  # noqa: PTH118
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            name = directory + b"/" + entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(name)
            elif not name.endswith(b".lock"):
                with suppress(FileNotFoundError, NotRegularFile):
                    value = untrusted_files.read_record(os.fsdecode(entry.path)).strip()
                    if value.startswith(b"ref: ") or COMMIT.fullmatch(value.decode("ascii", "replace")):
                        yield name, value


def _copy_names(common: Path, target: Path) -> None:
    """Copy what all worktrees share: names that git ignores, attributes, the limit of a shallow clone.

    No link is followed that a run made.
    """
    info = target / "info"
    if info.is_symlink() or not info.is_dir():
        remove_tree(info)
        info.mkdir()
    for name in ("info/exclude", "info/attributes", "shallow"):
        path = target / name
        remove_tree(path)
        if (common / name).is_file():
            shutil.copy2(common / name, path)


def _copy_hooks(common: Path, new: Path) -> None:
    hooks = new / "hooks"
    hooks.mkdir()
    for hook in (common / "hooks").iterdir() if (common / "hooks").is_dir() else ():
        if hook.suffix != ".sample" and hook.is_file():
            shutil.copy2(hook, hooks / hook.name)


def _read_settings(git: Git) -> list[tuple[str, str | None]]:
    """Return the settings of the repository and of the slot, with those that a condition on their place includes.

    A value of None is a setting without one, which is true. Raises GitFailed.
    """
    plain = git.with_git_dir(git.directory, *git_dirs(git))
    fields = plain.names("config", "--list", "--includes", "--show-scope", "--show-origin", "-z")
    rows = list(zip(fields[::3], fields[1::3], (field.partition("\n") for field in fields[2::3]), strict=True))
    own_files = {f"file:{path}" for path in config_files(plain)}
    # A condition such as includeIf.gitdir is not met in the directory of a run.
    has_condition = any(key.startswith("includeif.") for _, _, (key, _, _) in rows)
    return [
        (key, value if mark else None)
        for scope, origin, (key, mark, value) in rows
        if scope in ("local", "worktree") or (has_condition and scope == "global" and origin not in own_files)
        if not _OWN_SETTINGS.fullmatch(key) and not key.startswith(("includeif.", "include."))
    ]


def _format_config(common: Path, settings: Sequence[tuple[str, str | None]]) -> str:
    """Return the text of the configuration of a run. Each setting has its section: repeated sections are valid."""
    own = (
        ("core.bare", "false"),
        (f"remote.{REMOTE}.url", str(common)),
        (f"remote.{REMOTE}.fetch", f"+refs/heads/*:refs/remotes/{REMOTE}/*"),
    )
    return "".join(_format_setting(key, value) for key, value in (*settings, *own))


def _format_setting(key: str, value: str | None) -> str:
    section, _, rest = key.partition(".")
    subsection, dot, name = rest.rpartition(".")
    header = f'[{section} "{_escape(subsection)}"]' if dot else f"[{section}]"
    if value is None:
        return f"{header}\n\t{name}\n"
    text = _escape(value).replace("\n", "\\n").replace("\t", "\\t").replace("\b", "\\b")
    return f'{header}\n\t{name} = "{text}"\n'


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _keep_base(common: Path, git_dir: Path, run: str, refs: Mapping[bytes, bytes]) -> None:
    """Write the ref that keeps what the run borrows: the commit at which it starts. Raises OSError."""
    head = untrusted_files.read_record(git_dir / "HEAD").strip()
    commit = refs.get(head.removeprefix(b"ref: "), b"") if head.startswith(b"ref: ") else head
    if not COMMIT.fullmatch(commit.decode("ascii", "replace")):
        return  # before the first commit nothing is borrowed
    path = common / BASE_PREFIX / run
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, commit + b"\n", 0o644, sync=False)


MAX_REFS: Final = 64 << 20
"""Maximum size of the packed refs of a repository, in bytes."""


class ImportRefused(GitFailed):
    """What a run made cannot be imported: it is damaged, invalid or too large. Nothing was changed. Exit code 3."""

    code = "import-refused"


def read_tip(git_dir: Path, ref: str) -> str | None:
    """Return the commit id that a ref of a run names, unchecked; None without that ref.

    No git runs, and no link is followed. Raises ImportRefused if the ref has another value.
    """
    try:
        value = untrusted_files.read_below(git_dir, ref, 128)
        if value is None:
            packed = untrusted_files.read_below(git_dir, "packed-refs", MAX_REFS) or b""
            match = re.search(rb"(?m)^([0-9a-f]+) " + re.escape(ref.encode()) + rb"$", packed)
            value = match[1] if match is not None else None
    except (OSError, NotRegularFile) as error:
        raise ImportRefused(
            f"{ref} of {git_dir} cannot be read: {error}", shlex.join(["ls", "-lR", str(git_dir / "refs")])
        ) from error
    if value is None:
        return None
    text = value.decode("ascii", "replace").strip()
    if not COMMIT.fullmatch(text):
        raise ImportRefused(f"{ref} of {git_dir} is {text[:60]!r}, not a commit", f"git update-ref {ref} HEAD")
    return text
