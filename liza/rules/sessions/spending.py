"""Money, tokens and time: what sessions used, in sum, and whether that is more than the budget allows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from liza.rules.model import AwareDatetime, Budget, FrozenStruct


class TokenUsage(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens, and US dollars where the program tells them. ``cached`` is part of ``input``; ``estimated`` is how many
    of all these tokens nobody told, so that they were estimated."""

    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float | None = None
    estimated: int = 0

    @property
    def tokens(self) -> int:
        """All of them, both ways."""
        return self.input + self.output

    def __add__(self, other: TokenUsage) -> TokenUsage:
        costs = [one for one in (self.cost, other.cost) if one is not None]
        return TokenUsage(
            input=self.input + other.input,
            cached=self.cached + other.cached,
            output=self.output + other.output,
            cost=sum(costs) if costs else None,
            estimated=self.estimated + other.estimated,
        )


INITIAL_CONTEXT_TOKENS = 8_000
"""Tokens that a program sends with its first request, before anything was said: its own instructions and its tools."""
BYTES_PER_TOKEN = 4


def estimate_usage(calls: int, size: int) -> TokenUsage:
    """What a session used whose program tells nothing, after so many tool calls and ``size`` bytes of output.

    Each call is a request that carries the whole conversation so far, and that grew evenly to its present size.
    """
    said = size // BYTES_PER_TOKEN
    read = (calls + 1) * (INITIAL_CONTEXT_TOKENS + said // 2)
    return TokenUsage(input=read, output=said, estimated=read + said)


class LedgerEntry(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One session in the ledger. ``used`` is None where its program told nothing; ``seconds`` are of the wall."""

    run: str
    time: AwareDatetime
    kind: str
    program: str
    outcome: str
    seconds: float
    task: str | None = None
    sprint: str | None = None
    used: TokenUsage | None = None


class UsageTotal(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Sessions in sum. ``silent`` is how many of them told nothing of what they used, ``unpriced`` how many
    told no cost, those among them."""

    sessions: int = 0
    seconds: float = 0.0
    silent: int = 0
    unpriced: int = 0
    used: TokenUsage = TokenUsage()


def sum_usage(spent: Iterable[LedgerEntry]) -> UsageTotal:
    """All of it."""
    found = list(spent)
    used = [one.used for one in found if one.used is not None]
    return UsageTotal(
        sessions=len(found),
        seconds=sum(one.seconds for one in found),
        silent=len(found) - len(used),
        unpriced=sum(one.used is None or one.used.cost is None for one in found),
        used=sum(used, TokenUsage()),
    )


def format_total(found: UsageTotal) -> str:
    """What sessions used, in words: `3 sessions, 1,200 tokens, $0.12`."""
    sessions = f"{found.sessions} {'session' if found.sessions == 1 else 'sessions'}"
    if found.silent == found.sessions:
        return sessions
    return f"{sessions}, {format_tokens(found)}, {format_cost(found)}"


def format_tokens(found: UsageTotal) -> str:
    """The tokens of sessions, in words, with what is not known of them."""
    if not found.used.tokens:
        return "tokens not known" if found.silent else "no tokens"
    text = f"{found.used.tokens:,} tokens"
    if found.used.estimated:
        text = f"about {text} ({found.used.estimated:,} of them estimated)"
    if not found.silent:
        return text
    return f"at least {text} ({found.silent} of {found.sessions} sessions told none)"


def format_cost(found: UsageTotal) -> str:
    """The cost of sessions, in words, with what is not known of it."""
    if found.used.cost is None:
        return "cost not known"
    text = f"${found.used.cost:.2f}"
    return f"at least {text} ({found.unpriced} of {found.sessions} sessions told none)" if found.unpriced else text


def format_limits(budget: Budget) -> str:
    """The limits of a budget, in words; ``no limit`` without one."""
    found = []
    for whose in ("task", "sprint"):
        money, tokens, seconds = (getattr(budget, f"{what}_per_{whose}") for what in ("money", "tokens", "seconds"))
        found += [f"${money:.2f} a {whose}"] if money is not None else []
        found += [f"{tokens:,} tokens a {whose}"] if tokens is not None else []
        found += [f"{seconds:,} s a {whose}"] if seconds is not None else []
    return f"limit {', '.join(found)}" if found else "no limit"


def unpriced_reason(budget: Budget, spent: Iterable[LedgerEntry]) -> str | None:
    """Why a limit of money does not hold what sessions cost; None while it does."""
    keys = [name for name in ("money_per_task", "money_per_sprint") if getattr(budget, name) is not None]
    found = list(spent)
    unpriced = [one for one in found if _is_cost_unknown(one)]
    if not keys or not unpriced:
        return None
    programs = ", ".join(sorted({one.program for one in unpriced}))
    return (
        f"config.budget.{keys[0]} does not see what {len(unpriced)} of {len(found)} sessions cost: {programs} told no "
        "price for the model. A limit of tokens holds them: config.budget.tokens_per_task"
    )


def _is_cost_unknown(one: LedgerEntry) -> bool:
    """Whether a model answered in the session, and nobody knows at what price."""
    if one.used is None:
        return one.outcome == "finished"
    return one.used.cost is None and one.used.tokens > 0


def over_budget_reason(
    budget: Budget, spent: Iterable[LedgerEntry], task: str | None, sprint: str | None
) -> str | None:
    """Why no more may be spent on this task or in this sprint; None while there is room. What a program does not tell
    cannot count, so only time limits one that tells nothing."""
    found = list(spent)
    of_sprint = sum_usage(one for one in found if one.sprint == sprint)
    why = _exceeded_limit(budget.money_per_sprint, budget.tokens_per_sprint, budget.seconds_per_sprint, of_sprint)
    if why is not None:
        return f"the sprint has used {why}"
    if task is None:
        return None
    of_task = sum_usage(one for one in found if one.task == task)
    why = _exceeded_limit(budget.money_per_task, budget.tokens_per_task, budget.seconds_per_task, of_task)
    return None if why is None else f"{task} has used {why}"


def seconds_left(budget: Budget, spent: Iterable[LedgerEntry], task: str | None, sprint: str | None) -> float | None:
    """How long one session may go on before the time of its task or of the sprint is used up; None without such a
    limit."""
    found = list(spent)
    left = []
    if budget.seconds_per_sprint is not None:
        left.append(budget.seconds_per_sprint - sum_usage(one for one in found if one.sprint == sprint).seconds)
    if budget.seconds_per_task is not None and task is not None:
        left.append(budget.seconds_per_task - sum_usage(one for one in found if one.task == task).seconds)
    return max(0.0, min(left)) if left else None


def _exceeded_limit(money: float | None, tokens: int | None, seconds: int | None, so_far: UsageTotal) -> str | None:
    cost = so_far.used.cost or 0.0
    if money is not None and cost >= money:
        return f"${cost:.2f} of ${money:.2f}"
    if tokens is not None and so_far.used.tokens >= tokens:
        part = so_far.used.estimated
        how = f" (an estimate: {part:,} of them were not told)" if part else ""
        return f"{so_far.used.tokens:,} of {tokens:,} tokens{how}"
    if seconds is not None and so_far.seconds >= seconds:
        return f"{so_far.seconds:,.0f} of {seconds:,} seconds"
    return None
