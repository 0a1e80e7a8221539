"""When a person looked at a crew last: a file of their own, below the state directory, not on the board."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from liza.crew.crew import Crew
from liza.model.paths import Paths, state_directory
from liza.model.value_classes import AwareDatetime, FrozenStruct, decodable
from liza.system import atomic, untrusted_files
from liza.view.rules.structs import Picture

MAX_BYTES = 1000


class LastVisit(FrozenStruct, frozen=True):
    """The time of the newest picture that the person saw."""

    time: AwareDatetime


def read_seen(crew: Crew) -> datetime | None:
    """Return when the person looked last; None if they never did, or if that cannot be read."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(
            untrusted_files.read(state_file(crew.paths, "seen"), MAX_BYTES), type=decodable(LastVisit)
        ).time
    return None


def write_seen(crew: Crew, picture: Picture) -> None:
    """Record that the person looked now. A state directory that cannot be written costs only the line in History."""
    path = state_file(crew.paths, "seen")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write(path, msgspec.json.encode(LastVisit(picture.time)) + b"\n", label="seen")


def state_file(paths: Paths, kind: str) -> Path:
    """Path of a file of the person about a crew, below the state directory."""
    crew = hashlib.sha256(os.fsencode(paths.root)).hexdigest()[:32]
    return state_directory(os.environ, Path.home()) / kind / f"{crew}.json"
