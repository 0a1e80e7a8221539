"""``sidecar.json``: what the sidecar of a run starts and how, written before the sidecar is started."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liza.model.model import FrozenStruct
from liza.programs.presets.acp_settings import AcpSettings
from liza.programs.session.run_directory import SIDECAR_FILE, read_struct
from liza.system import atomic


class SidecarOrder(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``argv`` starts the program, in ``cwd``, with the variables of ``env`` beside the sidecar's (None: without
    it). ``conversation``: the id of an earlier one to load, or None.

    ``silence_limit``: seconds without an update after which a running turn counts as broken.
    """

    program: str
    argv: tuple[str, ...]
    cwd: str
    acp: AcpSettings
    env: dict[str, str | None] = msgspec.field(default_factory=dict)
    conversation: str | None = None
    silence_limit: float = 300.0


def write_order(run_dir: Path, order: SidecarOrder) -> None:
    """Write the order. Raises OSError."""
    atomic.write(run_dir / SIDECAR_FILE, msgspec.json.encode(order) + b"\n")


def read_order(run_dir: Path) -> SidecarOrder | None:
    """Return the order; None if the run has no sidecar. Raises LizaError if it cannot be read."""
    return read_struct(run_dir / SIDECAR_FILE, SidecarOrder)
