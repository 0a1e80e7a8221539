"""Usage of recorded sessions of real programs, beside what each program says of it itself.

`sessions.json` has the sessions of each program in order: a plain one, one that resumes its conversation, one with a
helper (sub-agent), one in which the model fails. ``requests`` is what the scripted model answered: each answer took
1,000 input tokens, 100 of them cached, and 50 output tokens, 10 of them thoughts.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from liza.model.paths import Paths
from liza.model.spending import LedgerEntry, TokenUsage, usage_since
from liza.programs.presets import preset_table
from liza.programs.reported_figures import ReportedUsage
from liza.programs.session.run_directory import RunDir
from liza.usage import ledger
from liza.usage.meter import LATER_SEARCH_INTERVAL, Meter
from tests.conftest import FakeClock

RECORDED = Path(__file__).parents[2] / "data" / "recorded"
SESSIONS = json.loads((RECORDED / "sessions.json").read_text())
SECOND = timedelta(seconds=1)
PROGRAMS = sorted({entry["program"] for entry in SESSIONS})


class Session(NamedTuple):
    program: str
    name: str
    conversation: str
    started: datetime
    ended: datetime
    requests: int
    told: dict[str, int]


def sessions_of(program: str) -> list[Session]:
    return [
        Session(
            program,
            entry["session"],
            entry["conversation"],
            datetime.fromisoformat(entry["started"]).replace(microsecond=0),
            datetime.fromisoformat(entry["ended"]).replace(microsecond=0),
            entry["requests"],
            entry.get("told", {}),
        )
        for entry in SESSIONS
        if entry["program"] == program
    ]


def objects(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text().splitlines())


def output(session: Session) -> list[dict[str, Any]]:
    return list(objects(RECORDED / session.program / f"{session.name}.jsonl"))


def journal_lines(session: Session, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines of a type that the program wrote during the session, with the names of their files."""
    for path in sorted((RECORDED / session.program / "home").rglob("*.jsonl")):
        for line in objects(path):
            if line.get("type") == kind and datetime.fromisoformat(line["timestamp"]) < session.ended + SECOND:
                yield path.name, line


def summed(tables: list[dict[str, Any]], taken: tuple[str, ...], given: tuple[str, ...]) -> TokenUsage:
    return TokenUsage(
        input=sum(table[key] for table in tables for key in taken),
        output=sum(table[key] for table in tables for key in given),
    )


def by_claude(session: Session) -> TokenUsage:
    result = output(session)[-1]
    taken = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    used = summed(list(result["modelUsage"].values()), taken, ("outputTokens",))
    return TokenUsage(input=used.input, output=used.output, cost=result["total_cost_usd"])


def by_codex(session: Session) -> TokenUsage:
    """The newest totals of the threads that the session wrote to."""
    threads: dict[str, TokenUsage] = {}
    earlier: dict[str, TokenUsage] = {}
    for name, line in journal_lines(session, "token_usage_record"):
        total = summed([line["payload"]["thread_token_usage"]], ("input_tokens",), ("output_tokens",))
        is_earlier = datetime.fromisoformat(line["timestamp"]) < session.started
        (earlier if is_earlier else threads)[name] = total
    zero = TokenUsage()
    return sum((usage_since(total, earlier.get(name, zero)) for name, total in threads.items()), zero)


def by_gemini(session: Session) -> TokenUsage:
    stats = output(session)[-1]["stats"]
    return TokenUsage(input=stats["input_tokens"], output=stats["total_tokens"] - stats["input_tokens"])


def by_qwen(session: Session) -> TokenUsage:
    return summed([output(session)[-1]["usage"]], ("input_tokens",), ("output_tokens",))


def by_copilot(session: Session) -> TokenUsage:
    *_, line = (line for _, line in journal_lines(session, "session.shutdown"))
    tables = [model["usage"] for model in line["data"]["modelMetrics"].values()]
    return summed(tables, ("inputTokens",), ("outputTokens",))


def by_pi(session: Session) -> TokenUsage:
    (end,) = (line for line in output(session) if line["type"] == "agent_end")
    tables = [message["usage"] for message in end["messages"] if message["role"] == "assistant"]
    return summed(tables, ("input", "cacheRead", "cacheWrite"), ("output",))


