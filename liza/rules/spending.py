"""Money, tokens and time: what sessions used, in sum, and whether that is more than the budget allows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from liza.rules.model import Budget, Entry, Moment


class Used(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens, and US dollars where the program tells them. ``cached`` is part of ``input``."""

    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float | None = None

    @property
    def tokens(self) -> int:
        """All of them, both ways."""
        return self.input + self.output

    def __add__(self, other: Used) -> Used:
        costs = [one for one in (self.cost, other.cost) if one is not None]
        return Used(
            input=self.input + other.input,
            cached=self.cached + other.cached,
            output=self.output + other.output,
            cost=sum(costs) if costs else None,
        )


class Spent(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """One session in the ledger. ``used`` is None where its program told nothing; ``seconds`` are of the wall."""

    run: str
    time: Moment
    kind: str
    program: str
    outcome: str
    seconds: float
    task: str | None = None
    sprint: str | None = None
    used: Used | None = None


class Total(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """Sessions in sum. ``silent`` is how many of them told nothing of what they used, ``unpriced`` how many
    told no cost, those among them."""

    sessions: int = 0
    seconds: float = 0.0
    silent: int = 0
    unpriced: int = 0
    used: Used = Used()


def total(spent: Iterable[Spent]) -> Total:
    """All of it."""
    found = list(spent)
    used = [one.used for one in found if one.used is not None]
    return Total(
        sessions=len(found),
        seconds=sum(one.seconds for one in found),
        silent=len(found) - len(used),
        unpriced=sum(one.used is None or one.used.cost is None for one in found),
        used=sum(used, Used()),
    )


def over(budget: Budget, spent: Iterable[Spent], task: str | None, sprint: str | None) -> str | None:
    """Why no more may be spent on this task or in this sprint; None while there is room. What a program does not tell
    cannot count, so only time limits one that tells nothing."""
    found = list(spent)
    of_sprint = total(one for one in found if one.sprint == sprint)
    why = _beyond(budget.money_per_sprint, budget.tokens_per_sprint, budget.seconds_per_sprint, of_sprint)
    if why is not None:
        return f"the sprint has used {why}"
    if task is None:
        return None
    of_task = total(one for one in found if one.task == task)
    why = _beyond(budget.money_per_task, budget.tokens_per_task, budget.seconds_per_task, of_task)
    return None if why is None else f"{task} has used {why}"


def seconds_left(budget: Budget, spent: Iterable[Spent], task: str | None, sprint: str | None) -> float | None:
    """How long one session may go on before the time of its task or of the sprint is used up; None without such a
    limit."""
    found = list(spent)
    left = []
    if budget.seconds_per_sprint is not None:
        left.append(budget.seconds_per_sprint - total(one for one in found if one.sprint == sprint).seconds)
    if budget.seconds_per_task is not None and task is not None:
        left.append(budget.seconds_per_task - total(one for one in found if one.task == task).seconds)
    return max(0.0, min(left)) if left else None


def _beyond(money: float | None, tokens: int | None, seconds: int | None, so_far: Total) -> str | None:
    cost = so_far.used.cost or 0.0
    if money is not None and cost >= money:
        return f"${cost:.2f} of ${money:.2f}"
    if tokens is not None and so_far.used.tokens >= tokens:
        return f"{so_far.used.tokens:,} of {tokens:,} tokens"
    if seconds is not None and so_far.seconds >= seconds:
        return f"{so_far.seconds:,.0f} of {seconds:,} seconds"
    return None
