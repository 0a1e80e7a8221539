"""The documents below `.liza/specs` that other hosts of a crew need: the goal's page, and those of tasks.

They are files of one clone. On a server they are rows, too: what a change of the board names is saved with it, and each
host brings its files up to date before a session reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from liza.board.contract import Board
from liza.board.revisions import sha
from liza.model.errors import LizaError, NotRegularFile
from liza.model.model import State
from liza.model.paths import Paths
from liza.model.value_classes import decodable
from liza.system import atomic, untrusted_files

_DIRECTORY: Final = ".liza/specs/"
_MAX_SIZE: Final = 1 << 20  # bytes of a document
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\.md")


def update_pages(paths: Paths, board: Board) -> tuple[str, ...]:
    """Bring the documents of this clone up to date, and save those that a person has changed here without a command.

    Of a document that was changed in two places, the saved one counts; this clone's is kept beside it. Return a line
    for each of these. Raises BoardUnavailable, WriteFailed, OSError.
    """
    record, kept = _read_record(paths), []
    pages = board.pages()
    for name, text in sorted(pages.items()):
        if not _NAME.fullmatch(name):
            continue
        path, last = paths.specs / name, record.get(name)
        mine = read_page(path)
        if mine is not None and mine != text and _digest(mine) != last:
            if _digest(text) == last:
                board.write_page(name, mine)
                record[name] = _digest(mine)
                continue
            kept.append(_keep(path, mine))
        if mine != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(path, text.encode())
        record[name] = _digest(text)
    atomic.write(paths.pages_record, msgspec.json.encode(record) + b"\n", sync=False)
    return tuple(f"{path.name} was changed here and on another host: yours is in {path}" for path in kept)


def share_pages(paths: Paths, board: Board, before: State, after: State) -> None:
    """Save the documents that a change names anew, in its transaction: so no host sees a task without its document.

    Raises BoardUnavailable.
    """
    refs = {task.spec_ref for task in after.tasks} - {task.spec_ref for task in before.tasks}
    refs |= {change.spec for change in after.spec_changes[len(before.spec_changes) :]}
    if after.goal.spec_ref != before.goal.spec_ref:
        refs.add(after.goal.spec_ref)
    names = {ref.removeprefix(_DIRECTORY).partition("#")[0] for ref in refs if ref.startswith(_DIRECTORY)}
    for name in sorted(filter(_NAME.fullmatch, names)):
        text = read_page(paths.specs / name)
        if text is not None:
            board.write_page(name, text)


def _keep(path: Path, text: str) -> Path:
    kept = path.with_name(f"{path.stem}.{_digest(text)[:8]}.mine")
    atomic.write(kept, text.encode())
    return kept


def read_page(path: Path) -> str | None:
    """Return the text of a document; None if it is missing, too long, or no text."""
    with suppress(LizaError, OSError, UnicodeDecodeError):
        data = untrusted_files.read_if_exists(path, _MAX_SIZE)
        return None if data is None else data.decode()
    return None


def list_pages(paths: Paths) -> Iterator[tuple[str, str]]:
    """Yield the documents of this clone, without those that Liza itself copies there."""
    for path in sorted(paths.specs.glob("*.md")):
        text = read_page(path)
        if text is not None and _NAME.fullmatch(path.name):
            yield path.name, text


def _digest(text: str) -> str:
    return sha(text.encode())


def _read_record(paths: Paths) -> dict[str, str]:
    try:
        data = untrusted_files.read_record(paths.pages_record)
        record: dict[str, str] = msgspec.json.decode(data, type=decodable(dict[str, str]))
    except (OSError, NotRegularFile, msgspec.DecodeError):
        return {}
    return record