def by_vibe(session: Session) -> TokenUsage:
    told = json.loads((RECORDED / session.program / f"{session.name}.export.json").read_text())
    return summed([told["usage"]], ("input_tokens",), ("output_tokens",))


def by_opencode(session: Session) -> TokenUsage:
    """The sums in its table of sessions, when the session had ended."""
    return summed([session.told], ("input",), ("output",))


TOLD: dict[str, Callable[[Session], TokenUsage]] = {
    "claude": by_claude,
    "codex": by_codex,
    "copilot": by_copilot,
    "gemini": by_gemini,
    "opencode": by_opencode,
    "pi": by_pi,
    "qwen": by_qwen,
    "vibe": by_vibe,
}
TOTALS_OF_CONVERSATION = {"copilot", "opencode", "qwen"}
"""Programs whose own sum continues when the conversation is resumed."""


class Measured(NamedTuple):
    session: Session
    living: ReportedUsage | None
    final: ReportedUsage | None


def measure(program: str, root: Path, clock: FakeClock, home: Path) -> list[Measured]:
    """Measure the program's sessions one after the other, each until its end, as one agent's."""
    measured = []
    for number, session in enumerate(sessions_of(program), 1):
        directory = RunDir(Paths(root), f"coder-1.{number}")
        directory.path.mkdir(parents=True)
        preset = preset_table.load_presets(directory.paths).rows[program]
        shutil.copy(RECORDED / program / f"{session.name}.jsonl", directory.output_path)
        export = RECORDED / program / f"{session.name}.export.json"
        if export.exists():
            (directory.path / "export").mkdir()
            shutil.copy(export, directory.path / "export" / "export.json")
            # Its output does not name the conversation, its commands do.
            (directory.path / "conversation").write_text(session.conversation)
        environ = {"HOME": str(home)}
        living = Meter(preset, directory, session.started, environ, clock.monotonic, session.ended)
        living.measure(10.0)
        clock.advance(LATER_SEARCH_INTERVAL)
        report = living.measure(10.0)
        meter = Meter(preset, directory, session.started, environ, clock.monotonic, session.ended)
        final = meter.final_usage()
        entry = LedgerEntry(
            run=directory.run,
            time=session.ended,
            kind="work",
            program=program,
            outcome="finished",
            seconds=1.0,
            used=final.used if final else None,
            conversation=meter.conversation,
        )
        ledger.append_entry(directory.paths, entry)
        used = None if report.used is None else ReportedUsage(report.used, report.models)
        measured.append(Measured(session, used, final))
    return measured


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_usage_of_a_session_is_what_its_program_reports(program: str, tmp_path: Path, clock: FakeClock) -> None:
    conversations: dict[str, TokenUsage] = {}
    for session, living, final in measure(program, tmp_path, clock, RECORDED / program / "home"):
        told = TOLD[program](session)
        if program in TOTALS_OF_CONVERSATION:
            earlier = conversations.get(session.conversation, TokenUsage())
            conversations[session.conversation] = told
            told = usage_since(told, earlier)
        assert final is not None
        ours = TokenUsage(input=final.used.input, output=final.used.output, cost=final.used.cost)
        print(program, session.name, "ours", ours, "its own", told)
        assert ours == told
        # A title that it asks a model for is in no record of this program.
        titles = int(program == "opencode" and session.name != "resume")
        assert (ours.input, ours.output) == (1000 * (session.requests - titles), 50 * (session.requests - titles))
        assert living is not None
        assert (living.used.input, living.used.output) == (ours.input, ours.output), "while it works"
        if final.models:
            assert sum(used.tokens for used in final.models.values()) == ours.tokens


@pytest.mark.parametrize("program", ["codex", "qwen"])
def test_a_resumed_conversation_counts_once_without_its_journal(program: str, tmp_path: Path, clock: FakeClock) -> None:
    plain, resumed, *_ = measure(program, tmp_path, clock, tmp_path)
    assert plain.final is not None
    assert resumed.final is not None
    assert plain.final.used == resumed.final.used == TokenUsage(input=2000, cached=200, output=100)
    assert resumed.living is not None
    assert resumed.living.used == resumed.final.used
