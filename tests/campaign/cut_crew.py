"""A crew on two hosts, one of which is cut off while its coder and reviewer work: who did what when, by one clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from liza.board.address import read_address
from liza.board.postgresql.hosts_table import HostsTable
from liza.crew.crew import find_crew
from liza.hosts import lease_file
from liza.model.errors import HostFenced, LizaError
from liza.model.model import Status
from liza.model.paths import Paths
from liza.programs import liveness
from liza.system.clock import boottime
from liza.tasks import shared_code
from tests.postgresql import PostgreSQL
from tests.several_hosts import GitRemote, Host, several_hosts, wait_until

SOCKET = ".s.PGSQL.5432"
CLOCK_SOURCE = Path(__file__).with_name("wrong_clock.c")
CUT_SECONDS, LATE_SECONDS = 90.0, 82.0
"""How long the host is cut off, and when the commands of its old runs begin."""
CODER, REVIEWER = "coder-1.1", "code-reviewer-1.1"
CODED, REVIEWED = "coded", "reviewed"
SETTINGS = {"restart_after_crash": 0.5, "restart_after_handoff": 0.5, "poll_interval": 2, "grace": 1}
TICKS = 'while :; do cat /proc/uptime >> "{}"; sleep 0.2; done\n'
"""The first number of /proc/uptime is CLOCK_BOOTTIME."""
UNSENT = """\
#!/bin/sh
set -eu
liza ready > /dev/null
echo "work of $LIZA_RUN" > unsent.txt
git add -A
git commit -q -m "work that no remote has"
echo "a draft" > draft.txt
"""
READING = "#!/bin/sh\nset -eu\nliza ready > /dev/null\n"
WORK = """\
#!/bin/sh
set -eu
liza ready > /dev/null
echo "work of $LIZA_RUN" > "$LIZA_TASK.txt"
git add -A
git commit -q -m "work of $LIZA_RUN"
liza submit
"""
APPROVE = '#!/bin/sh\nset -eu\nliza ready > /dev/null\nliza verdict approve "read it"\n'
WATCH = """\
import queue, sys
from pathlib import Path
from liza.crew.crew import find_crew
from liza.model.errors import LizaError
board = find_crew(Path.cwd()).board
news, last = queue.Queue(), 0
with board.watch() as watch:
    watch.subscribe(news)
    while True:
        try:
            fresh = []
            for record in board.records():
                if record.revision <= last:
                    break
                fresh.append(record.revision)
            for revision in reversed(fresh):
                print(revision, flush=True)
                last = revision
            news.get()
        except LizaError:
            pass
        while not news.empty():
            news.get()
