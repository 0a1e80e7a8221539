"""validate: a board against every rule, in a crew or outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from liza.board import document
from liza.rules import invariants
from liza.rules.errors import BoardInconsistent, Missing, Usage
from liza.rules.model import State
from liza.verbs.crew import find_crew


def validate(path: Path | None) -> dict[str, Any]:
    """``valid``, every violation, and warnings that break no rule. Raises NoCrew, Missing, Usage."""
    place = find_crew().paths.state if path is None else _board_in(path)
    text = _read(place)
    violations: list[dict[str, str]] = []
    warnings: list[str] = []
    try:
        state = document.load(text, place.name)
    except BoardInconsistent as broken:
        violations.append(_said(place.name, "text", broken.message, "a board that can be read"))
        return _told(place, None, violations, warnings)
    violations += [_said(one.entry, one.field, one.found, one.wanted) for one in invariants.check(state)]
    warnings += [f"config.{key} is no setting" for key in document.unknown_config(text)]
    return _told(place, state, violations, warnings)


def _told(place: Path, state: State | None, violations: list[dict[str, str]], warnings: list[str]) -> dict[str, Any]:
    return {
        "path": str(place),
        "valid": not violations,
        "tasks": len(state.tasks) if state else None,
        "violations": violations,
        "warnings": warnings,
    }


def _said(entry: str, field: str, found: str, wanted: str) -> dict[str, str]:
    return {"entry": entry, "field": field, "found": found, "wanted": wanted}


def _board_in(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = next((place for place in _places(path) if place.is_file()), None)
    if found is None:
        raise Missing(f"there is no board in {path}", "liza validate path/to/state.yaml")
    return found


def _places(directory: Path) -> Iterator[Path]:
    yield directory / ".liza" / "state.yaml"
    yield directory / "state.yaml"


def _read(place: Path) -> str:
    try:
        return place.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise Missing(f"there is no file {place}", "liza validate path/to/state.yaml") from None
    except UnicodeDecodeError as wrong:
        raise Usage(f"{place} is not UTF-8: {wrong.reason} at byte {wrong.start}", f"file {place}") from None
    except OSError as wrong:
        raise Missing(f"{place} cannot be read: {wrong.strerror}", f"ls -l {place}") from None
