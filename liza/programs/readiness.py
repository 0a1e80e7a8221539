"""How far a session has come: ready by evidence, still starting, or not going to be ready, and why.

A time-out proves nothing by itself; it only ends the waiting, and what was seen until then says what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from liza.programs import session
from liza.programs.preset import Dialog, Preset
from liza.programs.rundir import RunDir, Sentinel
from liza.programs.session import Ended, Look, Never, Vanished, described

SURE = 0.7
AGREEMENT = 0.1


class Kind(StrEnum):
    """Why a session is not going to be ready."""

    NEVER_STARTED = "never started"
    LOGIN = "login"
    DIALOG = "dialog"
    DEAD = "dead"
    SILENT = "silent"
    BUSY = "busy"


@dataclass(frozen=True)
class Witness:
    """One sign that the program waits for input, and how sure it is, from 0 to 1."""

    source: str
    confidence: float


@dataclass(frozen=True)
class Facts:
    """What was seen of a session. ``since_start`` is seconds of the steady clock; ``tail`` is the end of its output."""

    look: Look
    since_start: float
    timeout: float
    sentinel: Sentinel | None = None
    tail: str = ""
    ready_prompt: str = ""
    login_signs: tuple[str, ...] = ()
    dialogs: tuple[Dialog, ...] = ()
    witnesses: tuple[Witness, ...] = ()


@dataclass(frozen=True)
class Ready:
    """It has read its brief, or waits for input; ``evidence`` names what showed it."""

    evidence: str


@dataclass(frozen=True)
class Starting:
    """Not yet, and nothing speaks against it."""

    why: str


@dataclass(frozen=True)
class NotReady:
    """It is not going to be ready without somebody; ``reason`` is for a person."""

    kind: Kind
    reason: str


def classify(seen: Facts) -> Ready | Starting | NotReady:
    """The first that answers: the sentinel, the end, a program that asks for a person, the screen, the time."""
    if seen.sentinel is not None:
        return Ready(seen.sentinel.evidence)
    if isinstance(seen.look, Ended | Vanished):
        return _over(seen)
    asks = _asks(seen)
    if asks is not None:
        return asks
    if seen.ready_prompt and _prompts(seen):
        return Ready("ready prompt")
    sure = joined(seen.witnesses)
    if sure > SURE:
        sources = ", ".join(one.source for one in seen.witnesses)
        return Ready(f"waits for input ({sources}, {sure:.0%})")
    if seen.since_start <= seen.timeout:
        return Starting("no session yet" if isinstance(seen.look, Never) else "no sign of readiness yet")
    return _late(seen)


def joined(witnesses: Sequence[Witness]) -> float:
    """How sure the witnesses are together: the surest, and a little more when they agree; 0 without any."""
    if not witnesses:
        return 0.0
    surest = max(one.confidence for one in witnesses)
    return min(surest + (AGREEMENT if len(witnesses) > 1 else 0.0), 1.0)


def _over(seen: Facts) -> NotReady:
    if isinstance(seen.look, Ended) and seen.look.error is not None:
        return NotReady(Kind.NEVER_STARTED, seen.look.error)
    how = described(seen.look) if isinstance(seen.look, Ended) else "vanished without an end"
    sign = _sign(seen)
    if sign is not None:
        return NotReady(Kind.LOGIN, f"the program is not logged in ({sign!r}); {how}")
    return NotReady(Kind.DEAD, f"{how} before it had read its brief{_last_words(seen.tail)}")


def _asks(seen: Facts) -> NotReady | None:
    """A program that waits for a person: it will not go on by itself, so there is no use in waiting."""
    for dialog in seen.dialogs:
        if dialog.match in seen.tail:
            return NotReady(Kind.DIALOG, f"the program shows its {dialog.kind} dialog: {dialog.match!r}")
    return None


def _sign(seen: Facts) -> str | None:
    return next((sign for sign in seen.login_signs if sign in seen.tail), None)


def _prompts(seen: Facts) -> bool:
    last = next((line for line in reversed(seen.tail.splitlines()) if line.strip()), "")
    return last.lstrip().startswith(seen.ready_prompt.rstrip())


def _late(seen: Facts) -> NotReady:
    waited = f"after {seen.since_start:.0f} s"
    if isinstance(seen.look, Never):
        return NotReady(Kind.NEVER_STARTED, f"no session {waited}")
    sign = _sign(seen)
    if sign is not None:
        return NotReady(Kind.LOGIN, f"the program is not logged in ({sign!r}) {waited}")
    if not seen.tail.strip():
        return NotReady(Kind.SILENT, f"it lives and has said nothing {waited}")
    return NotReady(Kind.BUSY, f"it lives and talks, and has not read its brief {waited}{_last_words(seen.tail)}")


def _last_words(tail: str) -> str:
    said = [line.strip() for line in tail.splitlines() if line.strip()]
    return f": {said[-1][-200:]}" if said else ""


def gather(run_dir: RunDir, preset: Preset, since_start: float, timeout: float) -> Facts:
    """What can be seen of a session without a terminal: its files. Raises LizaError when one cannot be read."""
    return Facts(
        look=session.look(run_dir.path),
        since_start=since_start,
        timeout=timeout,
        sentinel=run_dir.ready(),
        tail=run_dir.tail(),
        login_signs=preset.login_signs,
        # No dialogs: they need a screen, and what a program prints without one may merely speak of them.
    )
