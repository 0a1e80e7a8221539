"""The record of a running set-up command: what an agent does before its session begins."""

from __future__ import annotations

import msgspec

from liza.model.model import AwareDatetime, FrozenStruct
from liza.model.paths import Paths, agent_of
from liza.programs.session.run_directory import read_struct
from liza.system import atomic


class SetupNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``setup.json`` beside an agent's runs: the set-up for ``run`` began at ``started``."""

    run: str
    started: AwareDatetime


def write_setup_note(paths: Paths, setup: SetupNote) -> None:
    """Record that a set-up runs. Raises OSError, Refused."""
    directory = paths.runs / agent_of(setup.run)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write(directory / "setup.json", msgspec.json.encode(setup) + b"\n")


def remove_setup_note(paths: Paths, agent: str) -> None:
    """Remove the record: the set-up is over. Raises OSError."""
    (paths.runs / agent / "setup.json").unlink(missing_ok=True)


def read_setup_note(paths: Paths, run: str) -> SetupNote | None:
    """Return the set-up that runs for ``run``, or was interrupted. Raises LizaError if the record cannot be read."""
    note = read_struct(paths.runs / agent_of(run) / "setup.json", SetupNote)
    return note if note is not None and note.run == run else None
