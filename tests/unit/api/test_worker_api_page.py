"""The examples in `specs/worker-api.md` are requests and answers of the operations that the server has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from liza.api.operations import OPERATIONS

PAGE = Path(__file__).parents[3] / "specs" / "worker-api.md"
JSON_OPERATIONS = {
    f"{row.method} {row.path}": row
    for row in OPERATIONS
    if row.media_type == "application/json" and row.name != "openapi"
}


def read_examples(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each operation of the page with its lines, by their mark."""
    block = text.split("## Each operation\n", 1)[1].split("```\n")[1]
    for line in block.splitlines():
        if line[:2] not in ("> ", "< "):
            name, lines = line, dict[str, str]()
            yield name, lines
        else:
            lines[line[0]] = line[2:]


EXAMPLES = dict(read_examples(PAGE.read_text()))


def test_the_page_has_every_operation() -> None:
    assert list(EXAMPLES) == list(JSON_OPERATIONS)


@pytest.mark.parametrize("name", JSON_OPERATIONS)
def test_the_examples_of_the_page_are_of_the_real_types(name: str) -> None:
    row, lines = JSON_OPERATIONS[name], EXAMPLES[name]
    assert ("<" in lines, ">" in lines) == (True, row.request is not None)
    answer = msgspec.json.decode(lines["<"], type=row.answer)
    # A type of an answer ignores fields that it does not know.
    assert _without_nulls(msgspec.json.decode(lines["<"])) == _without_nulls(msgspec.to_builtins(answer))
    if row.request is not None:
        msgspec.json.decode(lines[">"], type=row.request)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list | tuple) else value
