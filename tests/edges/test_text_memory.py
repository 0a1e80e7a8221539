"""Memory that large boards have used returns to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from liza.board.text import text_memory
from liza.board.text.text_memory import PAUSE, MemoryReturns

HAS_TRIM = hasattr(ctypes.CDLL(None), "malloc_trim")
FREE_BELOW_A_USED_BLOCK = """
import sys
from liza.board.text.text_memory import return_unused_memory

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

texts, kept = [], []
for _ in range(500):
    texts.append(bytearray(60_000))
    kept.append(bytearray(600))
before = resident()
texts.clear()
if sys.argv[1] == "yes":
    assert return_unused_memory()
print(before - resident() > 15_000_000)
"""


@pytest.mark.skipif(not HAS_TRIM, reason="the C library has no malloc_trim")
@pytest.mark.parametrize(("is_returned", "is_less"), [("yes", "True"), ("no", "False")])
def test_free_memory_between_used_blocks_returns_to_the_system(is_returned: str, is_less: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", FREE_BELOW_A_USED_BLOCK, is_returned], capture_output=True, text=True, check=False
    )
    assert (child.stdout.strip(), child.stderr) == (is_less, "")


def test_memory_is_returned_at_most_once_in_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[float] = []
    now = [100.0]
    monkeypatch.setattr(text_memory, "return_unused_memory", lambda: returned.append(now[0]))
    returns = MemoryReturns(lambda: now[0])
    for now[0] in (100.0, 100.0 + PAUSE / 2, 100.0 + PAUSE, 101.0 + PAUSE, 100.0 + 3 * PAUSE):
        returns.return_if_due()
    assert returned == [100.0 + PAUSE, 100.0 + 3 * PAUSE]
