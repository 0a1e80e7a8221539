"""The usage of a session, read from its program's machine-readable output. Only reported figures, no estimates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from liza.model.errors import NotRegularFile
from liza.model.spending import TokenUsage
from liza.model.value_classes import Value, replace
from liza.programs.presets.preset import ConversationLogFormat, TokenPaths, UsageFormat
from liza.system import untrusted_files
from liza.usage.rules.telemetry_rules import limited_name

_ID = re.compile(r"[A-Za-z0-9][\w.:-]{0,127}", re.ASCII)
_LARGEST = 1 << 62
_MAX_BYTES = 64 << 20
"""Maximum bytes of output that are read; the shim cuts the log at that size."""
_DEEP_NESTING_COST = 1 << 20
"""Cost of a too deeply nested document against the limit _MAX_BYTES, in characters."""


class ReportedUsage(Value):
    """The usage of a session, and its parts by model as far as they are known."""

    used: TokenUsage
    models: Mapping[str, TokenUsage] = {}

    def __add__(self, other: ReportedUsage) -> ReportedUsage:
        models = dict(self.models)
        for model, used in other.models.items():
            add_to_model(models, model, used)
        return ReportedUsage(self.used + other.used, models)


def add_to_model(models: dict[str, TokenUsage], model: str, used: TokenUsage) -> None:
    """Add the usage of a model; of too many models, to OTHER: an agent can write the names."""
    key = limited_name(models, model)
    models[key] = models[key] + used if key in models else used


def read_usage(form: UsageFormat, output: Path) -> ReportedUsage | None:
    """Return the usage that the program reported; None if there is no report, or it cannot be read."""
    if not (form.input or form.output or form.cost or form.pattern):
        return None
    text = _read_output(output.parent / form.file if form.file else output)
    if text is None:
        return None
    if form.form == "text":
        figures = [ReportedUsage(used) for used in usages_of_text(form, text)]
    else:
        objects = _parse_objects(form, text)
        figures = [used for event in objects if (used := report_of_object(form, event)) is not None]
    return combine_usage(form, figures) if figures else None


def read_session_id(form: UsageFormat, output: Path) -> str | None:
    """Return the id of the conversation, to resume it; None if it was not reported."""
    text = _read_output(output) if form.session else None
    for event in _parse_objects(form, text) if text is not None else ():
        session = find_session_id(form, event)
        if session is not None:
            return session
    return None


def find_session_id(form: UsageFormat, event: object) -> str | None:
    """Return the id of the conversation that an object of the output contains; None if it contains none."""
    for path in form.session:
        value = value_at(event, path)
        if isinstance(value, str) and is_id(value):
            return value
    return None


def is_id(value: str) -> bool:
    """Return whether a value is a valid conversation id.

    An agent may have forged it, and it becomes an argument and a part of a path.
    """
    return _ID.fullmatch(value) is not None


def _read_output(output: Path) -> str | None:
    try:
        with untrusted_files.open_to_read(output) as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except (OSError, NotRegularFile):
        # An agent may have replaced its output by something else. That must not prevent the end of a session from being
        # handled.
        return None


def _parse_objects(form: UsageFormat, text: str) -> Iterator[Any]:
    if form.form == "json":
        yield from _parse_documents(text)
        return
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            # A line of a tool's output may begin like an object and be invalid.
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                continue


def _parse_documents(text: str) -> Iterator[Any]:
    """Yield the documents that begin at the start of a line; output of the agent's tools may be between them."""
    decoder = json.JSONDecoder()
    end, wasted = 0, 0
    for begin in re.finditer(r"^[\[{]", text, re.MULTILINE):
        # Skip starts within a document. Limit the total cost of starts that lead to no document: it would be quadratic.
        if begin.start() < end or wasted > _MAX_BYTES:
            continue
        try:
            document, end = decoder.raw_decode(text, begin.start())
        except json.JSONDecodeError as error:
            wasted += error.pos - begin.start()
            continue
        except (ValueError, RecursionError):
            wasted += _DEEP_NESTING_COST
            continue
        yield from document if isinstance(document, list) else (document,)


def report_of_object(form: UsageFormat, event: Any) -> ReportedUsage | None:
    """Return the figures in one object, by model if it tells them; None if the object does not count, or has none."""
    used = usage_of_object(form, event)
    table = value_at(event, form.models.table) if used is not None and form.models.table else None
    if used is None or not isinstance(table, dict):
        return None if used is None else ReportedUsage(used)
    models: dict[str, TokenUsage] = {}
    for model, entry in table.items():
        part = _figures(form.models, entry) if isinstance(entry, dict) else None
        if part is not None and part.tokens:
            cost = _valid_number(value_at(entry, form.models.cost)) if form.models.cost else None
            add_to_model(models, model, _without_unknown_price(replace(part, cost=cost), form))
    if not models:
        return ReportedUsage(used)
    whole = sum(models.values(), TokenUsage())
    # A price of the whole has what is in no model, such as searches.
    return ReportedUsage(whole if used.cost is None else replace(whole, cost=used.cost), models)


