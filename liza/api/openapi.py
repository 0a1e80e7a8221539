"""The OpenAPI document (3.1): from the table of operations, and from the schemas that msgspec makes of the types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from liza import __version__
from liza.api.callers import Access
from liza.api.calls import Operation
from liza.api.problems import PROBLEM_TYPE, Problem, make_problem

REF_TEMPLATE: Final = "#/components/schemas/{name}"
_PROBLEMS: Final[Mapping[str, tuple[str, Problem]]] = {
    "400": (
        "The body is no JSON, has an unknown field, or a value is wrong",
        make_problem(400, "invalid-request", "Expected `str`, got `int`", "", "$.tool"),
    ),
    "401": ("There is no valid bearer token", make_problem(401, "unauthorized", "the request has no bearer token")),
    "403": (
        "The token is that of another run, or the request comes from a web page",
        make_problem(403, "not-yours", "the token is that of coder-1.7, and the request is about coder-2.1"),
    ),
    "404": ("There is no such run", make_problem(404, "unknown-id", "there is no run coder-9.1 in this crew")),
    "408": ("The body did not arrive in time", make_problem(408, "timeout", "the body did not arrive within 20 s")),
    "409": (
        "A rule does not allow it",
        make_problem(409, "refused", "there are uncommitted changes: a.py", "git add -A && git commit"),
    ),
    "410": ("The run is over", make_problem(410, "run-over", "coder-1.7 is over: its end is recorded")),
    "413": ("The body is too large", make_problem(413, "too-large", "the body has more than 1 MB")),
    "415": ("The body is not JSON", make_problem(415, "not-json", "the content type is 'text/plain'")),
    "422": (
        "A value is of its type, and a rule refuses it",
        make_problem(422, "usage", "a report of trade_off needs the details what, why"),
    ),
    "429": (
        "Too many prompts wait",
        make_problem(429, "queue-full", "coder-1 has 1000 messages that it has not read; the limit is 1000"),
    ),
    "503": (
        "The board, git or a lock is not available; try again",
        make_problem(503, "lock-timeout", "state.yaml.lock was not free within 10 s", "liza status"),
    ),
}
_PUBLIC_PROBLEMS: Final = ("400", "403", "503")
_NEEDING_BODY: Final = ("408", "413", "415", "422", "429")
_SECURITY: Final[Mapping[Access, list[dict[str, list[str]]]]] = {
    Access.PUBLIC: [],
    Access.RUN: [{"runToken": []}],
    Access.READER: [{"runToken": []}, {}],
    Access.PERSON: [{}],
}
_ACCESS_TEXTS: Final[Mapping[Access, str]] = {
    Access.PUBLIC: "Needs no token.",
    Access.RUN: "For the run itself: needs its bearer token.",
    Access.READER: "For a run, with its bearer token, or for a person, over the Unix socket.",
    Access.PERSON: "For a person: a process outside every session, over the Unix socket.",
}


def make_document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document of the operations."""
    rows = tuple(operations)
    types = list(dict.fromkeys([Problem, *(type_ for row in rows for type_ in (row.request, row.answer) if type_)]))
    structs = [type_ for type_ in types if isinstance(type_, type) and issubclass(type_, msgspec.Struct)]
    _, components = msgspec.json.schema_components(structs, ref_template=REF_TEMPLATE)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Liza worker API",
            "version": __version__,
            "summary": "What an agent's runtime and Liza tell each other",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://localhost", "description": "The Unix socket .liza/run/api.sock"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "runToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token that POST /v1/identity returned for this run",
                },
            },
        },
    }


def _operation(row: Operation) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.summary,
        "description": _ACCESS_TEXTS[row.access],
        "security": _SECURITY[row.access],
        "responses": {"200": _answer(row), **_problems(row)},
    }
    if "{run}" in row.path:
        run = {"type": "string", "pattern": r"^[a-z][a-z-]{0,40}-\d{1,9}\.\d{1,9}$", "examples": ["coder-1.7"]}
        document["parameters"] = [
            {"name": "run", "in": "path", "required": True, "description": "A run of Liza", "schema": run}
        ]
    if row.is_stream:
        document.setdefault("parameters", []).append(
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "description": "The last event that the runtime has received: the stream goes on behind it",
                "schema": {"type": "string"},
            }
        )
    if row.request is not None:
        document["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(row.request)),
            "content": {"application/json": {"schema": _schema(row.request), "example": _plain(row.request_example)}},
        }
    return document


def _answer(row: Operation) -> dict[str, Any]:
    schema = _schema(row.answer)
    return {
        "description": "Done",
        "content": {row.media_type: {"schema": schema, "example": _plain(row.answer_example)}},
    }


def _problems(row: Operation) -> dict[str, Any]:
    content_of = {
        status: {
            "description": description,
            "content": {PROBLEM_TYPE: {"schema": _schema(Problem), "example": _plain(example)}},
        }
        for status, (description, example) in _PROBLEMS.items()
        if row.request is not None or status not in _NEEDING_BODY
    }
    if row.access is Access.PUBLIC and row.request is None:
        return {name: content for name, content in content_of.items() if name in _PUBLIC_PROBLEMS}
    return content_of


def _schema(type_: type[Any]) -> dict[str, Any]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return {"$ref": REF_TEMPLATE.format(name=type_.__name__)}
    return msgspec.json.schema(type_)


def _plain(value: Any) -> Any:
    """Return an example as JSON values."""
    return msgspec.to_builtins(value)


def format_document(document: Mapping[str, Any]) -> bytes:
    """Return the document as it is served, and as the committed copy has it."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    return text + b"\n"
