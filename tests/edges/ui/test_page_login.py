"""Who may use the page: a code from the person's terminal, once, and then a cookie until its time is over."""

from __future__ import annotations

import signal
import stat
import subprocess

import pytest

from liza.ui.seen import state_file
from tests.conftest import LONG, until
from tests.edges.merge_crew import Merges
from tests.edges.ui.page_client import PageClient, page_of
from tests.journeys.crews import BIN
from tests.terminal_stand_in import TerminalStandIn


def test_a_code_logs_one_browser_in_and_leads_back(crew: Merges) -> None:
    with page_of(crew.root) as page:
        asked = page.ask("/tasks/t1?all=1")
        assert asked.status == 401
        assert 'value="/tasks/t1?all=1"' in asked.text
        assert "liza web" in asked.text
        code = page.codes[-1]
        answer = page.enter(code)
        assert (answer.status, answer.headers["location"]) == (303, "/board")
        cookie, *attributes = answer.headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(attributes)
        assert "Secure" not in attributes
        assert page.enter(code).status == 401, "used"
        assert page.ask(cookie=cookie).status == 200
        assert page.ask("/login", cookie=cookie).status == 303, "an old address leads to the page"
        assert page.enter("old", cookie=cookie).status == 303


def test_a_new_code_ends_the_last_one(crew: Merges) -> None:
    with page_of(crew.root) as page:
        first = page.codes[-1]
        second = page.press_enter()
        assert page.enter(first).status == 401
        assert page.enter(f"http://127.0.0.1:8420/login#t={second}").status == 303, "the whole address is a code, too"


def test_no_code_is_taken_after_ten_wrong_ones(crew: Merges) -> None:
    with page_of(crew.root) as page:
        assert {page.enter(f"wrong{number}").status for number in range(10)} == {401}
        assert "wait a minute" in page.enter(page.codes[-1]).text


def test_a_login_survives_a_restart(crew: Merges) -> None:
    with page_of(crew.root) as page:
        cookie = page.log_in()
    path = state_file(crew.crew.paths, "web")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert cookie.partition("=")[2] not in path.read_text()
    with page_of(crew.root) as page:
        assert page.ask(cookie=cookie).status == 200
        path.write_text("{nonsense")
        assert page.ask(cookie=cookie).status == 401
        assert page.ask(cookie=page.log_in()).status == 200


def test_a_browser_that_logged_out_is_asked_again(crew: Merges) -> None:
    with page_of(crew.root) as page:
        other, cookie = page.log_in(), page.log_in()
        assert page.post("/logout", {}).status == 200
        assert page.ask(cookie=cookie).status == 401
        assert page.ask(cookie=other).status == 200


def test_all_browsers_are_logged_out_at_once_with_their_streams(crew: Merges) -> None:
    with page_of(crew.root) as page:
        page.log_in()
        with page.stream() as stream:
            stream.wait_for_parts()
            done = subprocess.run([BIN / "liza", "web", "--log-out"], cwd=crew.root, capture_output=True, check=True)
            assert b"logged out" in done.stdout
            until(stream.is_at_end, "the stream ends")
        assert page.ask().status == 401
        asked = page.ask("/alive"), page.ask("/do", "POST", origin=f"http://{page.host}", x_liza="1")
        assert [answer.status for answer in asked] == [401, 401]
        assert not any("<" in answer.text for answer in asked), "a script reads it"
        with page.stream() as stream:
            assert stream.status == 401


def test_a_link_of_another_site_is_asked_for_once_more(crew: Merges) -> None:
    """A browser sends the cookie only with requests of the page itself."""
    with page_of(crew.root) as page:
        answer = page.ask("/tasks/t1", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
        assert (answer.status, 'content="0; url=/tasks/t1"' in answer.text) == (401, True)
        again = page.ask("/tasks/t1", sec_fetch_site="same-origin", sec_fetch_mode="navigate")
        assert "refresh" not in again.text


def test_the_code_is_printed_at_a_terminal_only(crew: Merges) -> None:
    done = subprocess.run([BIN / "liza", "web", "--port", "0"], cwd=crew.root, capture_output=True, text=True)
    assert done.returncode == 2
    assert "#t=" not in done.stdout + done.stderr


@pytest.mark.campaign
def test_the_page_is_answered_while_liza_web_is_in_the_background(crew: Merges) -> None:
    shell = ["bash", "--norc", "-i"]
    with TerminalStandIn(shell, crew.root, (200, 50), env={"PS1": "$ "}) as terminal:
        terminal.type(f"{BIN / 'liza'} web --port 0 &\n")
        terminal.wait_for_text("/login#t=")
        port = int(terminal.text.partition("http://127.0.0.1:")[2].partition("/")[0])
        terminal.type("\n\necho typed $((1 + 1))\n")
        terminal.wait_for_text("typed 2")
        assert PageClient(terminal, port).ask().status == 401
        terminal.type("kill %1; wait %1; echo ended $((1 + 1))\n")
        terminal.wait_for_text("ended 2")


def test_ctrl_c_ends_ten_open_streams_at_once(crew: Merges) -> None:
    from contextlib import ExitStack

    with page_of(crew.root) as page, ExitStack() as stack:
        page.log_in()
        streams = [stack.enter_context(page.stream()) for _ in range(10)]
        for stream in streams:
            stream.wait_for_parts()
        page.terminal.type("\x03")
        assert page.terminal.process.wait(LONG) == 0
        assert "Traceback" not in page.terminal.text


def test_a_terminated_server_ends_although_a_browser_reads_nothing(crew: Merges) -> None:
    with page_of(crew.root) as page:
        page.log_in()
        with page.stream():
            page.terminal.process.send_signal(signal.SIGTERM)
            until(lambda: page.terminal.process.poll() is not None, "it ends")
