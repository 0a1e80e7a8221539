"""Money, tokens and time that sessions used, and the check against the budget. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from liza.model.configuration import Budget
from liza.model.session_ends import SessionOutcome
from liza.model.value_classes import AwareDatetime, FrozenStruct, Value, asdict
from liza.text.formats import count_noun

USAGE_GROUPS = ("task", "agent", "program", "account", "model", "tool", "outcome", "day")
"""Groups in which usage is summed. Days are in UTC."""


class TokenUsage(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens and cost of a session. ``cost`` is in US dollars, None if the program does not report it.

    ``cached`` is part of ``input``. ``estimated``: how many of all these tokens are an estimate.
    """

    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float | None = None
    estimated: int = 0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input + self.output

    def __add__(self, other: TokenUsage) -> TokenUsage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return TokenUsage(
            input=self.input + other.input,
            cached=self.cached + other.cached,
            output=self.output + other.output,
            cost=sum(costs) if costs else None,
            estimated=self.estimated + other.estimated,
        )


def usage_since(total: TokenUsage, earlier: TokenUsage) -> TokenUsage:
    """Return what was used since a running total was ``earlier``. A total below that is a new count."""
    if total.input < earlier.input or total.output < earlier.output:
        return total
    return TokenUsage(
        input=total.input - earlier.input,
        cached=max(0, total.cached - earlier.cached),
        output=total.output - earlier.output,
        cost=None if total.cost is None else max(0.0, total.cost - (earlier.cost or 0.0)),
    )


