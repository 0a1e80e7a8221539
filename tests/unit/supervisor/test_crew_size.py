"""How many coders `--coders auto` runs: a table of facts and decisions, and crews that are simulated step by step."""

from __future__ import annotations

from typing import Any

import pytest

from liza.model.errors import UsageError
from liza.model.value_classes import replace
from liza.supervisor.crew_options import UpOptions, parse_coders
from liza.tasks.rules.crew_size import CoderFacts, KeepSize, RetireCoder, SizeFacts, StartCoder, decide_size

PATIENCE = 60.0
BUSY = CoderFacts("coder-1", is_busy=True)
IDLE = CoderFacts("coder-1", idle_seconds=10.0)


def coder(number: int, **facts: Any) -> CoderFacts:
    return CoderFacts(f"coder-{number}", **facts)


def crew(*coders: CoderFacts, **facts: Any) -> SizeFacts:
    usual: dict[str, Any] = {"minimum": 1, "maximum": 4, "patience": PATIENCE, "newcomer": f"coder-{len(coders) + 1}"}
    return SizeFacts(coders=coders, **{**usual, **facts})


SPENT = coder(2, idle_seconds=61.0)


@pytest.mark.parametrize(
    ("facts", "decision"),
    [
        (crew(BUSY), KeepSize()),
        (crew(BUSY, waiting_task="t2"), StartCoder("coder-2", "t2 waits, and no coder is free for it")),
        (crew(replace(IDLE, can_claim=True), waiting_task="t2"), KeepSize()),
        # One that failed the task before is idle, and does not take it.
        (crew(IDLE, waiting_task="t2"), StartCoder("coder-2", "t2 waits, and no coder is free for it")),
        (crew(BUSY, waiting_task="t2", halt="PAUSE is set"), KeepSize()),
        (crew(BUSY, waiting_task="t2", newcomer=None), KeepSize()),
        (crew(BUSY, waiting_task="t2", maximum=1), KeepSize()),
        (crew(BUSY, waiting_task="t2", failed=3), KeepSize()),
        (
            crew(BUSY, coder(2, is_leaving=True, can_claim=True), waiting_task="t2"),
            StartCoder("coder-3", "t2 waits, and no coder is free for it"),
        ),
        (crew(BUSY, SPENT), RetireCoder("coder-2", "idle for 61 s, and no task waits for it")),
        (crew(replace(IDLE, idle_seconds=900.0)), KeepSize()),
        (crew(BUSY, SPENT, minimum=2), KeepSize()),
        (crew(BUSY, replace(SPENT, has_open_task=True)), KeepSize()),
        (crew(BUSY, replace(SPENT, can_claim=True)), KeepSize()),
        (crew(BUSY, replace(SPENT, is_busy=True)), KeepSize()),
        (crew(replace(IDLE, idle_seconds=900.0), replace(SPENT, is_leaving=True)), KeepSize()),
        (crew(BUSY, replace(SPENT, idle_seconds=45.0)), KeepSize(15.0)),
        (
            crew(BUSY, SPENT, coder(3, idle_seconds=61.0)),
            RetireCoder("coder-3", "idle for 61 s, and no task waits for it"),
        ),
    ],
)
def test_the_size_of_a_crew_follows_what_waits(facts: SizeFacts, decision: object) -> None:
    assert decide_size(facts) == decision


def test_a_crew_grows_one_by_one_to_the_maximum_and_shrinks_to_the_minimum_and_rests_there() -> None:
    waiting, coders, sizes = 9, (coder(1, can_claim=True),), [1]
    while True:
        newcomer = f"coder-{len(coders) + 1}"
        match decide_size(crew(*coders, newcomer=newcomer, waiting_task="t" if waiting else None)):
            case StartCoder(agent):
                coders = (*coders, CoderFacts(agent, can_claim=True))
                sizes.append(len(coders))
            case RetireCoder(agent):
                coders = tuple(one for one in coders if one.agent != agent)
                sizes.append(len(coders))
            case KeepSize(None) if waiting and any(one.can_claim for one in coders):
                coders = tuple(replace(one, can_claim=False, is_busy=True) for one in coders)
                waiting -= 1
            case KeepSize(None) if waiting:
                waiting = 0
                coders = tuple(replace(one, is_busy=False) for one in coders)
            case KeepSize(float() as seconds):
                coders = tuple(replace(one, idle_seconds=one.idle_seconds + seconds) for one in coders)
            case KeepSize(None):
                break
    assert sizes == [1, 2, 3, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("text", "limits"),
    [("0", (0, None)), ("3", (3, None)), ("auto", (1, 4)), ("auto:1-4", (1, 4)), ("auto:2-12", (2, 12))],
)
def test_coders_are_a_number_or_a_range(text: str, limits: tuple[int, int | None]) -> None:
    assert parse_coders(text) == limits


@pytest.mark.parametrize("text", ["", "-1", "two", "auto:", "auto:4", "auto:0-4", "auto:4-2", "1-4", "auto:1-4 ", "٣"])
def test_other_texts_are_refused_with_a_command_that_is_accepted(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_coders(text)
    assert refused.value.hint == "liza up --coders auto:1-4"


def test_an_elastic_crew_is_started_again_with_its_limits_and_begins_with_the_minimum() -> None:
    options = UpOptions(planners=0, coders=1, coders_limit=3)
    assert options.restart_command() == "liza up --planners 0 --coders auto:1-3"
    assert options.first_agents() == ("coder-1", "code-reviewer-1")
    assert options.agents() == ("coder-1", "coder-2", "coder-3", "code-reviewer-1")
