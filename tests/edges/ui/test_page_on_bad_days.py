"""`liza web` while something is wrong: what is known is shown, what is not is `?`, and each refusal has a next step."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from liza.model.value_classes import replace
from liza.system import peers
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from liza.ui.facts import gather
from liza.ui.follower import MIN_SECONDS
from liza.ui.rules.snapshot import ScreenName, Wanted
from liza.ui.web.page_actions import PageWork
from liza.ui.web.pages import PageKey, draw_page
from tests.conftest import until, variant
from tests.edges.merge_crew import Merges
from tests.edges.ui.page_client import page_of
from tests.journeys.crews import BIN
from tests.journeys.test_picture_on_bad_days import NOT_READABLE
from tests.terminal_stand_in import TerminalStandIn

STORM = 40
"""Changes, more than five in a second."""
STUBS = {
    "missing": "raise ModuleNotFoundError(\"No module named 'jinja2'\", name='jinja2')",
    "too old": "__version__ = '2.0'",
    "broken": "raise RuntimeError('built for another Python')",
}


def add_task(crew: Merges, task: str) -> None:
    add(crew.crew, [TaskFields(task, f"Write {task}", "it is there", f"{task}.txt", "README.md")])


@contextmanager
def listening() -> Iterator[int]:
    """Yield a port that this process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_a_taken_port_is_named_with_its_process_and_a_free_one(crew: Merges) -> None:
    with (
        listening() as port,
        TerminalStandIn([BIN / "liza", "web", "--port", str(port)], crew.root, (160, 24)) as terminal,
    ):
        assert terminal.process.wait(60) == 5
        terminal.wait_for_text(f"port {port} is taken by process {os.getpid()}")
        hint = re.search(r"liza (web --port \d+)", terminal.text)
    assert hint is not None
    with page_of(crew.root, *hint[1].split()[1:]) as page:
        assert page.ask().status == 401


@pytest.mark.sample(1)
@pytest.mark.parametrize("stub", STUBS.values(), ids=STUBS)
def test_without_its_extra_only_the_page_is_refused(crew: Merges, tmp_path: Path, stub: str) -> None:
    package = tmp_path / "first" / "jinja2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(stub)
    environ = {"PYTHONPATH": str(package.parent)}
    with TerminalStandIn([BIN / "liza", "web", "--port", "0"], crew.root, (200, 24), env=environ) as terminal:
        assert terminal.process.wait(60) == 5
        terminal.wait_for_text("needs the extra web")
        assert "jinja2>=3.1" in terminal.text
        assert "Traceback" not in terminal.text
    for words in (["status"], ["web", "--log-out"], ["help", "web"]):
        subprocess.run(
            [BIN / "liza", *words], cwd=crew.root, env={**os.environ, **environ}, check=True, capture_output=True
        )


def test_a_host_name_that_is_none_is_refused(crew: Merges) -> None:
    words = [BIN / "liza", "web", "--host-name", "https://box.ts.net/"]
    with TerminalStandIn(words, crew.root, (200, 24)) as terminal:
        assert terminal.process.wait(60) == 2
        terminal.wait_for_text("is no host name")


@pytest.mark.parametrize("damage", ["half written", variant("removed")])
def test_the_last_good_page_stays_while_the_board_is_unreadable(crew: Merges, damage: str) -> None:
    add_task(crew, "t1")
    paths = crew.crew.paths
    text = paths.state.read_bytes()
    with page_of(crew.root) as page:
        page.log_in()
        assert "t1" in page.ask().text
        if damage == "removed":
            paths.liza.rename(crew.root / "elsewhere")
        else:
            paths.state.write_bytes(text[: len(text) // 2] + b"\n - [")
        until(lambda: NOT_READABLE in page.ask().text, "the fault is shown")
        for path in ("/", "/board"):
            shown = page.ask(path).text
            assert "t1" in shown, path
            assert 'action="/do"' not in shown, "nothing can be done with what may be old"
        for path in ("/agents", "/queue", "/costs", "/history", "/tasks/t1", "/sessions/coder-1"):
            assert page.ask(path).status == 200, path
        assert not paths.liza.exists() or damage != "removed"
        if damage == "removed":
            (crew.root / "elsewhere").rename(paths.liza)
        else:
            paths.state.write_bytes(text)
        until(lambda: NOT_READABLE not in page.ask().text, "it is over")
        add_task(crew, "t2")
        until(lambda: "t2" in page.ask().text, "the page goes on")
        assert "Traceback" not in page.terminal.text


def test_a_broken_ledger_hides_only_the_costs_of_the_page(crew: Merges) -> None:
    add_task(crew, "t1")
    crew.crew.paths.usage.write_text('{"nonsense\n')
    with page_of(crew.root) as page:
        page.log_in()
        shown = page.ask().text
        assert "t1" in shown
        assert NOT_READABLE not in shown
        costs = page.ask("/costs")
        assert costs.status == 200
        assert "?" in costs.text
        assert "$0" not in costs.text


def test_a_fault_in_one_section_leaves_the_others(crew: Merges) -> None:
    add_task(crew, "t1")
    wanted = Wanted(ScreenName.HISTORY)
    snapshot = replace(gather(crew.crew, wanted), latest=object())
    page = draw_page(snapshot, PageKey(wanted), PageWork(), is_read_only=False)
    html = {section.id: section.html for section in page.sections}
    assert "? this part cannot be drawn" in html["history"]
    assert "liza bug-report" in html["history"]
    assert "0/1 merged" in html["head"]
    assert "History" in html["tabs"]


def test_after_a_restart_a_browser_gets_only_what_differs(crew: Merges) -> None:
    add_task(crew, "t1")
    with page_of(crew.root) as page:
        page.log_in()
        with page.stream() as stream:
            version, parts = stream.wait_for_parts()
            assert {"head", "tabs", "todo", "agents"} <= set(parts)
            page.terminal.process.send_signal(signal.SIGTERM)
            assert page.terminal.process.wait(20) == 0
        port, cookie = page.port, page.cookie
    add_task(crew, "t2")
    with page_of(crew.root, "--port", str(port)) as page:
        page.cookie = cookie
        with page.stream(last_event_id=version) as stream:
            now, parts = stream.wait_for_parts()
        assert "t2" in parts["todo"]
        assert "agents" not in parts
        with page.stream(last_event_id=now) as stream:
            assert "parts" not in stream.next_event()[1], "nothing differs"


@pytest.mark.campaign
def test_a_storm_of_changes_draws_at_most_five_pages_a_second(crew: Merges) -> None:
    with page_of(crew.root) as page, ExitStack() as stack:
        page.log_in()
        stream = stack.enter_context(page.stream("/?all=1"))
        stream.wait_for_parts()
        start = time.monotonic()
        for number in range(STORM):
            add_task(crew, f"t{number}")
        count = 1
        while f"t{STORM - 1}" not in stream.wait_for_parts()[1].get("todo", ""):
            count += 1
            assert count <= STORM
        assert count <= 2 + (time.monotonic() - start) / MIN_SECONDS


def test_only_this_machine_reaches_the_page(crew: Merges) -> None:
    with page_of(crew.root) as page:
        inodes = set(peers.iter_sockets(page.terminal.process.pid))
        rows = [line.split() for table in peers.TABLES for line in Path(table).read_text().splitlines()[1:]]
        addresses = {row[1].partition(":")[0] for row in rows if row[9] in inodes and row[3] == "0A"}
    assert addresses == {f"{int.from_bytes(socket.inet_aton('127.0.0.1'), 'little'):08X}"}
