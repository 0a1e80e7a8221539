"""The server's tables: each error has a status, and each operation its types."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.api import operations
from liza.api.calls import STATUSES, Access, Connection, RequestProblem, invalid_body, problem_of, refuse_web_pages
from liza.api.operations import OPERATIONS
from liza.model import errors
from liza.model.backoff import FIRST_DELAY, MAX_DELAY, restart_delay
from liza.model.errors import LizaError
from liza.system.peers import PeerSession

BY_NAME = {operation.name: operation for operation in OPERATIONS}


def _classes(base: type[LizaError]) -> set[type[LizaError]]:
    return {base}.union(*(_classes(below) for below in base.__subclasses__()))


def test_each_kind_of_error_has_its_status() -> None:
    assert {one.code for one in _classes(LizaError)} == set(STATUSES)


def test_a_problem_repeats_kind_message_and_hint_of_the_command() -> None:
    problem = problem_of(errors.NotOwner("You no longer own this task", "liza task list"))
    assert msgspec.to_builtins(problem) == {
        "type": "urn:liza:problem:not-yours",
        "title": "not yours",
        "status": 403,
        "detail": "You no longer own this task",
        "code": "not-yours",
        "hint": "liza task list",
        "field": "",
    }


@pytest.mark.parametrize(
    ("body", "detail", "field"),
    [
        (b'{"tool": 5, "run_id": "coder-1.7"}', "Expected `str`, got `int`", "$.tool"),
        (b'{"context": {"role": 1}, "tool": "x", "run_id": "coder-1.7"}', "Expected `str | null`", "$.context.role"),
        (b'{"context": {"rule": 1}, "tool": "x", "run_id": "coder-1.7"}', "unknown field `rule`", "$.context"),
        (b'{"tool": "x"}', "missing required field `run_id`", "$"),
        (b"{", "Input data was truncated", "$"),
    ],
)  # fmt: skip
def test_a_wrong_body_names_the_path_of_the_field(body: bytes, detail: str, field: str) -> None:
    request = BY_NAME["authorize"].request
    with pytest.raises(msgspec.DecodeError) as error:
        msgspec.json.decode(body, type=request)
    document = invalid_body(error.value).document
    assert (detail in document.detail, document.field) == (True, field), document


def test_the_document_has_each_operation_once_with_its_checks() -> None:
    document = operations.make_document(OPERATIONS)
    listed = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert sorted(listed) == sorted(BY_NAME)
    assert all(path.startswith("/v1/") or path == "/openapi.json" for path in document["paths"])
    schemas = document["components"]["schemas"]
    requests = {one.request.__name__ for one in OPERATIONS if one.request is not None}
    assert [name for name in requests if schemas[name].get("additionalProperties") is not False] == []


def test_only_requests_that_change_nothing_or_carry_tokens_are_public() -> None:
    public = {name for name, operation in BY_NAME.items() if operation.access is Access.PUBLIC}
    assert public == {"identity", "health", "openapi"}
    assert {operation.access for operation in OPERATIONS if "{run}" in operation.path} <= {Access.RUN, Access.READER}


HOSTS = [
    ("127.0.0.1:80", True),
    ("localhost", True),
    ("LOCALHOST:8080", True),
    ("", False),
    ("127.0.0.1.evil.example", False),
    ("127.0.0.1:80:80", False),
    ("evil.example", False),
    ("localhost\nx", False),
    ("127.0.0.1@evil.example", False),
    ("0.0.0.0:80", False),
]


@pytest.mark.parametrize(("host", "allowed"), HOSTS)
def test_only_a_local_host_name_is_taken_on_the_port(host: str, allowed: bool) -> None:
    assert _is_refused({"host": host}, is_unix=False) is not allowed
    assert _is_refused({"host": host}, is_unix=True) is False
    assert _is_refused({"host": host, "origin": "http://localhost"}, is_unix=True) is True


@given(st.text())
def test_every_origin_is_refused(origin: str) -> None:
    assert _is_refused({"host": "localhost", "origin": origin}, is_unix=False)


def _is_refused(headers: dict[str, str], is_unix: bool) -> bool:
    try:
        refuse_web_pages(Connection(headers, is_unix, None, PeerSession(None)))
    except RequestProblem as problem:
        return problem.document.status == 403
    return False


@given(st.integers(0, 10_000))
def test_a_server_that_keeps_ending_is_started_less_often(failures: int) -> None:
    delay: Any = restart_delay(failures)
    assert 0.0 <= delay <= restart_delay(failures + 1) <= MAX_DELAY
    assert (delay == 0.0) == (failures == 0)
    assert delay == 0.0 or delay >= FIRST_DELAY
