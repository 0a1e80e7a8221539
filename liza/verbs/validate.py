"""validate: a board against every rule, in a crew or outside."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from liza.board.text import document, parse, values
from liza.board.text.splitter import TABLE_SECTIONS
from liza.crew.crew import find_crew
from liza.rules import invariants, settings
from liza.rules.errors import BoardInconsistent, BoardUnreadable, Missing, UsageError
from liza.rules.model import State
from liza.system import files


def validate(path: Path | None) -> dict[str, Any]:
    """``valid``, ``readable``, every violation, warnings that break no rule, and what comes ``next``.

    Raises NoCrew, Missing, Usage, BoardUnreadable where there is no text to speak of.
    """
    crew = find_crew() if path is None else None
    place = crew.paths.state if crew else _find_board(path or Path())
    text = crew.board.read_text() if crew else _read(place)
    try:
        # In a crew its end may be missing, which the text alone does not tell.
        state = crew.board.read() if crew else document.load_state(text, place.name)
    except BoardInconsistent as broken:
        found = list(_find_unreadable(text)) or [
            _violation_row(place.name, "text", broken.message, "a board that can be read")
        ]
        return _validation_row(place, None, found, [], broken.hint if crew else _repair_command(place))
    violations = [
        _violation_row(one.entry, one.field, one.actual, one.expected) for one in invariants.check_board(state)
    ]
    warnings = [settings.describe_unknown_key(key) for key in document.find_unknown_config(text)]
    return _validation_row(place, state, violations, warnings, _repair_command(place) if violations else "")


def _repair_command(place: Path) -> str:
    return "liza edit" if place.absolute().parent.name == ".liza" else f"$EDITOR {shlex.quote(str(place))}"


def _find_unreadable(text: str) -> Iterator[dict[str, str]]:
    """Every entry whose values no rule can read; nothing where the text is no mapping at all."""
    try:
        plain = parse.parse_text(text)
    except (parse.Unparsable, parse.NeedsSlowPath):
        return
    if not isinstance(plain, dict):
        return
    for section, kind in values.struct_fields(State).items():
        for name, inside, wanted in _entries(section, kind, plain.get(section)):
            try:
                values.from_plain(inside, wanted)
            except msgspec.ValidationError as wrong:
                field, found, sound = values.describe_error(wrong, wanted)
                yield _violation_row(name, field or section, found, sound)


def _entries(section: str, kind: Any, inside: Any) -> list[tuple[str, Any, Any]]:
    """The entries of a section, each with its name and what it has to be; a section without entries is one itself."""
    entry = values.find_struct(kind)
    if inside is None:
        return []
    if isinstance(inside, list) and entry is not None:
        names = [one.get("id") if isinstance(one, dict) else None for one in inside]
        return [(str(name or f"{section}[{at}]"), inside[at], entry) for at, name in enumerate(names)]
    if isinstance(inside, dict) and section in TABLE_SECTIONS:
        return [(name, one, entry) for name, one in inside.items()]
    return [(section, inside, kind)]


def _validation_row(
    place: Path, state: State | None, violations: list[dict[str, str]], warnings: list[str], next_step: str
) -> dict[str, Any]:
    return {
        "path": str(place),
        "valid": not violations,
        "readable": state is not None,
        "tasks": len(state.tasks) if state else None,
        "violations": violations,
        "warnings": warnings,
        "next": next_step,
    }


def _violation_row(entry: str, field: str, found: str, wanted: str) -> dict[str, str]:
    return {"entry": entry, "field": field, "found": found, "wanted": wanted}


def _find_board(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = next((place for place in _board_paths(path) if place.is_file()), None)
    if found is None:
        raise Missing(f"there is no board in {path}", "liza validate path/to/state.yaml")
    return found


def _board_paths(directory: Path) -> Iterator[Path]:
    yield directory / ".liza" / "state.yaml"
    yield directory / "state.yaml"


def _read(place: Path) -> str:
    if place.exists() and not place.is_file():
        raise UsageError(f"{place} is no file", "liza validate path/to/state.yaml")
    try:
        return files.read_limited(place, files.MAX_BOARD_SIZE).decode("utf-8")
    except FileNotFoundError:
        raise Missing(f"there is no file {place}", "liza validate path/to/state.yaml") from None
    except UnicodeDecodeError as wrong:
        raise BoardUnreadable(f"{place} is not UTF-8: {wrong.reason} at byte {wrong.start}", f"file {place}") from None
    except OSError as wrong:
        raise Missing(f"{place} cannot be read: {wrong.strerror}", f"ls -l {place}") from None
