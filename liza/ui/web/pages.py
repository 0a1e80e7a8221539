"""Draw a page: a snapshot of the crew in, HTML in sections out. The only module that imports jinja2.

A section is a part of the page that the stream of changes replaces by itself. Every text is cleaned of control
characters and escaped in one place, the environment below: texts come from agents.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from liza.crew.caller import current_person
from liza.merging.queue import QueueReport
from liza.model.alarm_table import AlarmRow
from liza.model.derived import status_since
from liza.model.model import Status, Task
from liza.model.narration import NewsItem
from liza.model.paths import PERSON_PREFIX
from liza.model.statuses import TASK_WORDS, TaskWord
from liza.model.value_classes import Value, replace
from liza.printing.columns import format_local_time, strip_controls
from liza.printing.render_queue import format_batch, format_gates
from liza.printing.render_session import SessionStyle, format_session
from liza.text.formats import count_noun, format_duration
from liza.ui.facts import COST_GROUPS
from liza.ui.rules import offers
from liza.ui.rules.agent_list import AGENT_SIGNS, agent_details, agent_word_text
from liza.ui.rules.lines import Line, Target, TargetKind, painted_lines
from liza.ui.rules.snapshot import SCREEN_PARTS, ScreenName, SessionPage, Snapshot, TaskPage, Unread, Wanted
from liza.ui.rules.task_lines import TASK_SIGNS, age_since, alarm_target, alarm_text
from liza.ui.web.page_actions import PageWork, TakenAction, encode_drawn, slug_of
from liza.ui.web.page_diff import DiffPart, PageDiff, show_diff
from liza.usage.costs import UsageRow
from liza.view.history import PastNews
from liza.view.metrics import UsageReport
from liza.view.rules.structs import AgentLine, Picture, TaskRow

MAX_ROWS: Final = 30
"""Rows of a list that a page shows; a link leads to the rest."""
TABS: Final = {
    ScreenName.NOW: "/",
    ScreenName.BOARD: "/board",
    ScreenName.AGENTS: "/agents",
    ScreenName.QUEUE: "/queue",
    ScreenName.COSTS: "/costs",
    ScreenName.HISTORY: "/history",
}
"""The screens with a tab, and their addresses."""
COLUMNS: Final[Mapping[ScreenName, tuple[tuple[str, ...], ...]]] = {
    ScreenName.NOW: (("state", "waits", "news"), ("agents", "work", "fix"), ("review", "todo", "merged", "crew")),
    ScreenName.BOARD: (("asks", "fix", "work"), ("review",), ("todo",), ("merged", "given_up", "epics")),
    ScreenName.AGENTS: (("agents", "accounts"),),
    ScreenName.QUEUE: (("queue", "batches"), ("left", "gates", "landing")),
    ScreenName.COSTS: (("costs",),),
    ScreenName.HISTORY: (("history",),),
    ScreenName.SESSION: (("about", "events", "actions"),),
    ScreenName.TASK: (("about", "question", "story"), ("tests", "diff", "verdict", "actions")),
}
"""The sections of each screen, in columns: on a phone they are below each other in this order."""
END_ACTIONS: Final = {
    slug_of(name): name for name in offers.ActionName if offers.class_of(name) is offers.ActionClass.END
}
"""Actions with a page of their own, by the name in its address."""
_VOLATILE: Final = re.compile(r"(<time [^>]*>)[^<]*</time>")
"""What differs each time although nothing has changed: ages."""


LossFinder = Callable[[offers.Offer], tuple[str, ...]]


class PageKey(Value):
    """A page: a screen with its subject. ``is_all``: with all rows. ``hunk``: number of the hunk that is commented.

    ``action``: the page is that of an action on the subject.
    """

    wanted: Wanted
    is_all: bool = False
    hunk: int | None = None
    action: offers.ActionName | None = None


class Section(Value):
    """A part of a page. ``digest`` is that of its HTML without what differs each time."""

    id: str
    html: str
    digest: str


class Page(Value):
    """A page with its sections in columns; ``head`` has the title line and the tabs."""

    title: str
    head: tuple[Section, ...]
    columns: tuple[tuple[Section, ...], ...]

    @property
    def sections(self) -> tuple[Section, ...]:
        """All sections."""
        return (*self.head, *(section for column in self.columns for section in column))

    @property
    def version(self) -> str:
        """What a browser has of this page: the digests of the sections, in their order."""
        return "-".join(section.digest for section in self.sections)

    def changed_parts(self, version: str) -> dict[str, str]:
        """Return the HTML of the sections that differ from those of a version; all, if it is of another page."""
        sections, before = self.sections, version.split("-")
        if len(before) != len(sections):
            before = [""] * len(sections)
        rows = zip(sections, before, strict=True)
        return {section.id: section.html for section, digest in rows if section.digest != digest}


def draw_page(
    snapshot: Snapshot, key: PageKey, work: PageWork, is_read_only: bool, find_losses: LossFinder = lambda _: ()
) -> Page:
    """Return the page. ``find_losses`` says what an action sets aside."""
    screen = key.wanted.screen
    context = PageContext(snapshot, key, work, is_read_only, find_losses)
    columns = (("end",),) if key.action else COLUMNS[screen]
    columns = (("unread",),) if context.fault_of_screen else columns
    values: dict[str, Any] = {"page": context, "picture": snapshot.picture, "snapshot": snapshot}
    for name in ("parts", "acts"):
        values[name] = environment().get_template(f"{name}.html").make_module(values)

    def draw(template: str, name: str) -> Section:
        """A fault in a section must not take the rest of the page away."""
        try:
            blocks = environment().get_template(template)
            html = "".join(blocks.blocks[name](blocks.new_context(values))).strip()
        except Exception as error:  # noqa: BLE001
            fault = f"? this part cannot be drawn: {type(error).__name__}: {error}"
            html = Markup('<p class="red">{}: <code>liza bug-report</code></p>').format(_finalize(fault))
        return Section(name, html, _digest(_VOLATILE.sub(r"\1", html)))

    template = "unread.html" if context.fault_of_screen else f"{'end' if key.action else screen.name.lower()}.html"
    head = tuple(draw("head.html", name) for name in ("head", "tabs"))
    return Page(context.title, head, tuple(tuple(draw(template, name) for name in names) for names in columns))


def render_document(page: Page, key: PageKey, **facts: Any) -> str:
    """Return the whole HTML document of a page."""
    return environment().get_template("page.html").render(page=page, key=key, **facts)


def render_login(**facts: Any) -> str:
    """Return the page that asks for the code."""
    return environment().get_template("login.html").render(**facts)


def render_refusal(**facts: Any) -> str:
    """Return the page that says why a request is refused."""
    return environment().get_template("refused.html").render(**facts)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]


class PageContext:
    """What the templates read of a snapshot, beside its parts."""

    def __init__(
        self, snapshot: Snapshot, key: PageKey, work: PageWork, is_read_only: bool, find_losses: LossFinder
    ) -> None:
        self.snapshot, self.key, self.work, self.is_read_only = snapshot, key, work, is_read_only
        self._find_losses = find_losses
        self.screen = key.wanted.screen
        self.subject = key.wanted.subject
        self.taken = work.list_taken(snapshot.time)
        self.tabs = TABS

    @property
    def picture(self) -> Picture:
        """The picture. Only where it was read."""
        assert isinstance(self.snapshot.picture, Picture)
        return self.snapshot.picture

    @property
    def waits(self) -> int | None:
        """How many wait for the person; None if that is unknown."""
        return len(self.snapshot.picture.waits) if isinstance(self.snapshot.picture, Picture) else None

    @property
    def title(self) -> str:
        """The title of the document: how much waits first."""
        waits = "?" if self.waits is None else str(self.waits)
        return f"({waits}) {self.subject or self.screen} · Liza"

    @property
    def fault_of_screen(self) -> Unread | None:
        """Why the screen cannot be drawn; None if it can."""
        if isinstance(self.snapshot.picture, Unread):
            return self.snapshot.picture
        part = SCREEN_PARTS.get(self.screen)
        value = None if part is None else getattr(self.snapshot, part)
        return value if isinstance(value, Unread) else None

    def lane(self, *words: str) -> list[TaskRow]:
        """Return the tasks with these words; those that are over the newest first."""
        rows = [row for row in self.picture.tasks if row.word in words]
        if TaskWord.MERGED in words or TaskWord.GIVEN_UP in words:
            rows.sort(key=lambda row: _seconds(row, self.picture.time))
        return rows

    def rows(self, rows: Any, limit: int = MAX_ROWS) -> Any:
        """Return what a list shows: its first rows, or all."""
        return rows if self.key.is_all else rows[:limit]

    @property
    def waiting(self) -> frozenset[str]:
        """Tasks that are among those that wait for the person: the lists below do not repeat them."""
        return frozenset(alarm.about for alarm in self.picture.waits)

    def task_reason(self, row: TaskRow) -> str:
        """Return why a task is where it is; empty if its description says it."""
        if row.waits_for:
            return f"needs {', '.join(row.waits_for)}"
        return "" if row.reason == " ".join(row.task.description.split()) else row.reason

    def form_id(self, offer: offers.Offer) -> Markup:
        """Return the id of a form: the same form sent twice is one action."""
        return Markup(self.work.form_id(offer))

    def target_url(self, alarm: AlarmRow) -> str:
        """Return the address of what an alarm is about; empty if that has no page."""
        return _url_of(alarm_target(alarm, self.picture))

    def list_offers(self, target: Target | None) -> tuple[offers.Offer, ...]:
        """Return what the page offers on a target: nothing while only looking, or while the crew cannot be read."""
        if self.is_read_only or self.snapshot.fault is not None:
            return ()
        everything = offers.offer_actions(self.picture, target, self.work.comments)
        return tuple(offer for offer in everything if offer.name not in offers.OUTSIDE)

    def offers_for_alarm(self, alarm: AlarmRow) -> tuple[offers.Offer, ...]:
        """Return the actions that answer an alarm where it is listed."""
        # By its command: another alarm about a task that asks is not answered with the question's answer.
        names: set[offers.ActionName] = set()
        if alarm.next.startswith("liza answer"):
            names = {offers.ActionName.ANSWER}
        elif alarm.next.startswith("liza resume"):
            names = {offers.ActionName.RESOLVE, offers.ActionName.RESUME}
        elif alarm.next.startswith("liza task edit"):
            names = {offers.ActionName.COMPLETE}
        elif alarm.next.startswith("liza queue"):
            names = {offers.ActionName.RETRY, offers.ActionName.UNHOLD}
        return tuple(row for row in self.list_offers(alarm_target(alarm, self.picture)) if row.name in names)

    @cached_property
    def offers_for_subject(self) -> tuple[offers.Offer, ...]:
        """The actions on the task or agent of the page."""
        return tuple(row for row in self.list_offers(self._target) if row.subject)

    @property
    def _target(self) -> Target:
        is_agent = self.screen is ScreenName.SESSION or self.key.action is offers.ActionName.STOP
        return Target(TargetKind.AGENT, self.session_id) if is_agent else Target(TargetKind.TASK, self.subject)

    @property
    def answers(self) -> tuple[offers.Offer, ...]:
        """The answer to what the task asks."""
        return tuple(row for row in self.offers_for_subject if row.name is offers.ActionName.ANSWER)

    @property
    def verdicts(self) -> tuple[offers.Offer, ...]:
        """Approval and rejection of the commit."""
        return tuple(row for row in self.offers_for_subject if row.name in _VERDICTS)

    @property
    def other_offers(self) -> tuple[offers.Offer, ...]:
        """The actions that have no section of their own."""
        return tuple(row for row in self.offers_for_subject if row not in (*self.answers, *self.verdicts))

    @property
    def comment_offer(self) -> offers.Offer | None:
        """The comment on lines of the diff; None if no rejection could send it."""
        offer = offers.find_offer(self.verdicts, offers.ActionName.REJECT)
        return None if offer is None else replace(offer, name=offers.ActionName.COMMENT, comments=())

    @property
    def ending(self) -> offers.Offer | None:
        """The action that the page is for; None if it is not possible now."""
        return None if self.key.action is None else offers.find_offer(self.offers_for_subject, self.key.action)

    @property
    def losses(self) -> tuple[str, ...]:
        """What that action ends and sets aside."""
        return () if self.ending is None else self._find_losses(self.ending)

    def command_of(self, offer: offers.Offer) -> str:
        """Return the command that does the same, with `…` for what is typed."""
        texts = ["" if blank.is_optional else blank.text or "…" for blank in offer.blanks]
        return shlex.join(offers.command_of(offer, texts))

    @cached_property
    def diff(self) -> PageDiff | Unread:
        """The diff of the task of the page."""
        diff = self.task_page.diff
        if isinstance(diff, Unread):
            return diff
        return show_diff(diff, self.work.comments, is_all=self.key.is_all, hunk=self.key.hunk)

    def offers_for_queue(self, task_id: str) -> tuple[offers.Offer, ...]:
        """Return what lets a task of the merge queue go on; moves and holds are on its page."""
        return tuple(row for row in self.list_offers(Target(TargetKind.TASK, task_id)) if row.name in _OF_QUEUE)

    def is_reviewed(self, alarm: AlarmRow) -> bool:
        """Return whether an alarm is about a task whose commit the person can judge on its page."""
        task = offers.find_task(self.picture, alarm.about)
        return task is not None and task.status is Status.READY_FOR_REVIEW

    def offers_for_signals(self) -> tuple[offers.Offer, ...]:
        """Return what clears the signals that no alarm is about."""
        names = (offers.ActionName.RESOLVE, offers.ActionName.RESUME)
        return tuple(row for row in self.offers_for_crew() if row.name in names) if self.picture.signals else ()

    def offers_for_crew(self) -> tuple[offers.Offer, ...]:
        """Return the actions on the whole crew that no alarm offers."""
        alarms = {row.name for alarm in self.picture.waits for row in self.offers_for_alarm(alarm)}
        return tuple(row for row in self.list_offers(None) if row.name not in alarms)

    def taken_at(self, section: str) -> tuple[TakenAction, ...]:
        """Return what was done lately in a section of the page."""
        return tuple(row for row in self.taken if self._section_of(row) == section)

    def _section_of(self, row: TakenAction) -> str:
        if self.screen is ScreenName.NOW:
            is_of_crew = not row.subject and row.name not in (offers.ActionName.RESUME, offers.ActionName.RESOLVE)
            return "crew" if is_of_crew else "waits"
        if self.screen is ScreenName.QUEUE:
            return "queue" if row.name in _OF_QUEUE else ""
        if row.subject not in (self.subject, self.session_id):
            return ""
        if self.key.action is not None:
            return "end" if row.name is self.key.action else ""
        if row.name is offers.ActionName.ANSWER:
            return "question"
        return "verdict" if row.name in _VERDICTS or row.name is offers.ActionName.COMMENT else "actions"

    @property
    def url(self) -> str:
        """The address of the page."""
        return url_of_page(self.key)

    def url_of_hunk(self, number: int | None) -> str:
        """Return the address of the page with a form for a comment on a hunk, or without any."""
        return url_of_page(replace(self.key, hunk=number))

    @property
    def url_of_subject(self) -> str:
        """The address of the task or agent of the page."""
        return _url_of(self._target)

    @property
    def session_id(self) -> str:
        """The agent whose session is shown."""
        return self.subject.partition(".")[0]

    @property
    def session_agent(self) -> AgentLine | None:
        """The agent of the session; None if the run is over."""
        page = self.snapshot.session
        assert isinstance(page, SessionPage)
        return next(
            (line for line in self.picture.agents if line.row.id == self.session_id and page.run in ("", line.row.run)),
            None,
        )

    @property
    def newest_events(self) -> tuple[NewsItem, ...]:
        """What happened, the newest first."""
        assert isinstance(self.snapshot.latest, PastNews)
        return tuple(reversed(self.snapshot.latest.items))

    def count_unseen(self) -> int | None:
        """Return how many events are newer than the person's last visit; None if that is unknown."""
        seen = self.work.seen
        return None if seen is None else sum(item.time is not None and item.time > seen for item in self.newest_events)

    @property
    def cost_tables(self) -> Iterator[tuple[str, Sequence[tuple[str, UsageRow]]]]:
        """The tables of usage: the name of the group, and its rows, the largest first."""
        assert isinstance(self.snapshot.costs, UsageReport)
        for group in COST_GROUPS:
            rows = getattr(self.snapshot.costs.usage, f"by_{group}").items()
            yield group, sorted(rows, key=lambda row: -(row[1].money or 0.0))

    def task_of(self, name: str) -> Task | None:
        """Return a task of the board; None if there is none."""
        return offers.find_task(self.picture, name)

    @property
    def task_ids(self) -> frozenset[str]:
        """The tasks of the board."""
        return frozenset(row.task.id for row in self.picture.tasks)

    @property
    def batch_lines(self) -> tuple[Line, ...]:
        """The batches under test, as `liza queue` prints them."""
        return tuple(line for batch in self._queue.batches for line in painted_lines(format_batch(batch, True)))

    @property
    def gate_lines(self) -> tuple[Line, ...]:
        """The gates, as `liza queue` prints them."""
        return tuple(painted_lines(format_gates(self._queue, True)))

    @property
    def _queue(self) -> QueueReport:
        assert isinstance(self.snapshot.queue, QueueReport)
        return self.snapshot.queue

    @property
    def session_lines(self) -> tuple[Line, ...]:
        """The events of the session, as `liza logs` prints them."""
        page = self.snapshot.session
        assert isinstance(page, SessionPage)
        text = "\n".join(format_session(page.events, SessionStyle(None, with_colours=True, with_times=True)))
        return tuple(painted_lines(text)) if text else ()

    @property
    def task_page(self) -> TaskPage:
        """The task of the page."""
        assert isinstance(self.snapshot.task, TaskPage)
        return self.snapshot.task


