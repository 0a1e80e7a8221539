"""validate: check a board against every rule, in a crew or outside."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from liza.board.last_copy import find_age
from liza.board.presence import find_board_path
from liza.board.text import document, parse, values
from liza.board.text.splitter import TABLE_SECTIONS
from liza.config.rules import settings
from liza.crew.crew import find_crew
from liza.model import invariants
from liza.model.errors import BoardInconsistent, BoardUnreadable, Missing, UsageError
from liza.model.model import State
from liza.model.type_errors import find_problem
from liza.system import files, untrusted_files
from liza.tasks import archive


def validate(path: Path | None) -> dict[str, Any]:
    """Return ``valid``, ``readable``, every violation, warnings that break no rule, and the ``next`` command.

    ``tasks`` and ``archived`` are the numbers of tasks that were checked, on the board and in the archive. Raises
    NoCrew, Missing, UsageError, BoardUnreadable if the text cannot be read or decoded.
    """
    crew = find_crew() if path is None else None
    board_path = find_board_path(crew.paths) if crew else _find_board(path or Path())
    text = crew.board.read_text() if crew else _read(board_path)
    try:
        # In a crew, reading through the board also detects a truncated end, which the text alone does not show.
        # As written: a setting that does not count is a violation too.
        state = crew.board.read_as_written() if crew else document.load_state(text, board_path.name)
    except BoardInconsistent as error:
        violations = list(_find_unreadable(text)) or [
            _violation_row(board_path.name, "text", error.message, "a board that can be read")
        ]
        return _validation_row(board_path, None, violations, [], error.hint if crew else _repair_command(board_path))
    violations = [
        _violation_row(violation.entry, violation.field, violation.actual, violation.expected)
        for violation in invariants.check_board(state)
    ]
    command = _repair_command(board_path) if violations else ""
    has_archive = crew is not None and find_age(crew.board) is None  # A last copy has no archive.
    for fault in archive.find_faults(crew.board, state) if crew is not None and has_archive else ():
        violations.append(_violation_row(fault.entry, fault.field, fault.actual, fault.expected))
        command = command or fault.next
    warnings = [settings.describe_unknown_key(key) for key in document.find_unknown_config(text)]
    archived = state.archived.total if has_archive else 0
    return {**_validation_row(board_path, state, violations, warnings, command), "archived": archived}


def _repair_command(path: Path) -> str:
    return "liza edit" if path.absolute().parent.name == ".liza" else f"$EDITOR {shlex.quote(str(path))}"


def _find_unreadable(text: str) -> Iterator[dict[str, str]]:
    """Entries with values of the wrong type; none if the text is not a mapping at all."""
    try:
        plain = parse.parse_text(text)
    except (parse.Unparsable, parse.NeedsSlowPath):
        return
    if not isinstance(plain, dict):
        return
    for section, kind in values.struct_fields(State).items():
        for name, value, expected in _entries(section, kind, plain.get(section)):
            try:
                values.from_plain(value, expected)
            except msgspec.ValidationError as error:
                problem = find_problem(error, expected)
                yield _violation_row(name, problem.path or section, problem.actual, problem.expected)


def _entries(section: str, kind: Any, value: Any) -> list[tuple[str, Any, Any]]:
    """Entries of a section: name, value and expected type; a section without entries counts as one entry."""
    entry_type = values.find_struct(kind)
    if value is None:
        return []
    if isinstance(value, list) and entry_type is not None:
        names = [entry_value.get("id") if isinstance(entry_value, dict) else None for entry_value in value]
        return [(str(name or f"{section}[{index}]"), value[index], entry_type) for index, name in enumerate(names)]
    if isinstance(value, dict) and section in TABLE_SECTIONS:
        return [(name, entry_value, entry_type) for name, entry_value in value.items()]
    return [(section, value, kind)]


def _validation_row(
    path: Path, state: State | None, violations: list[dict[str, str]], warnings: list[str], next_step: str
) -> dict[str, Any]:
    return {
        "path": str(path),
        "valid": not violations,
        "readable": state is not None,
        "tasks": len(state.tasks) if state else None,
        "archived": None,
        "violations": violations,
        "warnings": warnings,
        "next": next_step,
    }


def _violation_row(entry: str, field: str, actual: str, expected: str) -> dict[str, str]:
    return {"entry": entry, "field": field, "found": actual, "wanted": expected}


def _find_board(path: Path) -> Path:
    if not path.is_dir():
        return path
    board_path = next((candidate for candidate in _board_paths(path) if candidate.is_file()), None)
    if board_path is None:
        raise Missing(f"there is no board in {path}", "liza validate path/to/state.yaml")
    return board_path


def _board_paths(directory: Path) -> Iterator[Path]:
    yield directory / ".liza" / "state.yaml"
    yield directory / "state.yaml"


def _read(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file", "liza validate path/to/state.yaml")
    try:
        return untrusted_files.read(path, files.MAX_BOARD_SIZE, follow_links=True).decode("utf-8")
    except FileNotFoundError:
        raise Missing(f"there is no file {path}", "liza validate path/to/state.yaml") from None
    except UnicodeDecodeError as error:
        raise BoardUnreadable(f"{path} is not UTF-8: {error.reason} at byte {error.start}", f"file {path}") from None
    except OSError as error:
        raise Missing(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None