class ToolTotal(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Calls of one tool; ``failures`` of them failed. ``milliseconds`` is their whole duration."""

    calls: int = 0
    failures: int = 0
    milliseconds: int = 0

    def __add__(self, other: ToolTotal) -> ToolTotal:
        return ToolTotal(
            calls=self.calls + other.calls,
            failures=self.failures + other.failures,
            milliseconds=self.milliseconds + other.milliseconds,
        )


INITIAL_CONTEXT_TOKENS = 8_000
"""Tokens of a program's first request without the prompt: its own instructions and tools."""
BYTES_PER_TOKEN = 4  # for estimates only


def estimate_usage(calls: int, size: int) -> TokenUsage:
    """Estimate the usage of a session whose program reports none, from its tool calls and ``size`` bytes of output.

    Each call is a request with the whole conversation so far. The conversation is assumed to have grown evenly.
    """
    output = size // BYTES_PER_TOKEN
    input_tokens = (calls + 1) * (INITIAL_CONTEXT_TOKENS + output // 2)
    return TokenUsage(input=input_tokens, output=output, estimated=input_tokens + output)


class LedgerEntry(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One session in the ledger. ``model``: the one that a person named; None: as the program is configured.

    ``outcome`` is a SessionOutcome, or ``living``. ``used`` is None if its program reported nothing. ``seconds`` is
    wall time. ``account``: the account of its program, if the person has listed some; ``accounts``: the parts of the
    usage by account, if it changed. ``models`` and ``tools``: the parts by model, and the calls by tool, if they were
    reported. ``conversation``: the program's id of its conversation, if that is known.
    """

    run: str
    time: AwareDatetime
    kind: str
    program: str
    outcome: str
    seconds: float
    model: str | None = None
    task: str | None = None
    sprint: str | None = None
    used: TokenUsage | None = None
    account: str | None = None
    accounts: dict[str, TokenUsage] = msgspec.field(default_factory=dict)
    conversation: str | None = None
    models: dict[str, TokenUsage] = msgspec.field(default_factory=dict)
    tools: dict[str, ToolTotal] = msgspec.field(default_factory=dict)


class UsageTotal(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Sum over sessions. ``silent``: sessions that reported no usage. ``unpriced``: sessions that reported no cost,
    including the silent ones.
    """

    sessions: int = 0
    seconds: float = 0.0
    silent: int = 0
    unpriced: int = 0
    used: TokenUsage = TokenUsage()

    @property
    def has_unknown_tokens(self) -> bool:
        """Whether no session reported tokens, although there were some."""
        return self.silent > 0 and not self.used.tokens


def sum_usage(spent: Iterable[LedgerEntry]) -> UsageTotal:
    """Return the sum over all entries."""
    entries = list(spent)
    used = [entry.used for entry in entries if entry.used is not None]
    return UsageTotal(
        sessions=len(entries),
        seconds=sum(entry.seconds for entry in entries),
        silent=len(entries) - len(used),
        unpriced=sum(entry.used is None or entry.used.cost is None for entry in entries),
        used=sum(used, TokenUsage()),
    )


def format_total(total: UsageTotal) -> str:
    """Return the usage as text: `3 sessions, 1,200 tokens, $0.12`."""
    sessions = count_noun(total.sessions, "session")
    if total.silent == total.sessions:
        return sessions
    return f"{sessions}, {format_tokens(total)}, {format_cost(total)}"


def format_tokens(total: UsageTotal) -> str:
    """Return the tokens as text; it says which part is estimated or not known."""
    if total.has_unknown_tokens:
        return "tokens not known"
    if not total.used.tokens:
        return "no tokens"
    tokens, estimated = f"{total.used.tokens:,} tokens", total.used.estimated
    if not estimated:
        text = tokens
    elif estimated >= total.used.tokens:
        text = f"about {tokens} (estimated)"
    else:
        text = f"about {tokens} ({estimated:,} of them estimated)"
    if not total.silent:
        return text
    return f"at least {text}; {total.silent} of {count_noun(total.sessions, 'session')} reported none"


def format_cost(total: UsageTotal) -> str:
    """Return the cost as text; it says if a part is not known."""
    if total.used.cost is None:
        return "cost not known"
    text = f"${total.used.cost:.2f}"
    if not total.unpriced:
        return text
    return f"at least {text} ({total.unpriced} of {count_noun(total.sessions, 'session')} reported none)"


def format_limits(budget: Budget) -> str:
    """Return the limits of a budget as text; ``no limit`` without one."""
    limits = []
    for scope in ("task", "sprint"):
        money, tokens, seconds = (getattr(budget, f"{unit}_per_{scope}") for unit in ("money", "tokens", "seconds"))
        limits += [f"${money:.2f} a {scope}"] if money is not None else []
        limits += [f"{tokens:,} tokens a {scope}"] if tokens is not None else []
        limits += [f"{seconds:,} s a {scope}"] if seconds is not None else []
    return f"limit {', '.join(limits)}" if limits else "no limit"


def unpriced_reason(budget: Budget, spent: Iterable[LedgerEntry]) -> str | None:
    """Return why a money limit does not cover the cost of all sessions; None if it does."""
    keys = [name for name in ("money_per_task", "money_per_sprint") if getattr(budget, name) is not None]
    entries = list(spent)
    unpriced = [entry for entry in entries if _is_cost_unknown(entry)]
    if not keys or not unpriced:
        return None
    programs = ", ".join(sorted({entry.program for entry in unpriced}))
    return (
        f"config.budget.{keys[0]} does not count {len(unpriced)} of {count_noun(len(entries), 'session')}: {programs} "
        "reported no cost for the model. A token limit counts them: config.budget.tokens_per_task"
    )


def _is_cost_unknown(entry: LedgerEntry) -> bool:
    """Return whether a model answered in the session and the cost is not known."""
    if entry.used is None:
        return entry.outcome == SessionOutcome.FINISHED
    return entry.used.cost is None and entry.used.tokens > 0


def over_budget_reason(
    budget: Budget, spent: Iterable[LedgerEntry], task: str | None, sprint: str | None
) -> str | None:
    """Return why no more may be spent on this task or in this sprint; None while the budget allows more.

    Usage that a program does not report is not counted. Only a time limit applies to a program that reports nothing.
    """
    overrun = _find_overrun(budget, spent, task, sprint)
    return None if overrun is None else f"{overrun.who} has used {overrun.used}"


def raise_limit_command(
    budget: Budget, spent: Iterable[LedgerEntry], task: str | None, sprint: str | None
) -> str | None:
    """Return the command that doubles the limit which is used up; None while the budget allows more."""
    overrun = _find_overrun(budget, spent, task, sprint)
    return None if overrun is None else f"liza config set budget.{overrun.limit} {overrun.doubled}"


class _Overrun(Value):
    """A limit that is used up: by whom, how much of it, its name, and twice its value."""

    who: str
    used: str
    limit: str
    doubled: int


def _find_overrun(
    budget: Budget, spent: Iterable[LedgerEntry], task: str | None, sprint: str | None
) -> _Overrun | None:
    entries = list(spent)
    of_sprint = sum_usage(entry for entry in entries if entry.sprint == sprint)
    overrun = _exceeded_limit(budget, "the sprint", of_sprint, is_sprint=True)
    if overrun is not None or task is None:
        return overrun
    of_task = sum_usage(entry for entry in entries if entry.task == task)
    return _exceeded_limit(budget, task, of_task, is_sprint=False)


def seconds_left(budget: Budget, spent: Iterable[LedgerEntry], task: str | None, sprint: str | None) -> float | None:
    """Return the seconds that one session may run until the time of its task or of the sprint is used up.

    None without a time limit.
    """
    entries = list(spent)
    left = []
    if budget.seconds_per_sprint is not None:
        left.append(budget.seconds_per_sprint - sum_usage(entry for entry in entries if entry.sprint == sprint).seconds)
    if budget.seconds_per_task is not None and task is not None:
        left.append(budget.seconds_per_task - sum_usage(entry for entry in entries if entry.task == task).seconds)
    return max(0.0, min(left)) if left else None


def _exceeded_limit(budget: Budget, who: str, so_far: UsageTotal, *, is_sprint: bool) -> _Overrun | None:
    """Return the first limit of the sprint, or of a task, that is used up."""
    if is_sprint:
        scope, limits = "sprint", (budget.money_per_sprint, budget.tokens_per_sprint, budget.seconds_per_sprint)
    else:
        scope, limits = "task", (budget.money_per_task, budget.tokens_per_task, budget.seconds_per_task)
    money, tokens, seconds = limits
    cost, used = so_far.used.cost or 0.0, so_far.used.tokens
    if money is not None and cost >= money:
        return _Overrun(who, f"${cost:.2f} of ${money:.2f}", f"money_per_{scope}", _double(money, cost))
    if tokens is not None and used >= tokens:
        part = so_far.used.estimated
        how = f" ({part:,} of them estimated)" if part else ""
        return _Overrun(who, f"{used:,} of {tokens:,} tokens{how}", f"tokens_per_{scope}", _double(tokens, used))
    if seconds is not None and so_far.seconds >= seconds:
        text = f"{so_far.seconds:,.0f} of {seconds:,} seconds"
        return _Overrun(who, text, f"seconds_per_{scope}", _double(seconds, so_far.seconds))
    return None


def _double(limit: float, used: float) -> int:
    return math.ceil(2 * max(limit, used))


MAX_NAMES = 200
"""Maximum number of models, and of tools, that are summed by name; further ones are summed as OTHER."""


OTHER = "other"


def limited_name(totals: dict[str, TokenUsage] | dict[str, ToolTotal], name: str) -> str:
    """Return the key under which a name is summed. An agent chooses names, so their number is limited."""
    return name if name in totals or len(totals) < MAX_NAMES else OTHER


class Costs(Value, kw_only=True):
    """Usage and budget of a sprint, as `status --json` prints them; there ``text`` is ``said``.

    ``money`` and ``tokens`` are None if no program reported them.
    """

    unreadable: str | None = None
    money: float | None = None
    tokens: int | None = None
    estimated: int = 0
    sessions: int = 0
    living: int = 0
    silent: int = 0
    unpriced: int = 0
    text: str = ""
    budget: Mapping[str, Any] = {}

    def fields(self) -> dict[str, Any]:
        """Return the usage as `status --json` prints it."""
        return {("said" if name == "text" else name): value for name, value in asdict(self).items()}