def url_of_page(key: PageKey) -> str:
    """Return the address of a page."""
    wanted = key.wanted
    if key.action is not None:
        return f"/do/{slug_of(key.action)}/{quote(wanted.subject)}"
    path = TABS.get(wanted.screen) or f"/{wanted.screen.name.lower()}s/{quote(wanted.subject)}"
    query = {"all": "1"} if key.is_all else {}
    query |= {} if key.hunk is None else {"hunk": str(key.hunk)}
    return f"{path}?{urlencode(query)}" if query else path


_VERDICTS: Final = (offers.ActionName.APPROVE, offers.ActionName.REJECT)
_OF_QUEUE: Final = (offers.ActionName.RETRY, offers.ActionName.UNHOLD)


def _seconds(row: TaskRow, now: datetime) -> float:
    since = status_since(row.task)
    return float("inf") if since is None else (now - since).total_seconds()


def _url_of(target: Target) -> str:
    match target.kind:
        case TargetKind.TASK:
            return f"/tasks/{target.name}"
        case TargetKind.AGENT:
            return f"/sessions/{target.name}"
        case _:
            return ""


def _show_time(since: datetime | None, now: datetime) -> Markup | str:
    """Return an age that the browser keeps current."""
    if since is None:
        return ""
    return Markup('<time datetime="{}">{}</time>').format(since.isoformat(timespec="seconds"), age_since(since, now))


