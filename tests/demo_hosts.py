"""`bin/demo-hosts`: a crew on three hosts. One host is cut off, PostgreSQL is killed, and all tasks are merged."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.postgresql import PostgreSQL, run_server
from tests.several_hosts import GitRemote, Host, run, several_hosts
from tests.tools import DIRECTORIES

TASKS = 30
TIME_LIMIT = 280.0
"""Seconds after which the demo fails."""
CUT_AT, CUT_SECONDS = 4, 80.0
"""Number of merged tasks at which a host is cut off, and for how long: longer than its lease and the grace."""
KILL_AT = 16
"""Number of merged tasks at which PostgreSQL is killed."""
AGENTS = {
    "h1": ("coder-1", "code-reviewer-1"),
    "h2": ("coder-2", "coder-3"),
    "h3": ("coder-4", "code-reviewer-2"),
}
CUT_HOST = "h2"
SOCKET = ".s.PGSQL.5432"
SETTINGS = {"restart_after_crash": 0.5, "restart_after_handoff": 0.5, "poll_interval": 2}
CODER = """\
#!/bin/sh
set -eu
liza ready > /dev/null
sleep 2
mkdir -p shop tests
name=$(echo "$LIZA_TASK" | tr - _)
printf 'NAME = "%s"\\n' "$name" > "shop/$name.py"
printf 'import unittest\\n\\nfrom shop.%s import NAME\\n\\n\\n' "$name" > "tests/test_$name.py"
printf 'class NameTest(unittest.TestCase):\\n' >> "tests/test_$name.py"
printf '    def test_name(self):\\n        self.assertEqual(NAME, "%s")\\n' "$name" >> "tests/test_$name.py"
git add -A
git diff --cached --quiet || git commit -q -m "$LIZA_TASK: a part of the shop"
liza submit
"""
TEST = """\
import unittest

from shop import NAME


class ShopTest(unittest.TestCase):
    def test_name(self):
        self.assertEqual(NAME, "shop")
