"""`liza status --json` on each of three hosts just after one was cut off, and after PostgreSQL was stopped."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.postgresql import PostgreSQL
from tests.several_hosts import Host, several_hosts, wait_until

pytestmark = pytest.mark.campaign
SOCKET = ".s.PGSQL.5432"
WORK = "#!/bin/sh\nliza ready > /dev/null\nsleep 300\n"


@pytest.fixture
def hosts(postgresql: PostgreSQL) -> Iterator[dict[str, Host]]:
    """Three hosts; a coder works on each."""
    base = Path(tempfile.mkdtemp(prefix="lz-", dir="/tmp"))
    database = postgresql.create_database()
    with several_hosts(base, ("h1", "h2", "h3"), postgresql.sockets / SOCKET) as (_, hosts):
        first, *others = hosts.values()
        first.clone_remote()
        (first.clone / "README.md").write_text("# Shop\n")
        first.git("add", "-A")
        first.git("commit", "-q", "-m", "A shop")
        first.git("push", "-q", "origin", "HEAD:main")
        url = first.board_url("shop", database)
        first.liza("init", "A shop", "--board", url, "--host", "h1", "--no-test", "--confinement", "off")
        fields = [
            {
                "id": name,
                "description": "Write",
                "done_when": "it is there",
                "scope": f"{name}.txt",
                "spec_ref": "README.md",
            }
            for name in ("one", "two", "three")
        ]
        first.liza("task", "add", "--file", "-", stdin=json.dumps(fields))
        for host in others:
            host.clone_remote()
            host.liza("join", host.board_url("shop", database), "--host", host.name)
        for number, host in enumerate(hosts.values()):
            program = host.base / "coder.sh"
            program.write_text(WORK)
            program.chmod(0o755)
            host.liza("up", f"coder-{number + 1}", "--program", f"coder=script:{program}", "--detach")
        wait_until(lambda: len(_working(first.status())) == 3, "three coders work", 120)
        for host in hosts.values():
            host.status()  # the copy that is shown later
        yield hosts


def _working(status: dict[str, Any]) -> list[str]:
    return [agent["id"] for agent in status["agents"] if agent["current_task"]]


def _look(host: Host, what: str) -> dict[str, Any]:
    """The picture, whatever its exit status, and how long it took."""
    began = time.monotonic()
    done = host.try_liza("status", "--json")
    print(f"{what}: {host.name} after {time.monotonic() - began:.1f} s, exit {done.returncode} {done.stderr[:300]}")
    data: dict[str, Any] = json.loads(done.stdout)
    print(f"    {json.dumps(data['board'])[:700]}")
    return data


def test_each_host_names_what_is_lost_after_a_cut(hosts: dict[str, Host], postgresql: PostgreSQL) -> None:
    hosts["h2"].cut()
    for name in ("h1", "h3"):
        board = _look(hosts[name], "h2 is cut off")["board"]
        row = next(row for row in board["hosts"] if row["name"] == "h2")
        assert row["agents"] == ["coder-2"]
        assert row["seen"] < row["takeover"]
        assert board["age"] is None
        assert board["next"] == "liza host list"
    cut = _look(hosts["h2"], "h2 is cut off")
    assert cut["board"]["age"] > 0
    assert 0 <= cut["board"]["sessions_end"] <= 30
    assert 0 <= cut["board"]["takeover_in"] <= 60
    assert cut["board"]["next"] == "liza doctor"
    wait_until(lambda: "host_silent" in _kinds(hosts["h1"].status()), "h1 reports the silent host", 60)
    alert = next(alert for alert in hosts["h1"].status()["alerts"] if alert["kind"] == "host_silent")
    print(f"    {alert}")
    assert alert["next"].startswith("liza host ")
    postgresql.stop()
    try:
        for host in hosts.values():
            board = _look(host, "PostgreSQL is stopped")["board"]
            assert board["age"] > 0
            assert 0 <= board["sessions_end"] <= 30
    finally:
        postgresql.start()
        hosts["h2"].heal()


def _kinds(status: dict[str, Any]) -> set[str]:
    return {alert["kind"] for alert in status["alerts"]}
