"""Errors of msgspec in plain words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from liza.model.configuration import Config
from liza.model.model import State, Status, Task
from liza.model.type_errors import TypeProblem, describe_decode_error, find_problem
from liza.text.formats import closest_match
from liza.usage.rules.telemetry_rules import Count

TASK = {"id": "t1", "status": "DRAFT", "description": "d", "created": "2026-01-01T00:00:00Z"}


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """A type that allows no other keys."""

    name: str = ""
    mode: Status | None = None


@pytest.mark.parametrize(
    ("kind", "plain", "problem"),
    [
        (Config, {"routing": "frist"}, "routing is 'frist', expected one of first, record; did you mean first?"),
        (Config, {"routing": "zz"}, "routing is 'zz', expected one of first, record"),
        (Config, {"gates": [{"name": 3}]}, "gates[0].name is a whole number, expected a text"),
        (Config, {"slots": 5}, "slots is a whole number, expected a mapping with some of: max, max_bytes"),
        (State, {"goal": {}}, "goal.id is missing, expected a value"),
        (Task, 5, "it is a whole number, expected a mapping"),
        (Task, {**TASK, "created": "now"}, "created is no time, expected a time such as 2026-01-01T12:00:00Z"),
        (Strict, {"nmae": "x"}, "nmae is unknown, expected one of name, mode; did you mean name?"),
        (dict[Status, int], {"DRAUGHT": 1}, "did you mean DRAFT?"),
        (tuple[Strict, ...], [{"mode": "merged!"}], "did you mean MERGED?"),
    ],
)
def test_a_wrong_value_is_described_with_path_and_allowed_values(kind: Any, plain: Any, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(plain, kind)
    described = describe_decode_error(error.value, kind)
    assert problem in described
    assert "`" not in described


def test_every_word_of_a_status_is_listed() -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert({**TASK, "status": "unclamed"}, Task)
    problem = find_problem(error.value, Task)
    assert problem.expected == f"one of {', '.join(Status)}; did you mean UNCLAIMED?"


def test_a_text_that_is_no_json_is_described_by_msgspec() -> None:
    with pytest.raises(msgspec.DecodeError) as error:
        msgspec.json.decode(b"{", type=Config)
    assert describe_decode_error(error.value, Config) == "input data was truncated"


def test_the_closest_word_ignores_case_and_is_returned_as_written() -> None:
    assert closest_match("merged", Status) == Status.MERGED
    assert closest_match("Claim", ["claim", "CLAIMED"]) == "claim"
    assert closest_match("xyz", Status) is None


@pytest.mark.parametrize(
    ("kind", "plain", "problem"),
    [
        (Strict, {"mode": "a\nb"}, "mode is 'a\\nb', expected one of "),
        (bytes, 5, "it is a whole number, expected bytes"),
        (int | None, "x", "it is a text, expected a whole number or nothing"),
        (bool, [], "it is a list, expected true or false"),
        (float, {}, "it is a mapping, expected a number"),
        (list[int], 1.5, "it is a number, expected a list"),
        (str, None, "it is nothing, expected a text"),
        (Strict, {"zzz": 1}, "zzz is unknown, expected one of name, mode"),
        (dict[str, Strict], {"a": {"nmae": 1}}, "expected one of name, mode; did you mean name?"),
        (Count, -1, "it is Expected `int` >= 0, expected a value that can be read"),
    ],
)
def test_each_kind_of_a_wrong_value_has_its_words(kind: Any, plain: Any, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(plain, kind)
    assert problem in describe_decode_error(error.value, kind)


def test_a_problem_without_a_path_is_printed_unchanged() -> None:
    assert str(TypeProblem("", "a", "b")) == "it is a, expected b"
    assert str(TypeProblem("p", "a", "b")) == "p is a, expected b"
    assert describe_decode_error(ValueError("Bad text"), int) == "bad text"
    assert describe_decode_error(ValueError(""), int) == ""
