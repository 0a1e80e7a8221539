"""The screen Agents: what each agent does, since when, by which evidence, and why it does not work; their accounts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from liza.model.statuses import AgentWord
from liza.printing.columns import format_clock, format_day, shorten_program
from liza.text.formats import count_noun
from liza.ui.rules.filtering import lists_agent, waiting_subjects
from liza.ui.rules.lines import Cell, Line, Target, TargetKind, Tone, cut_line, make_row, make_rule, text_line
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import Snapshot, Unread
from liza.ui.rules.task_lines import AGE_CELLS, NARROW_BELOW, WIDE_FROM, age_since, name_cells, wrap_words
from liza.usage.program_accounts import AccountReport, AccountState
from liza.view.rules.structs import AgentLine, AgentRow, Picture

AGENT_SIGNS: Final = {
    AgentWord.WORKING: (">", Tone.CYAN),
    AgentWord.IDLE: (".", Tone.DIM),
    AgentWord.WAITS_FOR_YOU: ("!", Tone.RED),
    AgentWord.WAITS_UNTIL: ("z", Tone.YELLOW),
    AgentWord.STUCK: ("!", Tone.RED),
    AgentWord.OFF: ("-", Tone.DIM),
}
"""Sign and tone of each word of an agent."""
_WORD_CELLS, _CONTEXT_CELLS = 13, 4
_INDENT = "    "


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the lines of the screen."""
    picture = snapshot.picture
    assert isinstance(picture, Picture)
    if not picture.agents:
        return (text_line("no agents yet: liza up"),)
    lines = (*_agents(picture, snapshot.accounts, view), *_accounts(snapshot.accounts, view))
    return tuple(cut_line(line, view.list_columns) for line in lines)


def _agents(picture: Picture, accounts: AccountReport | Unread | None, view: PictureView) -> Iterator[Line]:
    waiting = waiting_subjects(picture)
    lines = [line for line in picture.agents if lists_agent(view.filter, line, waiting)]
    yield make_rule(f"AGENTS  {len(lines)}", view.list_columns)
    for line in lines:
        yield _agent_row(line, picture, view.list_columns)
        details = " · ".join(agent_details(line, _account_of(line.row, accounts)))
        for part in wrap_words(details, max(1, view.list_columns - len(_INDENT))):
            yield text_line(part, Tone.DIM, indent=_INDENT)


def _agent_row(line: AgentLine, picture: Picture, width: int) -> Line:
    row, (sign, tone) = line.row, AGENT_SIGNS[line.word]
    cells = [Cell(sign, 1, tone), Cell(row.id, name_cells(width))]
    if width >= NARROW_BELOW:
        cells.append(Cell(agent_word_text(line, picture.time), _WORD_CELLS, tone))
        cells.append(Cell("" if row.context is None else f"{row.context}%", _CONTEXT_CELLS, is_right=True))
    cells.append(Cell(row.current_task or (row.doing or "" if line.word is AgentWord.WORKING else "")))
    if width >= WIDE_FROM:
        cells.append(Cell(shorten_program(row.program), 24))
    if width >= NARROW_BELOW:
        since = row.since or row.state_since
        cells.append(Cell(age_since(since, picture.time), AGE_CELLS, Tone.DIM, is_right=True))
    return make_row(cells, width, Target(TargetKind.AGENT, row.id))


def agent_word_text(line: AgentLine, now: datetime) -> str:
    """Return the word of an agent, with the time until which it waits."""
    if line.word is AgentWord.WAITS_UNTIL and line.row.until is not None:
        return f"until {_clock_text(line.row.until, now)}"
    return str(line.word)


def _clock_text(when: datetime, now: datetime) -> str:
    """Return a time of day in the local time zone, or another day."""
    local = when.astimezone()
    return f"{local:%H:%M}" if local.date() == now.astimezone().date() else format_day(when, now)


def agent_details(line: AgentLine, account: AccountState | None = None) -> Iterator[str]:
    """Yield why an agent does not work, how its state is known, and what its session used."""
    row = line.row
    if line.reason and line.reason != row.doing:
        yield line.reason
    if row.evidence and row.evidence not in line.reason:
        source = f" (reported by {row.reported_by})" if row.reported_by else ""
        yield f"{row.evidence}{source}"
    used = [
        row.program or "",
        row.model or "",
        "" if row.calls is None else count_noun(row.calls, "tool call"),
        "" if row.tokens is None else count_noun(row.tokens, "token"),
        f"context {row.context}% full" if row.context is not None else "",
        f"{count_noun(row.denials, 'call')} denied by guards" if row.denials else "",
        "" if account is None else f"account {account.id}, {_account_state(account)}",
    ]
    if row.run and line.word is not AgentWord.OFF:
        yield ", ".join([row.run, *filter(None, used)])
    if row.unmeasured:
        yield f"not measured: {row.unmeasured}"


def _account_of(row: AgentRow, accounts: AccountReport | Unread | None) -> AccountState | None:
    rows = accounts.accounts if isinstance(accounts, AccountReport) else ()
    return next((account for account in rows if row.run in account.used_by), None)


def _account_state(account: AccountState) -> str:
    if account.problem:
        return f"has a problem: {account.problem}"
    until = "" if account.until is None else f" until {format_clock(account.until)}"
    return f"{account.state}{until}{f': {account.reason}' if account.reason else ''}"


def _accounts(accounts: AccountReport | Unread | None, view: PictureView) -> Iterator[Line]:
    if isinstance(accounts, Unread):
        yield text_line(f"? the accounts cannot be read: {accounts.reason}: {accounts.next}", Tone.RED)
    if not isinstance(accounts, AccountReport) or not accounts.accounts:
        return
    width = view.list_columns
    yield make_rule(f"ACCOUNTS  {len(accounts.accounts)}", width)
    for account in accounts.accounts:
        is_usable = account.problem is None and account.until is None and account.reason is None
        sign, tone = ("=", Tone.PLAIN) if is_usable else ("z", Tone.YELLOW)
        users = f"   used by {', '.join(account.used_by)}" if account.used_by else ""
        cells = (Cell(sign, 1, tone), Cell(account.id, name_cells(width)), Cell(f"{_account_state(account)}{users}"))
        yield make_row(cells, width)
