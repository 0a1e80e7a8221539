"""ruamel's round trip: slow, and kind to texts that nobody foresaw."""

from __future__ import annotations

import io
from typing import Any

from liza.board.text import parse, yaml_lines
from liza.board.text.parse import Doubt
from liza.board.text.splice import offset_of
from liza.board.text.values import ABSENT, fields, struct_in


def changed(text: str, old: Any, new: Any) -> str:
    """The text with the plain value ``old`` turned into ``new`` in ruamel's own tree. Raises Doubt."""
    from ruamel.yaml import YAML  # slow to import, and seldom needed
    from ruamel.yaml.error import YAMLError

    yaml = YAML(typ="rt", pure=True)
    yaml.Resolver = _words()
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    yaml.allow_duplicate_keys = False
    yaml.explicit_start = text.lstrip("\ufeff").startswith("---")
    offset = offset_of(parse.outline(text))
    offset = 2 if offset is None else offset
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    try:
        data = yaml.load(text.replace("\r\n", "\n"))
        data = _apply(data, old, new)
        out = io.StringIO(newline="")
        yaml.dump(data, out)
    except (YAMLError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise Doubt(f"the round trip failed: {error}") from None
    made = out.getvalue() if text.endswith("\n") else out.getvalue().removesuffix("\n")
    return made.replace("\n", "\r\n") if "\r\n" in text else made


def _words() -> Any:
    """A resolver that leaves plain scalars as they were typed: 12e4567 would come back as infinity."""
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.resolver import VersionedResolver

    class Words(VersionedResolver):
        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is ScalarNode and implicit[0] and value not in parse.NULLS:
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
                data[key] = _apply(data[key], was, now) if was is not ABSENT and key in data else _typed(now)
        return data
    if isinstance(data, list) and isinstance(new, list) and isinstance(old, list) and len(data) == len(old):
        return _apply_list(data, old, new)
    return _typed(new)


def _apply_list(data: list[Any], old: list[Any], new: list[Any]) -> list[Any]:
    for i in range(min(len(old), len(new))):
        if old[i] != new[i]:
            data[i] = _apply(data[i], old[i], new[i])
    for _ in range(len(old) - len(new)):
        data.pop()
    for item in new[len(old) :]:
        data.append(_typed(item))
    return data


def _typed(value: Any) -> Any:
    """A plain value as ruamel should write it: strings quoted, several lines as a block."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, PlainScalarString

    if isinstance(value, str):
        return DoubleQuotedScalarString(value)
    if isinstance(value, int | float):
        return PlainScalarString(yaml_lines.scalar(value))
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return value


def foreign(text: str, kind: Any) -> Any:
    """What stands in a text under keys that the model does not name, with the way to it."""
    return _foreign(parse.whole(text), kind)


def _foreign(plain: Any, kind: Any) -> Any:
    if isinstance(plain, list):
        return [found for item in plain if (found := _foreign(item, kind))]
    if not isinstance(plain, dict):
        return None
    struct = struct_in(kind)
    if struct is None:
        return None
    if getattr(kind, "__origin__", None) is dict:
        return {key: found for key, item in plain.items() if (found := _foreign(item, struct))}
    known = fields(struct)
    found = {key: item for key, item in plain.items() if key not in known}
    return found | {key: inner for key, item in plain.items() if key in known and (inner := _foreign(item, known[key]))}
