"""Change a text by ruamel.yaml's round trip: slow, but it handles any YAML."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, PlainScalarString

from liza.board.text import parse, yaml_lines
from liza.board.text.parse import NeedsSlowPath
from liza.board.text.splice import find_item_offset
from liza.board.text.values import ABSENT, NULLS, find_struct, struct_fields


def round_trip(text: str, old: Any, new: Any) -> str:
    """Return the text with the plain value ``old`` changed to ``new`` in ruamel's tree. Raises NeedsSlowPath."""
    yaml = YAML(typ="rt", pure=True)
    yaml.Resolver = _resolver_class()
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    yaml.allow_duplicate_keys = False
    yaml.explicit_start = text.lstrip("\ufeff").startswith("---")
    offset = find_item_offset(parse.parse_outline(text))
    offset = 2 if offset is None else offset
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    try:
        data = yaml.load(text.replace("\r\n", "\n"))
        data = _apply(data, old, new)
        out = io.StringIO(newline="")
        yaml.dump(data, out)
    except (YAMLError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise NeedsSlowPath(f"the round trip failed: {error}") from None
    dumped = out.getvalue() if text.endswith("\n") else out.getvalue().removesuffix("\n")
    return dumped.replace("\n", "\r\n") if "\r\n" in text else dumped


def _resolver_class() -> Any:
    """Return a resolver that keeps plain scalars as text: 12e4567 would be written back as infinity."""

    class Words(VersionedResolver):
        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is ScalarNode and implicit[0] and value not in NULLS:
                return self.DEFAULT_SCALAR_TAG
            return super().resolve(kind, value, implicit)

    return Words


def _apply(data: Any, old: Any, new: Any) -> Any:
    if isinstance(data, dict) and isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for key in [*before, *(key for key in new if key not in before)]:
            was, now = before.get(key, ABSENT), new.get(key, ABSENT)
            if now is ABSENT:
                data.pop(key, None)
            elif was is ABSENT or was != now or type(was) is not type(now):
                data[key] = _apply(data[key], was, now) if was is not ABSENT and key in data else _to_ruamel(now)
        return data
    if isinstance(data, list) and isinstance(new, list) and isinstance(old, list) and len(data) == len(old):
        return _apply_list(data, old, new)
    return _to_ruamel(new)


def _apply_list(data: list[Any], old: list[Any], new: list[Any]) -> list[Any]:
    for i in range(min(len(old), len(new))):
        if old[i] != new[i]:
            data[i] = _apply(data[i], old[i], new[i])
    for _ in range(len(old) - len(new)):
        data.pop()
    for item in new[len(old) :]:
        data.append(_to_ruamel(item))
    return data


def _to_ruamel(value: Any) -> Any:
    """Return a plain value in ruamel's types, with strings quoted."""
    if isinstance(value, str):
        return DoubleQuotedScalarString(value)
    if isinstance(value, int | float):
        return PlainScalarString(yaml_lines.format_scalar(value))
    if isinstance(value, dict):
        return {key: _to_ruamel(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_ruamel(item) for item in value]
    return value


def find_unknown_keys(text: str, kind: Any) -> Any:
    """Return the values under keys that the model does not have, nested as in the text."""
    return _unknown_below(parse.parse_text(text), kind)


def _unknown_below(plain: Any, kind: Any) -> Any:
    if isinstance(plain, list):
        return [unknown for item in plain if (unknown := _unknown_below(item, kind))]
    if not isinstance(plain, dict):
        return None
    struct = find_struct(kind)
    if struct is None:
        return None
    if getattr(kind, "__origin__", None) is dict:
        return {key: unknown for key, item in plain.items() if (unknown := _unknown_below(item, struct))}
    fields = struct_fields(struct)
    unknown = {key: item for key, item in plain.items() if key not in fields}
    return unknown | {
        key: inner for key, item in plain.items() if key in fields and (inner := _unknown_below(item, fields[key]))
    }