def _finalize(value: Any) -> Any:
    """Return a value for the page: texts without control characters, nothing for None."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) or not isinstance(value, str) else strip_controls(value)


_TAGS: Final = {"+": "ins", "-": "del", "@": "b"}


def _paint_runs(part: DiffPart) -> Markup:
    """Return lines of a diff. The browser leaves out the first line break, and would one of theirs."""
    html = Markup("\n")
    for run in part.runs:
        tag = _TAGS.get(run.sign)
        html += Markup("<{0}>{1}\n</{0}>").format(tag, run.text) if tag else run.text + "\n"
    return html


def _name(who: str | None) -> str:
    """Return who did something: a run, an agent, or a person, who may be the reader."""
    return "you" if who == current_person() else (who or "").removeprefix(PERSON_PREFIX)


def _money(amount: float | None) -> str:
    return "?" if amount is None else f"${amount:.2f}"


@cache
def environment() -> jinja2.Environment:
    """Return the environment of the templates: everything is escaped, a missing name is an error."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters.update(
        ago=_show_time,
        alarm_text=alarm_text,
        drawn=encode_drawn,
        duration=format_duration,
        local_time=format_local_time,
        money=_money,
        name=_name,
        noun=count_noun,
        safe_html=Markup,
        runs=_paint_runs,
        since=status_since,
        slug=slug_of,
        word=TASK_WORDS.__getitem__,
    )
    templates.globals.update(
        AGENT_SIGNS=AGENT_SIGNS,
        TASK_SIGNS=TASK_SIGNS,
        TaskWord=TaskWord,
        agent_details=agent_details,
        agent_word=agent_word_text,
    )
    return templates
