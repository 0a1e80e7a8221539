"""Task files: the forms of a field, and the ids that are proposed for titles."""

from __future__ import annotations

import pytest

from liza.model.errors import UsageError
from liza.model.paths import check_task_id
from liza.tasks.task import parse_tasks


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        ("scope", "[src/a.py, tests]", "src/a.py, tests"),
        ("scope", "\n  - src/a.py\n  - 1", "src/a.py, 1"),
        ("scope", "src/a.py, tests", "src/a.py, tests"),
        ("done_when", "[a passes, b passes]", "a passes\nb passes"),
        ("desc", "[one, two]", "one\ntwo"),
        ("depends", "[b, c]", ("b", "c")),
        ("depends_on", "b, c", ("b", "c")),
    ],
)
def test_a_field_is_a_text_or_a_list(field: str, text: str, expected: object) -> None:
    (task,) = parse_tasks(f"id: a\n{field}: {text}\n")
    name = {"desc": "description", "depends": "depends_on"}.get(field, field)
    assert getattr(task, name) == expected


@pytest.mark.parametrize("text", ["scope: [[a]]", "scope: {a: b}", "spec_ref: [a, b]", "depends: {a: b}"])
def test_a_field_of_another_form_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(UsageError, match=r"task 1: .* is .*, expected a"):
        parse_tasks(f"id: a\n{text}\n")


@pytest.mark.parametrize(("text", "proposed"), [("Grüße", "gruesse"), ("an id", "an-id"), ("Straße-ö", "strasse-oe")])
def test_a_refused_id_comes_with_its_form_in_ascii(text: str, proposed: str) -> None:
    with pytest.raises(UsageError, match=f"is not a task id: .*; {proposed} is one$"):
        check_task_id(text)
