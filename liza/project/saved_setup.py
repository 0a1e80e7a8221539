"""Keep what the set-up left of an `init` that was refused, for the next try: a set-up can take minutes.

It is below the git directory, with the logs of that try. The next `init` takes it, or removes it.

- The same commit, command and environment: the set-up does not run again.
- Another commit, in which only sources, tests or documents differ: the set-up runs again on what it left, as in the
  worktree of an agent whose inputs changed. It may have built from the sources.
- Anything else: it runs in an empty worktree.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from liza.git import leftovers, reset, slot_setup, slots_directory
from liza.model.configuration import Config
from liza.model.errors import LizaError
from liza.model.value_classes import Value
from liza.project.broken_runs import ProofSlot
from liza.system import atomic, untrusted_files

_DIRECTORY: Final = "liza-init"
_RECORD: Final = "setup.json"
_TREE: Final = "files"


class SavedSetup(Value):
    """What a set-up left: ``inputs`` is the digest of what it ran for, ``commit`` where, ``names`` the untracked names
    after it, ``seconds`` how long it took."""

    inputs: str
    commit: str
    names: tuple[str, ...]
    seconds: float


def saved_directory(root: Path) -> Path:
    """Return the directory of what the last refused `init` left. Raises GitFailed."""
    return slots_directory.find_common_dir(root) / _DIRECTORY


def note(slot: ProofSlot, seconds: float) -> SavedSetup | None:
    """Return what the set-up of a slot left; None if it cannot be kept.

    The repositories of submodules are in the git directory of the slot, which is removed. Raises GitFailed, OSError.
    """
    if reset.may_have_submodules(slot.git):
        return None
    names = tuple(slot_setup.list_untracked(slot.git))
    return SavedSetup(_digest(slot), slot.commit, names, seconds) if names else None


def keep(slot: ProofSlot, kept: SavedSetup) -> None:
    """Move what the set-up left out of a slot that is removed. What cannot be moved is not kept."""
    with suppress(OSError, LizaError):
        forget(slot.root)
        directory = saved_directory(slot.root)
        (directory / _TREE).mkdir(mode=0o700, parents=True)
        for name in kept.names:
            _move(slot.path / name, directory / _TREE / name)
        # Last: without the record, nothing is kept.
        text = msgspec.json.encode({**_fields(kept), "names": [os.fsencode(name).hex() for name in kept.names]})
        atomic.write(directory / _RECORD, text, sync=False)


def restore(slot: ProofSlot) -> SavedSetup | None:
    """Move what was kept into the slot, if the set-up ran for the same inputs; None if nothing was.

    If ``commit`` is that of the slot, the set-up need not run again. Raises GitFailed, OSError.
    """
    kept = _read(slot.root)
    is_same = kept is not None and kept.inputs == _digest(slot)
    try:
        if kept is None or not is_same:
            return None
        for name in kept.names:
            if not os.path.lexists(slot.path / name):
                _move(saved_directory(slot.root) / _TREE / name, slot.path / name)
        return kept
    except OSError:
        slot_setup.remove_untracked(slot.git, ())
        slot_setup.copy_files(slot.root, slot.git, slot.plan.copied_files)
        return None
    finally:
        forget(slot.root)


def keep_logs(root: Path, logs: Sequence[Path]) -> Path | None:
    """Copy the logs of failed commands beside what is kept; return the copy of the last one, None if that failed."""
    copy = None
    with suppress(OSError, LizaError):
        directory = saved_directory(root)
        directory.mkdir(mode=0o700, exist_ok=True)
        for log in logs:
            copy = directory / log.name
            shutil.copyfile(log, copy)
    return copy


def forget(root: Path) -> None:
    """Remove what the last refused `init` left. Idempotent; what cannot be removed stays."""
    with suppress(OSError, LizaError):
        directory = saved_directory(root)
        if directory.is_dir() and not directory.is_symlink():
            leftovers.loosen_permissions(directory)
            shutil.rmtree(directory, ignore_errors=True)


def _read(root: Path) -> SavedSetup | None:
    try:
        fields = msgspec.json.decode(untrusted_files.read_record(saved_directory(root) / _RECORD))
        names = tuple(os.fsdecode(bytes.fromhex(name)) for name in fields["names"])
        return SavedSetup(fields["inputs"], fields["commit"], names, float(fields["seconds"]))
    except (OSError, LizaError, ValueError, KeyError, TypeError, msgspec.DecodeError):
        return None


def _fields(kept: SavedSetup) -> dict[str, str | float]:
    return {"inputs": kept.inputs, "commit": kept.commit, "seconds": kept.seconds}


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def _digest(slot: ProofSlot) -> str:
    """Return a digest of the inputs of the set-up, of the environment in which it runs, and of where."""
    plan = slot.plan
    config: Config = msgspec.structs.replace(
        plan.config, sandbox_setup=plan.setup, sandbox_copy=tuple(plan.copied_files), sandbox_setup_files=()
    )
    inputs = slot_setup.digest_inputs(slot.root, slot.git, config, are_all_inputs=True)
    around = (str(slot.path), plan.environment or "", str(plan.is_full), os.environ.get("PATH", ""))
    return hashlib.sha256("\0".join((inputs, *around)).encode("utf-8", "surrogateescape")).hexdigest()
