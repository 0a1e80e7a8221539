"""The ledger of what sessions used: a line that was torn is told again, one of somebody's own making is named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liza.model.errors import LizaError
from liza.model.paths import Paths
from liza.model.spending import LedgerEntry, TokenUsage
from liza.usage import ledger

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / ".liza").mkdir()
    return Paths(tmp_path)


def spent(run: str, tokens: int = 1) -> LedgerEntry:
    used = TokenUsage(input=tokens)
    return LedgerEntry(run=run, time=NOW, kind="work", program="p", outcome="finished", seconds=1, used=used)


def test_a_session_reported_twice_counts_once_with_the_last_values(paths: Paths) -> None:
    assert ledger.read_entries(paths) == ()
    for one in (spent("coder-1.1"), spent("coder-1.2"), spent("coder-1.1", 5)):
        ledger.append_entry(paths, one)
    assert ledger.read_entries(paths) == (spent("coder-1.1", 5), spent("coder-1.2"))


def test_a_line_torn_by_a_crash_is_skipped_and_harmless(paths: Paths) -> None:
    ledger.append_entry(paths, spent("coder-1.1"))
    with paths.usage.open("ab") as file:
        file.write(b'{"run":"coder-1.2","ti')
    assert ledger.read_entries(paths) == (spent("coder-1.1"),)
    ledger.append_entry(paths, spent("coder-1.2"))
    assert ledger.read_entries(paths) == (spent("coder-1.1"), spent("coder-1.2"))


def test_many_at_once_lose_no_line(paths: Paths) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ledger.append_entry(paths, spent(f"coder-1.{number}")), range(100)))
    assert len(ledger.read_entries(paths)) == 100


def test_a_malformed_line_is_named_with_the_command_removing_it(paths: Paths) -> None:
    ledger.append_entry(paths, spent("coder-1.1"))
    with paths.usage.open("ab") as file:
        file.write(b"nonsense\n")
    with pytest.raises(LizaError, match=r"usage\.jsonl:2 cannot be read") as refused:
        ledger.read_entries(paths)
    assert refused.value.hint == f"sed -i 2d {paths.usage}"


def test_a_long_torn_line_is_dropped_whole_and_nothing_else(paths: Paths) -> None:
    for torn in (1, 65_535, 65_536, 65_537, 200_000):
        ledger.append_entry(paths, spent("coder-1.1", torn))
        with paths.usage.open("ab") as file:
            file.write(b"x" * torn)
        ledger.append_entry(paths, spent("coder-1.2", torn))
        assert ledger.read_entries(paths) == (spent("coder-1.1", torn), spent("coder-1.2", torn))
    paths.usage.write_bytes(b"x" * 70_000)
    ledger.append_entry(paths, spent("coder-1.1"))
    assert ledger.read_entries(paths) == (spent("coder-1.1"),)
