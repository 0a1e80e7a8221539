"""Snapshots of made-up crews, with texts as agents may write them."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st

from liza.merging.queue import QueueReport
from liza.merging.rules.merge_queue import find_exits, queue_rows
from liza.model.alarm_table import AlarmKind
from liza.model.history_events import HistoryEvent
from liza.model.model import Event, Status, Task
from liza.model.narration import recall_news
from liza.model.spending import Costs
from liza.ui.rules.snapshot import ScreenName, Snapshot, Wanted
from liza.usage.costs import UsageBreakdown, UsageRow
from liza.usage.program_accounts import AccountReport, AccountState
from liza.view.history import PastNews
from liza.view.metrics import UsageReport
from liza.view.rules.picture import build_picture
from liza.view.rules.structs import AgentRow, CrewFacts
from tests.unit import boards

LISTS = (*list(ScreenName)[:6], ScreenName.HELP)
HOSTILE = (
    "<script>alert(1)</script>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "[bold]loud[/bold] [link=x]",
    "\u202eright to left\u2066",
    "a" * 10_000,
    "日本語のテキスト " * 40,
    "👩‍👩‍👧‍👦🏳️‍🌈 ❤️ e\u0301\u0301",
    "tab\tnull\x00 bell\x07\r\nline\n\n",
    "",
)
texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=60))
_EVENTS = tuple(HistoryEvent)


@st.composite
def tasks(draw: st.DrawFn, number: int) -> Task:
    """A task with any status, text and history; who has it depends on its status."""
    status = draw(st.sampled_from(Status))
    events = draw(st.lists(st.sampled_from(_EVENTS), max_size=4))
    history = [
        Event(time=boards.later(10.0 * at), event=event, agent="coder-1", commit="c" * 40, detail=draw(texts))
        for at, event in enumerate((HistoryEvent.ADD, *events))
    ]
    return boards.task(
        f"task-{number}",
        status,
        description=draw(texts),
        history=tuple(history),
        assigned_to=draw(st.sampled_from((None, "coder-1", "coder-2"))),
        blocked_questions=(draw(texts),) if status is Status.BLOCKED else (),
        rejection_reason=draw(texts),
        epic=draw(st.sampled_from((None, "epic-1"))),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """A crew with all parts read."""
    listed = tuple(draw(tasks(number)) for number in range(draw(st.integers(0, 6))))
    state = boards.board(*listed)
    waits = [AlarmKind.BLOCKED.alarm(task.id, reason=draw(texts), question=draw(texts)) for task in listed[::2]]
    waits += [AlarmKind.BREAKER_TRIPPED.alarm("crew", text=draw(texts), step="liza breaker")] * draw(st.integers(0, 1))
    news = [AlarmKind.PROGRAM_CRASHED.alarm("coder-1", text=draw(texts), reason=draw(texts), agent="coder-1")]
    agents = [
        AgentRow(
            id=name, role="coder", status=status, run=f"{name}.1", why=draw(texts), program=draw(texts), context=40
        )
        for name, status in (("coder-1", "WORKING"), ("coder-2", "IDLE"), ("code-reviewer-1", "OFFLINE"))
    ]
    costs = draw(st.sampled_from((Costs(), Costs(money=3.5, sessions=2, unpriced=1), Costs(unreadable="line 3"))))
    now = boards.later(4000)
    facts = CrewFacts(
        now=now,
        state=state,
        agents=tuple(agents[: draw(st.integers(0, 3))]),
        alarms=tuple(news),
        waiting=tuple(waits),
        signals={"PAUSE": draw(texts)} if draw(st.booleans()) else {},
        costs=costs,
    )
    usage = UsageBreakdown(by_task={draw(texts): UsageRow(sessions=1, seconds=9, unpriced=1)})
    account = AccountState("a/b", "a", "b", "s", "", "limited", now + timedelta(hours=1), draw(texts), (), None)
    return Snapshot(
        time=now,
        wanted=Wanted(),
        picture=build_picture(facts),
        latest=PastNews(recall_news(state)),
        queue=QueueReport(queue_rows(state, now), (), (), merging=False, left=find_exits(state)),
        costs=UsageReport("sprint-1", ("by_task",), usage),
        accounts=AccountReport("accounts.toml", (account,), ok=True, notices=()),
    )
