"""The OpenAPI document (3.1): from the table of operations, and from the schemas that msgspec makes of the types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from liza import __version__
from liza.api.calls import Access, Operation
from liza.api.problems import PROBLEM_TYPE, Problem

REF_TEMPLATE: Final = "#/components/schemas/{name}"
_PROBLEMS: Final[Mapping[str, str]] = {
    "400": "The body is no JSON, has an unknown field, or a value is wrong",
    "401": "There is no valid bearer token",
    "403": "The token is that of another run, or the request comes from a web page",
    "404": "There is no such run",
    "409": "A rule does not allow it",
    "410": "The run is over",
    "413": "The body is too large",
    "415": "The body is not JSON",
    "422": "A value is of its type, and a rule refuses it",
    "429": "Too many prompts wait",
    "503": "The board, git or a lock is not available; try again",
}
_PUBLIC_PROBLEMS: Final = ("400", "403", "503")
_NEEDING_BODY: Final = ("413", "415", "422", "429")
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
            "content": {"application/json": {"schema": _schema(row.request)}},
        }
    return document


def _answer(row: Operation) -> dict[str, Any]:
    return {"description": "Done", "content": {row.media_type: {"schema": _schema(row.answer)}}}


def _problems(row: Operation) -> dict[str, Any]:
    content_of = {
        status: {"description": description, "content": {PROBLEM_TYPE: {"schema": _schema(Problem)}}}
        for status, description in _PROBLEMS.items()
        if row.request is not None or status not in _NEEDING_BODY
    }
    if row.access is Access.PUBLIC and row.request is None:
        return {name: content for name, content in content_of.items() if name in _PUBLIC_PROBLEMS}
    return content_of


def _schema(type_: type[Any]) -> dict[str, Any]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return {"$ref": REF_TEMPLATE.format(name=type_.__name__)}
    return msgspec.json.schema(type_)