"""
REVIEWER = """\
#!/bin/sh
set -eu
liza ready > /dev/null
python3 -m unittest discover -s tests -q
liza verdict approve "the tests pass"
"""


def main() -> int:
    """Run the demo and return its exit status."""
    base = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="lz-"))
    base.mkdir(exist_ok=True)
    start = time.monotonic()
    with start_server() as server, several_hosts(base, tuple(AGENTS), server.sockets / SOCKET) as (remote, hosts):
        _prepare(server, remote, hosts)
        _say(start, f"{TASKS} tasks, hosts {', '.join(hosts)}, all in {base}")
        for host in hosts.values():
            _start_agents(host)
        _say(start, "all agents are started")
        _follow(server, hosts, start)
        failures = _find_failures(remote, hosts)
    for failure in failures:
        print(f"FAILED: {failure}")
    _say(start, f"{len(failures)} checks failed" if failures else f"{TASKS} tasks merged, and all checks pass")
    return 1 if failures else 0


def start_server() -> AbstractContextManager[PostgreSQL]:
    """Start a PostgreSQL of its own, from the binaries of the system or of the wheel."""
    path = os.pathsep.join((os.environ["PATH"], *DIRECTORIES["postgresql"]))
    postgres = shutil.which("postgres", path=path)
    if postgres is None:
        raise SystemExit("no PostgreSQL is installed: apt install postgresql")
    return run_server(PostgreSQL(Path(postgres)))


def _prepare(server: PostgreSQL, remote: GitRemote, hosts: dict[str, Host]) -> None:
    """Make the project, the board and the tasks; join the other hosts."""
    database = server.create_database()
    first, *others = hosts.values()
    _create_project(first)
    first.liza("board", "migrate", first.board_url("shop", database))
    url = first.board_url("shop", database)
    first.liza("init", "A shop of many parts", "--board", url, "--host", first.name, "--confinement", "off")
    for name, value in SETTINGS.items():
        first.liza("config", "set", name, str(value))
    fields = [
        {
            "id": f"part-{number}",
            "description": f"Write part {number} of the shop",
            "done_when": "`python3 -m unittest discover -s tests -q` passes",
            "scope": [f"shop/part_{number}.py", f"tests/test_part_{number}.py"],
            "spec_ref": "README.md",
        }
        for number in range(1, TASKS + 1)
    ]
    first.liza("task", "add", "--file", "-", stdin=json.dumps(fields))
    for host in others:
        host.clone_remote()
        host.liza("join", host.board_url("shop", database), "--host", host.name)


def _create_project(host: Host) -> None:
    host.clone_remote()
    (host.clone / "shop").mkdir()
    (host.clone / "tests").mkdir()
    (host.clone / "README.md").write_text("# A shop\n\n    python3 -m unittest discover -s tests -q\n")
    (host.clone / "AGENTS.md").write_text("# Working here\n\nThe standard library only.\n")
    (host.clone / ".gitignore").write_text("__pycache__/\n")
    (host.clone / "shop" / "__init__.py").write_text('NAME = "shop"\n')
    (host.clone / "tests" / "test_shop.py").write_text(TEST)
    host.git("add", "-A")
    host.git("commit", "-q", "-m", "A small shop")
    host.git("push", "-q", "origin", "HEAD:main")


def _start_agents(host: Host) -> None:
    programs = []
    for role, text in (("coder", CODER), ("code-reviewer", REVIEWER)):
        if not any(agent.startswith(f"{role}-") for agent in AGENTS[host.name]):
            continue
        path = host.base / f"{role}.sh"
        path.write_text(text)
        path.chmod(0o755)
        programs += ["--program", f"{role}=script:{path}"]
    host.liza("up", *AGENTS[host.name], *programs, "--detach")


def _follow(server: PostgreSQL, hosts: dict[str, Host], start: float) -> None:
    """Show the progress, cut a host off, kill PostgreSQL, and wait until all tasks are merged."""
    watcher = hosts["h1"]
    merged, healed_at, is_killed, shown = 0, 0.0, False, ""
    while merged < TASKS:
        if time.monotonic() - start > TIME_LIMIT:
            raise SystemExit(f"not finished after {TIME_LIMIT:.0f} s:\n{watcher.try_liza('status').stdout}")
        status = _read_status(watcher)
        if status is not None:
            merged = sum(task["status"] == "MERGED" for task in status["tasks"])
            text = _describe(status)
            if text != shown:
                _say(start, text)
                shown = text
        if merged >= CUT_AT and not healed_at:
            hosts[CUT_HOST].cut()
            healed_at = time.monotonic() + CUT_SECONDS
            _say(start, f"host {CUT_HOST} is cut off for {CUT_SECONDS:.0f} s")
        if healed_at and time.monotonic() > healed_at:
            healed_at = float("inf")
            hosts[CUT_HOST].heal()
            _say(start, f"host {CUT_HOST} is back")
        if merged >= KILL_AT and not is_killed:
            is_killed = True
            server.kill()
            _say(start, "PostgreSQL is killed with SIGKILL")
            server.start()
            _say(start, "PostgreSQL is started again")
        time.sleep(1)
    if healed_at != float("inf"):
        hosts[CUT_HOST].heal()


def _read_status(host: Host) -> dict[str, Any] | None:
    done = host.try_liza("status", "--json")
    try:
        data: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        return None
    return data if done.returncode == 0 else None


def _describe(status: dict[str, Any]) -> str:
    counts = Counter(task["status"] for task in status["tasks"])
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _find_failures(remote: GitRemote, hosts: dict[str, Host]) -> list[str]:
    """Return a sentence for each check that fails."""
    failures = []
    first = hosts["h1"]
    alerts = first.status()["alerts"]
    failures += [f"an alarm is open: {json.dumps(alert)}" for alert in alerts]
    validation = first.try_liza("validate")
    if validation.returncode != 0:
        failures.append(f"liza validate exits with {validation.returncode}: {validation.stdout}{validation.stderr}")
    parts = [name for name in remote.git("ls-tree", "--name-only", "integration", "shop/").split() if "part_" in name]
    if len(parts) != TASKS:
        failures.append(f"integration on the remote has {len(parts)} of {TASKS} parts")
    with tempfile.TemporaryDirectory() as directory:
        run(["git", "clone", "-q", "-b", "integration", str(remote.directory), directory], Path(directory), first.env)
        words = [sys.executable, "-m", "unittest", "discover", "-s", "tests", "-q"]
        done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            failures.append(f"the tests fail on integration: {done.stderr[-500:]}")
    return failures


def _say(start: float, text: str) -> None:
    print(f"{time.monotonic() - start:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
