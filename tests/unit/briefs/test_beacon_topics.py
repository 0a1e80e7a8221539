"""The topic of a beacon: a function of the task's history, the wake-up, and how the session before it ended."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.briefs import brief_writer
from liza.briefs.brief_writer import BeaconTopic
from liza.model.history_events import HistoryEvent
from liza.model.model import Event
from liza.model.session_ends import SessionOutcome
from tests.unit.briefs.test_programs_brief import NOW, TASK, context

T = BeaconTopic
E = HistoryEvent
HANDED = SessionOutcome.HANDED_OFF
CLAIMED_BEFORE = ((E.CLAIM, 6),)


@pytest.mark.parametrize(
    ("history", "facts", "topic"),
    [
        ((), {}, T.ASSIGNED),
        (((E.CLAIM, 7),), {}, T.ASSIGNED),
        ((*CLAIMED_BEFORE, (E.SUBMIT, 6), (E.REJECT, 6), (E.CLAIM, 7)), {"previous_outcome": "finished"}, T.ASSIGNED),
        ((*CLAIMED_BEFORE, (E.SUBMIT, 6), (E.REJECT, 6), (E.CLAIM, 7)), {"continues": "coder-1.6"}, T.RESUMED),
        ((*CLAIMED_BEFORE, (E.HANDOFF, 6), (E.RESUME, 7)), {}, T.HAND_OFF),
        ((*CLAIMED_BEFORE, (E.HANDOFF, 6), (E.STOP, 6), (E.RESUME, 7)), {}, T.HAND_OFF),
        ((*CLAIMED_BEFORE, (E.HANDOFF, 6), (E.RELEASE, 6), (E.CLAIM, 7)), {"previous_outcome": HANDED}, T.ASSIGNED),
        ((*CLAIMED_BEFORE, (E.CONTEXT_FULL, 6), (E.RESUME, 7)), {}, T.HAND_OFF),
        ((*CLAIMED_BEFORE, (E.TOO_OLD, 6), (E.RESUME, 7)), {}, T.HAND_OFF),
        ((*CLAIMED_BEFORE, (E.ENDED, 6), (E.RESUME, 7)), {"previous_outcome": HANDED}, T.HAND_OFF),
        ((*CLAIMED_BEFORE, (E.ENDED, 6), (E.RESUME, 7)), {"previous_outcome": "finished"}, T.RESUMED),
        ((*CLAIMED_BEFORE, (E.CRASH, 6), (E.RESUME, 7)), {}, T.RESUMED),
        ((*CLAIMED_BEFORE, (E.CRASH, 6), (E.RESUME, 7)), {"continues": "coder-1.6"}, T.RESUMED),
    ],
)
def test_the_topic_of_a_coder(
    history: tuple[tuple[HistoryEvent, int], ...], facts: dict[str, object], topic: BeaconTopic
) -> None:
    events = tuple(Event(time=NOW, event=event, run=f"coder-1.{run}") for event, run in history)
    made = brief_writer.compose_brief(context(task=replace(TASK, history=events), **facts))
    assert f" • {topic}:task-3 • run:coder-1.7" in made.beacon
    assert made.beacon_fields["topic"] == f"{topic}:task-3"


@pytest.mark.parametrize(
    ("trigger", "outcome", "topic"),
    [
        ("INITIAL_PLANNING", None, T.COLD_START),
        ("INITIAL_PLANNING", HANDED, T.HAND_OFF),
        ("", None, T.COLD_START),
        ("BLOCKED_TASKS", None, T.WAKE),
        ("BLOCKED_TASKS", SessionOutcome.FINISHED, T.WAKE),
        ("BLOCKED_TASKS", HANDED, T.HAND_OFF),
    ],
)
def test_the_topic_of_a_planner(trigger: str, outcome: SessionOutcome | None, topic: BeaconTopic) -> None:
    facts = context("planner-1.3", None, wake_trigger=trigger, previous_outcome=outcome)
    assert brief_writer.choose_topic(facts) is topic


@pytest.mark.parametrize(("outcome", "topic"), [(None, T.REVIEW), (HANDED, T.HAND_OFF)])
def test_the_topic_of_a_reviewer(outcome: SessionOutcome | None, topic: BeaconTopic) -> None:
    assert brief_writer.choose_topic(context("code-reviewer-1.4", previous_outcome=outcome)) is topic
