"""What a person writes for a program: ``NAME[@MODEL][:acp|:headless|:COMMAND]``. Pure.

A model may contain ``:`` and ``/``, as in ``NAME@local/model:8b``: only the words ``acp`` and ``headless`` at its
end are no part of it.
"""

from __future__ import annotations

from enum import StrEnum

from liza.model.errors import UsageError
from liza.model.value_classes import Value, replace

PROGRAMS_COMMAND = "liza programs list"
MODEL = "{model}"
"""The placeholder of a row for the model that a person names."""


class Transport(StrEnum):
    """How a session without a terminal is driven: ``via`` is the default, ``NAME:acp`` or ``NAME:headless`` selects."""

    HEADLESS = "headless"
    ACP = "acp"


class ProgramSpec(Value):
    """The parts of a spec. ``command`` is None without one; the other texts are empty or None if they are not given."""

    name: str
    model: str = ""
    transport: Transport | None = None
    command: str | None = None

    def __str__(self) -> str:
        model = f"@{self.model}" if self.model else ""
        transport = f":{self.transport}" if self.transport else ""
        command = "" if self.command is None else f":{self.command}"
        return f"{self.name}{model}{transport}{command}"


def parse_spec(text: str) -> ProgramSpec:
    """Return the parts of a spec. Raises UsageError if it names no program, or no model after ``@``."""
    spec = text.strip()
    end = min((at for at in map(spec.find, "@:") if at >= 0), default=len(spec))
    name, mark, rest = spec[:end].strip(), spec[end : end + 1], spec[end + 1 :]
    if not name:
        raise UsageError(f"--program {text!r} names no program" if spec else "the program is empty", PROGRAMS_COMMAND)
    if mark == ":":
        transport = _find_transport(rest)
        return ProgramSpec(name, transport=transport, command=rest if transport is None else None)
    if not mark:
        return ProgramSpec(name)
    model, _, last = rest.rpartition(":")
    transport = _find_transport(last) if model or rest.startswith(":") else None
    chosen = (rest if transport is None else model).strip()
    _check_model(spec, name, chosen)
    return ProgramSpec(name, chosen, transport)


def add_model(spec: str, model: str) -> str:
    """Return the spec with this model instead of its own. Raises UsageError."""
    chosen = model.strip()
    parts = parse_spec(spec)
    _check_model(f"{spec}@{model}", parts.name, chosen)
    return str(replace(parts, model=chosen))


def _find_transport(word: str) -> Transport | None:
    return next((transport for transport in Transport if transport == word.strip()), None)


def _check_model(spec: str, name: str, model: str) -> None:
    if not model:
        raise UsageError(f"{spec!r} names no model after @", f"liza programs show {name}")
    if model.startswith("-") or not model.isprintable():
        raise UsageError(f"{model!r} is no name of a model", f"liza programs show {name}")
