"""The usage that a program reports, in its output and in its conversation log. Only reported figures, no estimates."""

from __future__ import annotations

import fnmatch
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from liza.model.errors import NotRegularFile
from liza.model.spending import TokenUsage, limited_name, usage_since
from liza.model.value_classes import Value, replace
from liza.programs.presets.preset import ConversationLogFormat, TokenPaths, UsageFormat
from liza.system import untrusted_files

_ID = re.compile(r"[A-Za-z0-9][\w.:-]{0,127}", re.ASCII)
_LARGEST = 1 << 62
_MAX_BYTES = 64 << 20
"""Maximum bytes of output that are read; the shim cuts the log at that size."""
_MAX_HEAD = 4 << 20
"""Bytes of the output in which the id of the conversation is searched."""
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
    text = _read_output(output, _MAX_HEAD) if form.session else None
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


def _read_output(output: Path, most: int = _MAX_BYTES) -> str | None:
    try:
        with untrusted_files.open_to_read(output) as file:
            return file.read(most).decode(errors="replace")
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


MAX_MODEL_LENGTH = 200  # characters


MAX_SUBAGENTS = 1000
"""Maximum number of sub-agents whose logs are waited for: an agent can write their names."""


class ConversationUsage:
    """Adds up the usage in the lines of a conversation's logs, without those of earlier and later sessions."""

    def __init__(
        self,
        form: ConversationLogFormat,
        started: datetime,
        ended: datetime | None = None,
        windows: ContextWindows | None = None,
    ) -> None:
        self._form = form
        self._windows = windows or ContextWindows(UsageFormat(), form)
        self._started = started
        self._end = None if ended is None else ended + timedelta(seconds=1)
        self._requests: dict[str, tuple[str, TokenUsage]] = {}
        """Model and usage, by the name of the request, or by file and model for running totals."""
        self._totals: dict[str, TokenUsage] = {}
        """The newest running total, by file."""
        self._models: dict[str, str] = {}
        """The model that a line has named last, by file."""
        self._report: ReportedUsage | None = None
        self.new_subagents: set[str] = set()
        """Ids of the conversations of sub-agents that were named, and whose logs are not found yet."""
        self._newest: tuple[int, Any, str] | None = None
        """Tokens, window and model of the newest request of the conversation itself, as logged."""

    def add(self, event: Any, file: str = "", *, is_subagent: bool = False) -> None:
        """Add one object of a log."""
        form = self._form
        if form.model and isinstance(model := value_at(event, form.model), str):
            self._models[file] = model[:MAX_MODEL_LENGTH]
        when = time_of(value_at(event, form.time)) if form.time else None
        if when is not None and self._end is not None and when >= self._end:
            return
        is_older = when is not None and when < self._started
        if form.subagent_ids and not is_older:
            names = [
                name for path in form.subagent_ids for name in _list(value_at(event, path)) if isinstance(name, str)
            ]
            self.new_subagents.update(names[: MAX_SUBAGENTS - len(self.new_subagents)])
        used = usage_of_object(form, event)
        if used is None:
            return
        if form.counts == "conversation":
            used = self._count_on(used, file)
        if is_older:
            return
        self._put(event, used, file)
        nested = is_subagent or (form.nested and value_at(event, form.nested))
        request = usage_of_request(form, event) if form.request.input else None
        tokens = used.tokens if request is None else request.tokens
        if tokens and not nested:
            # A message that the program writes itself has no tokens.
            window = value_at(event, form.window) if form.window else None
            self._newest = tokens, window, self._models.get(file, "")

    def _count_on(self, total: TokenUsage, file: str) -> TokenUsage:
        """Return what a running total adds to the one before."""
        before = self._totals.get(file, TokenUsage())
        self._totals[file] = total
        return usage_since(total, before)

    def _put(self, event: Any, used: TokenUsage, file: str) -> None:
        model = self._models.get(file, "")
        is_total = self._form.counts == "conversation"
        name = value_at(event, self._form.key) if self._form.key and not is_total else None
        key = f"{file} {model}" if is_total else f" {len(self._requests)}" if name is None else str(name)
        before = self._requests.get(key)
        if is_total and before is not None:
            used = before[1] + used
        self._requests[key] = model, used
        if before is None and self._report is not None:
            # A sum over all requests for each new one would take 40 ms after 10,000.
            self._report += _report_of(model, used)
        elif before != (model, used):
            self._report = None

    @property
    def report(self) -> ReportedUsage | None:
        """The usage of all requests; None before the first."""
        if self._report is None and self._requests:
            reports = itertools.starmap(_report_of, self._requests.values())
            self._report = sum(reports, ReportedUsage(TokenUsage()))
        return self._report

    @property
    def context_usage(self) -> float | None:
        """The part of the context window that the newest request used, 0 to 1; None if the window is unknown, or cannot
        be the model's: more is in it."""
        if self._newest is None:
            return None
        tokens, logged, model = self._newest
        window = self._windows.find(logged, model)
        return tokens / window if window is not None and tokens <= window else None


def _report_of(model: str, used: TokenUsage) -> ReportedUsage:
    return ReportedUsage(used, {model: used} if model and used.tokens else {})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_MAX_MODELS = 100


class ContextWindows:
    """The windows of one session's models, in tokens.

    The output outranks the row: it knows which window the person has chosen, and what a gateway allows.
    """

    def __init__(self, output: UsageFormat, log: ConversationLogFormat) -> None:
        self._output, self._log = output, log
        self._model = ""
        self._sizes: dict[str, int] = {}

    def read_output(self, event: Any) -> None:
        """Read one object of the output: the full name of the session's model, and the windows of its models."""
        form = self._output
        if form.model and isinstance(name := value_at(event, form.model), str):
            self._model = name
        table = value_at(event, form.models.table) if form.models.window else None
        for model, entry in table.items() if isinstance(table, dict) else ():
            size = _as_size(value_at(entry, form.models.window))
            if size is not None and len(self._sizes) < _MAX_MODELS:
                self._sizes[model] = size

    def find(self, logged: Any, model: str) -> int | None:
        """Return the window of a request of ``model``; None if it is unknown. ``logged``: the window in its line."""
        if logged is not None or not model:
            return _as_size(logged)
        if self._model.startswith(model):
            size = self._sizes.get(self._model) or _match(self._output.windows, self._model)
            if size is not None:
                return size
        return self._sizes.get(model) or _match(self._log.windows, model)


def _match(sizes: Mapping[str, int], model: str) -> int | None:
    return next((size for name, size in sizes.items() if fnmatch.fnmatchcase(model, name)), None)


def _as_size(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