def usage_of_object(form: UsageFormat, event: Any) -> TokenUsage | None:
    """Return the figures in one object; None if the object does not count, or has none."""
    if not isinstance(event, dict) or any(
        str(value_at(event, path)) != expected for path, expected in form.when.items()
    ):
        return None
    used = _figures(form, event)
    return None if used is None else _without_unknown_price(used, form)


def usage_of_request(form: ConversationLogFormat, event: Any) -> TokenUsage | None:
    """Return the figures of one request in an object of a conversation log; None without any."""
    if not form.request.input or not isinstance(event, dict):
        return usage_of_object(form, event)
    return _figures(form.request, event)


def _figures(form: UsageFormat | TokenPaths, event: dict[str, Any]) -> TokenUsage | None:
    read = [_sum(event, paths) for paths in (form.input, form.cached, form.output)]
    cost = _valid_number(value_at(event, form.cost)) if not isinstance(form, TokenPaths) and form.cost else None
    if cost is None and all(count is None for count in read):
        return None
    taken, cached, given = (int(count or 0) for count in read)
    return TokenUsage(input=taken, cached=cached, output=given, cost=cost)


def _without_unknown_price(used: TokenUsage, form: UsageFormat) -> TokenUsage:
    """Return the figures without a price of 0 that means that the program does not know the price of its model."""
    return replace(used, cost=None) if not used.cost and not form.free and used.tokens else used


def usages_of_text(form: UsageFormat, text: str) -> Iterator[TokenUsage]:
    """Yield the figures in plain text."""
    for match in re.finditer(form.pattern, text):
        groups = match.groupdict()
        cost = groups.get("cost")
        yield TokenUsage(
            input=_parse_count(groups.get("input")),
            output=_parse_count(groups.get("output")),
            cost=_parse_dollars(cost),
        )


def combine_usage(form: UsageFormat, figures: list[ReportedUsage]) -> ReportedUsage:
    """Combine the figures of one session."""
    if form.combine == "last":
        return figures[-1]
    if form.combine == "most":
        return max(figures, key=lambda report: (report.used.cost or 0.0, report.used.tokens))
    return sum(figures[1:], figures[0])


def _sum(event: dict[str, Any], paths: tuple[str, ...]) -> float | None:
    numbers = [number for path in paths for number in _valid_numbers(value_at(event, path))]
    return sum(numbers) if numbers else None


def _valid_numbers(value: Any) -> Iterator[float]:
    for item in value if isinstance(value, list) else (value,):
        number = _valid_number(item)
        if number is not None:
            yield number


def _valid_number(value: Any) -> float | None:
    """Return a plausible figure, or None: some programs report negative or huge ones."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < _LARGEST else None


def value_at(event: Any, path: str) -> Any:
    """Return the value at a path, or None; ``*`` means every key, and gives a list of their values."""
    names = path.split(".")
    value = event
    for index, name in enumerate(names):
        if name == "*" and isinstance(value, dict | list):
            items = value.values() if isinstance(value, dict) else value
            rest = ".".join(names[index + 1 :])
            return _flat(value_at(item, rest) if rest else item for item in items)
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


def time_of(value: Any) -> datetime | None:
    """Return the time of a value: ISO 8601 (UTC without a zone) or milliseconds since 1970; None for another value."""
    try:
        if isinstance(value, str):
            when = datetime.fromisoformat(value)
            return when if when.tzinfo else when.replace(tzinfo=UTC)
        return datetime.fromtimestamp(float(value) / 1000, UTC) if isinstance(value, int | float) else None
    except (ValueError, OverflowError, OSError):
        return None


def _flat(values: Iterable[Any]) -> list[Any]:
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def _parse_dollars(text: str | None) -> float | None:
    try:
        return _valid_number(float(text)) if text else None
    except ValueError:
        return None


def _parse_count(text: str | None) -> int:
    """Parse a number such as ``1.2k``, which is 1200; 0 if it is invalid."""
    if not text:
        return 0
    text = text.replace(",", "").lower()
    factor = {"k": 1_000, "m": 1_000_000}.get(text[-1], 1)
    try:
        return round(min(float(text.rstrip("km")) * factor, _LARGEST))
    except (ValueError, OverflowError):
        return 0