"""


class CutCrew:
    """Hosts ``h1`` and ``h2``; h2 is cut off. ``clock``: by how many seconds the clock of h2 is wrong."""

    def __init__(self, server: PostgreSQL, remote: GitRemote, hosts: Mapping[str, Host], clock: int) -> None:
        self.server, self.remote, self.h1, self.h2 = server, remote, hosts["h1"], hosts["h2"]
        self.database = server.create_database()
        self.paths = Paths(self.h2.clone)
        self.wrong: list[str] = []
        self.figures: dict[str, float] = {}
        if clock:
            library = self.h2.base / "clock.so"
            words = ["cc", "-shared", "-fPIC", "-o", str(library), str(CLOCK_SOURCE), "-ldl"]
            subprocess.run(words, env={"PATH": os.defpath}, check=True)
            self.h2.env |= {"LD_PRELOAD": str(library), "WRONG_CLOCK": str(clock)}

    def check(self, is_so: object, what: str) -> None:
        """Remember what is wrong."""
        if not is_so:
            self.wrong.append(what)

    def prepare(self) -> None:
        """A coder works on ``coded`` and a reviewer reads ``reviewed`` on h2; others of h1 have nothing to do."""
        h1, h2 = self.h1, self.h2
        h1.clone_remote()
        (h1.clone / "README.md").write_text("# Shop\n")
        h1.git("add", "-A")
        h1.git("commit", "-q", "-m", "A shop")
        h1.git("push", "-q", "origin", "HEAD:main")
        url = h1.board_url("shop", self.database)
        h1.liza("init", "A shop", "--board", url, "--host", "h1", "--no-test", "--confinement", "off")
        for name, value in SETTINGS.items():
            h1.liza("config", "set", name, str(value))
        fields = [
            {"id": name, "description": "Write it", "done_when": "it is there", "scope": f"{name}.txt",
             "spec_ref": "README.md"}
            for name in (REVIEWED, CODED)
        ]  # fmt: skip
        h1.liza("task", "add", "--file", "-", stdin=json.dumps(fields))
        h1.liza("claim", REVIEWED, "--agent", "coder-9")
        there = Path(h1.liza("path", REVIEWED).strip())
        (there / f"{REVIEWED}.txt").write_text("x\n")
        self._in(there, "git", "add", "-A")
        self._in(there, "git", "commit", "-q", "-m", "work")
        self._in(there, "liza", "submit")
        h2.clone_remote()
        h2.liza("join", h2.board_url("shop", self.database), "--host", "h2")
        self._up(h2, {"coder-1": UNSENT + self._ticks(CODER), "code-reviewer-1": READING + self._ticks(REVIEWER)})
        wait_until(lambda: all(self._last_tick(run) for run in (CODER, REVIEWER)), "both sessions work", 120)
        self._up(h1, {"coder-2": WORK, "code-reviewer-2": APPROVE})

    def _in(self, there: Path, *words: str) -> None:
        subprocess.run(words, cwd=there, env=self.h1.env, check=True, capture_output=True, timeout=120)

    def _ticks(self, run: str) -> str:
        return TICKS.format(self.h2.base / run)

    def _last_tick(self, run: str) -> float:
        path = self.h2.base / run
        lines = path.read_text().splitlines() if path.exists() else []
        return float(lines[-1].split()[0]) if lines else 0.0

    @staticmethod
    def _up(host: Host, programs: Mapping[str, str]) -> None:
        words = []
        for agent, text in programs.items():
            path = host.base / f"{agent}.sh"
            path.write_text(text)
            path.chmod(0o755)
            words += ["--program", f"{agent.rpartition('-')[0]}=script:{path}"]
        host.liza("up", *programs, *words, "--detach")

    def cut_and_heal(self) -> None:
        """Cut h2 off, follow what happens, let its old runs try again, end the cut and check what is left."""
        with (self.h2.base / "watched").open("wb") as out:
            watcher = subprocess.Popen(
                [sys.executable, "-c", WATCH], cwd=self.h2.clone, env=self.h2.env, stdout=out, stderr=out
            )
        try:
            lease = lease_file.read_lease(self.paths)
            assert lease is not None
            cut_at = boottime()
            self.h2.cut()
            ended, taken = self._follow(cut_at)
            for run, task in ((CODER, CODED), (REVIEWER, REVIEWED)):
                self.figures[f"end of {run}"] = ended[run] - cut_at
                self.figures[f"takeover of {task}"] = taken[task] - cut_at
                self.check(ended[run] < taken[task], f"{run} ended {ended[run] - taken[task]:.1f} s after the takeover")
                self.check(self._last_tick(run) < taken[task], f"{run} worked after the takeover")
            late = self._try_old_runs(cut_at + LATE_SECONDS)
            time.sleep(max(0.0, cut_at + CUT_SECONDS - boottime()))
            self._check_renewal(lease)
            healed_at = boottime()
            self.h2.heal()
            for what, process in late.items():
                self.check(process.wait(120) != 0, f"{what} at the end of the cut was not refused")
            self._check_healed(lease, healed_at)
            wait_until(lambda: set(self._statuses().values()) == {Status.MERGED}, f"merged: {self._statuses()}", 120)
            self._check_old_runs_again()
            self._check_watcher()
        finally:
            watcher.kill()
            watcher.wait()

    def _follow(self, cut_at: float) -> tuple[dict[str, float], dict[str, float]]:
        """When the sessions of h2 were seen to have ended, and when the board gave their tasks to others."""
        ended: dict[str, float] = {}
        taken: dict[str, float] = {}
        newest = max((revision for revision, *_ in self._journal(-1)), default=0)
        while len(taken) < 2 or len(ended) < 2:
            assert boottime() - cut_at < 200, (ended, taken, self._journal(newest))
            for run in (CODER, REVIEWER):
                if run not in ended and liveness.read_end(self.paths.run(run)) is not None:
                    ended[run] = boottime()
            for _, when, head in self._journal(newest):
                task = head.get("task")
                if task in (CODED, REVIEWED) and head["actor"] not in ("coder-1", CODER, "code-reviewer-1", REVIEWER):
                    taken.setdefault(task, when)
            time.sleep(0.1)
        return ended, taken

    def _journal(self, above: int) -> list[tuple[int, float, dict[str, Any]]]:
        """Revisions, with their time by CLOCK_BOOTTIME: the server is on this machine."""
        offset = boottime() - datetime.now(UTC).timestamp()
        with closing(self.server.connect(self.database)) as connection:
            rows = connection.fetch_all(
                "SELECT revision, time, head FROM liza.journal WHERE crew = 'shop' AND revision > %s ORDER BY revision",
                above,
            )
        return [(revision, when.timestamp() + offset, head) for revision, when, head in rows]

    def _statuses(self) -> dict[str, Status]:
        return {task.id: task.status for task in find_crew(self.h1.clone).board.read().tasks}

    def _old_environment(self, run: str, task: str) -> dict[str, str]:
        return {**self.h2.env, "LIZA_RUN": run, "LIZA_TASK": task, "LIZA_ROOT": str(self.h2.clone)}

    def _old_commands(self) -> dict[str, tuple[list[str], dict[str, str]]]:
        return {
            "submit": (["liza", "submit"], self._old_environment(CODER, CODED)),
            "verdict": (["liza", "verdict", "approve", "fine"], self._old_environment(REVIEWER, REVIEWED)),
        }

    def _try_old_runs(self, begin: float) -> dict[str, subprocess.Popen[bytes]]:
        """Commands of the old runs, begun before the end of the cut."""
        self.unsent = self._git("rev-parse", f"refs/heads/task/{CODED}")
        time.sleep(max(0.0, begin - boottime()))
        late = {}
        for what, (words, env) in self._old_commands().items():
            with (self.h2.base / f"late-{what}").open("wb") as out:
                late[what] = subprocess.Popen(words, cwd=self.paths.slot("h2-s1"), env=env, stdout=out, stderr=out)
        return late

    def _git(self, *words: str) -> str:
        return self.h2.git(*words)

    def _check_renewal(self, lease: Any) -> None:
        """The server takes no renewal of the old incarnation, and no change for it."""
        with closing(self.server.connect(self.database)) as connection:
            connection.execute("SET search_path = liza")
            renewed = HostsTable(connection, "shop").renew("h2", lease.incarnation, lease.tokens, uuid4(), 0)
        self.check(not renewed, "the server took a renewal of a lost host")
        board = find_crew(self.h1.clone).board
        board.acts_for("h2", lease.incarnation)
        try:
            with board.transaction("coder-1", "edit") as tx:
                tx.state = tx.state
            self.check(False, "the server took a change for a lost host")
        except HostFenced:
            pass

    def _check_healed(self, lease: Any, healed_at: float) -> None:
        """The host begins anew, and its work that was not sent is at the remote."""
        wait_until(
            lambda: (lease_file.read_lease(self.paths) or lease).incarnation != lease.incarnation, "h2 begins anew", 120
        )
        self.figures["new incarnation after the cut"] = boottime() - healed_at
        prefix = f"refs/liza/salvage/{CODED}/"
        wait_until(lambda: bool(self.remote.git("for-each-ref", prefix)), "the work is at a salvage ref", 120)
        self.figures["salvage after the cut"] = boottime() - healed_at
        refs = self.remote.git("for-each-ref", "--format=%(refname)", prefix).split()
        self.check(all(CODER in ref for ref in refs), f"salvage refs {refs}")
        commits = self.remote.git("rev-list", *refs).split()
        self.check(self.unsent in commits, "the commit that was not sent is not saved")
        kept = any("draft.txt" in self.remote.git("ls-tree", "--name-only", ref) for ref in refs)
        self.check(kept, "the file that was not committed is not saved")

    def _check_old_runs_again(self) -> None:
        """With a new lease of the host, its old runs are still refused, and the remote keeps what others pushed."""
        before = self.remote.git("rev-parse", f"task/{CODED}")
        for what, (words, env) in self._old_commands().items():
            done = subprocess.run(words, cwd=self.h2.clone, env=env, capture_output=True, text=True, timeout=120)
            self.check(done.returncode != 0, f"{what} of an old run was taken: {done.stdout}")
        push = ["git", "push", "-q", "origin", f"{self.unsent}:refs/heads/task/{CODED}"]
        done = subprocess.run(push, cwd=self.h2.clone, env=self.h2.env, capture_output=True, text=True, timeout=120)
        self.check(done.returncode != 0, "git pushed the old work")
        crew = find_crew(self.h2.clone)
        task = next(task for task in crew.board.read().tasks if task.id == CODED)
        try:
            shared_code.push_submitted(crew, task, self.unsent)
            self.check(False, "the old work was pushed as a submission")
        except LizaError:
            pass
        self.check(self.remote.git("rev-parse", f"task/{CODED}") == before, "the branch of the task was moved")

    def _check_watcher(self) -> None:
        """The watcher of h2 has seen each revision once, in order."""
        newest = self._journal(-1)[-1][0]
        path = self.h2.base / "watched"
        wait_until(lambda: path.read_text().split()[-1:] >= [str(newest)], f"the watcher sees {newest}", 30)
        expected = [revision for revision, *_ in self._journal(-1)]
        seen = path.read_text().split()
        self.check(seen[: len(expected)] == [str(each) for each in expected], f"seen {seen}, made {expected}")


def cut_once(server: PostgreSQL, clock: int) -> tuple[list[str], dict[str, float]]:
    """Make a crew, cut a host off once. Return what is wrong, and when things happened, in seconds from the cut."""
    base = Path(tempfile.mkdtemp(prefix="lz-", dir="/tmp"))
    with several_hosts(base, ("h1", "h2"), server.sockets / SOCKET) as (remote, hosts):
        crew = CutCrew(server, remote, hosts, clock)
        try:
            crew.prepare()
            crew.cut_and_heal()
        except AssertionError as error:
            told = [crew.h1.try_liza(*words).stdout for words in (["status"], ["host", "list"])]
            crew.wrong.append("\n".join([str(error), *told]))
        assert read_address(crew.paths.board_address) is not None
        return crew.wrong, crew.figures
