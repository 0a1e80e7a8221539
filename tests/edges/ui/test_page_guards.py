"""What the page refuses: other pages, other hosts, sessions, and requests that no browser of the person sends."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from liza.box.box import Box, Mount, MountKind
from liza.ui.web.page_guards import HEADERS, MAX_FORM
from tests.edges.api_worker import serving
from tests.edges.merge_crew import Merges
from tests.edges.ui.page_browser import PageBrowser
from tests.edges.ui.page_client import FORM, Answer, PageClient, page_of, read_answer
from tests.journeys.crews import BIN


@pytest.fixture
def crew(shared_crew: tuple[Merges, PageBrowser]) -> Merges:
    """The crew of the page that the tests share: what is refused changes nothing."""
    return shared_crew[0]


@pytest.fixture
def page(shared_crew: tuple[Merges, PageBrowser]) -> PageClient:
    """A browser that is logged in."""
    return shared_crew[1].client


ASK = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Cookie": sys.argv[2]})
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
CLIENT = (sys.executable, "-c", ASK)
ELSEWHERE = ({"origin": "https://evil.example", "sec_fetch_site": "cross-site"}, "another site")
OWN_MACHINE = ({"origin": "http://127.0.0.1:3000", "sec_fetch_site": "same-site"}, "another port")
"""Browsers send the cookie to each port of 127.0.0.1, also with what a page of another port sends."""
SANDBOX = ({"origin": "null", "sec_fetch_site": "cross-site"}, "a frame without an origin")
FORGED = ({"origin": "http://127.0.0.1:3000"}, "an old browser")
PAUSE = {"action": "pause", "subject": "", "form": "f1", "drawn": "{}", "text": "x", "back": "/"}


@pytest.mark.parametrize("attack", [ELSEWHERE, OWN_MACHINE, SANDBOX, FORGED], ids=lambda row: row[1])
def test_a_page_of_another_origin_can_neither_post_nor_fetch(
    crew: Merges, page: PageClient, attack: tuple[Mapping[str, str], str]
) -> None:
    headers = attack[0]
    before = crew.crew.board.read_text()
    answers = [
        page.post("/do", PAUSE, **headers),
        page.post("/do", PAUSE, **{**headers, "content_type": "text/plain"}),
        page.post("/do", PAUSE, x_liza="1", **headers),
        page.post("/logout", {}, **headers),
        page.post("/login", {"code": page.codes[-1]}, **headers),
    ]
    assert [answer.status for answer in answers] == [403] * 5
    assert page.ask("/do", "OPTIONS", access_control_request_method="POST", **headers).status == 403
    if "sec_fetch_site" in headers:
        assert page.ask("/board", sec_fetch_mode="no-cors", **headers).status == 403
    shared = page.ask("/board", origin=headers["origin"])
    assert not any(name.startswith("access-control") for name in shared.headers), "its script cannot read it"
    assert crew.crew.board.read_text() == before
    assert not crew.crew.paths.signal("PAUSE").exists()
    assert page.ask().status == 200, "it is still logged in"


def test_a_rebound_host_name_is_refused(page: PageClient) -> None:
    for name in (
        "evil.example",
        f"evil.example:{page.port}",
        f"127.0.0.1.evil.example:{page.port}",
        "0.0.0.0",
        "",
        "[",
    ):
        own = {"host": name, "origin": f"http://{name}", "sec_fetch_site": "same-origin"}
        answers = [
            page.ask("/", **own),
            page.ask("/page.js", **own),
            page.ask("/nothing", **own),
            page.post("/do", PAUSE, **own),
            page.post("/login", {"code": page.codes[-1]}, **own),
        ]
        assert [answer.status for answer in answers] == [421] * 5, name
    assert page.ask("/", host=f"localhost:{page.port}").status == 200
    assert page.ask("/", host="127.0.0.1:9000").status == 200, "ssh -L may show it at another port"


def ask_as(page: PageClient, words: Sequence[str], run: str | None, root: Path) -> str:
    """Return the status that a process gets with the cookie of the person."""
    environ = {"LIZA_RUN": run, "LIZA_ROOT": str(root)} if run else {}
    words = (*words, f"http://{page.host}/", page.cookie)
    return subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout.strip()


def test_a_process_of_a_session_is_refused_with_the_persons_cookie(crew: Merges, page: PageClient) -> None:
    assert ask_as(page, CLIENT, None, crew.root) == "200"
    assert ask_as(page, CLIENT, "coder-1.1", crew.root) == "403"
    below = ("sh", "-c", '"$@"; true', "sh", "env", "-i", *CLIENT)
    assert ask_as(page, below, "coder-1.1", crew.root) == "403"
    assert ask_as(page, CLIENT, "coder-1.1", crew.root.parent) == "200", "of another crew"


@pytest.mark.needs("bwrap")
def test_a_process_in_the_box_of_a_session_is_refused(crew: Merges, page: PageClient, tmp_path: Path) -> None:
    box = Box(
        shutil.which("bwrap") or "", (Mount(MountKind.READ_ONLY, tmp_path.parents[1]),), tmp_path
    )  # may be in /dev/shm
    words = box.wrap(("env", "-i", *CLIENT))
    assert ask_as(page, words, "coder-1.1", crew.root) == "403"
    assert ask_as(page, words, None, crew.root) == "200"


def test_the_page_and_the_api_take_no_word_of_each_other(page: PageClient, tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    with serving(served) as api:
        worker = api.worker("coder-1.1")
        assert page.ask(cookie="", authorization=f"Bearer {worker.token}").status == 401
        assert page.ask(cookie=f"{page.cookie.partition('=')[0]}={worker.token}").status == 401
        assert page.enter(worker.token, cookie="").status == 401
        name, _, value = page.cookie.partition("=")
        for headers in ({"cookie": page.cookie}, {"authorization": f"Bearer {value}"}, {"cookie": f"{name}={value}"}):
            with socket.create_connection(("127.0.0.1", api.port)) as line:
                rows = {"host": f"127.0.0.1:{api.port}", "connection": "close", **headers}
                head = "".join(f"{name}: {text}\r\n" for name, text in rows.items())
                line.sendall(f"GET /v1/agents HTTP/1.1\r\n{head}\r\n".encode())
                assert read_answer(line).status == 401


REFUSALS = {
    "no such page": (404, "GET", "/nothing", {}),
    "no such task": (404, "GET", "/tasks/%2e%2e%2fx", {}),
    "a slash more": (404, "GET", "/board/", {}),
    "a file": (404, "GET", "/page.py", {}),
    "delete": (405, "DELETE", "/", {"origin": "OWN"}),
    "put": (405, "PUT", "/do", {"origin": "OWN"}),
    "an action by its address": (405, "GET", "/do?action=pause&text=x", {}),
    "log out by its address": (405, "GET", "/logout", {}),
    "a form that is none": (415, "POST", "/do", {"origin": "OWN", "content_type": "application/json"}),
    "an unknown form": (400, "POST", "/do", {"origin": "OWN", "content_type": FORM}),
    "without origin": (403, "POST", "/do", {"content_type": FORM}),
    "without cookie": (401, "GET", "/tasks/t1", {"cookie": ""}),
    "a cookie of another crew": (401, "GET", "/", {"cookie": "liza_00000000=x"}),
    "unknown, without cookie": (401, "GET", "/nothing", {"cookie": ""}),
}


def test_each_refusal_is_a_short_page_with_all_headers(page: PageClient) -> None:
    for name, (status, method, path, headers) in REFUSALS.items():
        own = {key: f"http://{page.host}" if text == "OWN" else text for key, text in headers.items()}
        answer = page.ask(path, method, **own)
        assert answer.status == status, (name, answer)
        assert 'href="/page.css' in answer.text, name
        assert len(answer.text) < 2_000, name
        require_headers(answer)
    assert page.ask("/nothing", x_liza="1").text.startswith("{")


def require_headers(answer: Answer) -> None:
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, answer


def test_every_kind_of_answer_has_the_headers(page: PageClient) -> None:
    for path in ("/", "/board", "/costs", "/login", "/page.css", "/page.js", "/alive"):
        answer = page.ask(path)
        require_headers(answer)
        assert page.ask(path, "HEAD").status == answer.status
    assert page.ask("/events", "HEAD").status == 200
    with page.connect() as line:
        line.sendall(b"nonsense\r\n\r\n")
        answer = read_answer(line)
    assert answer.status == 400
    require_headers(answer)
    answer = page.ask(x_large="x" * (64 << 10))
    assert answer.status == 431
    require_headers(answer)


def test_a_form_that_is_too_large_gets_an_answer(page: PageClient) -> None:
    own = {"origin": f"http://{page.host}", "content_type": FORM}
    for path, cookie in (("/do", page.cookie), ("/login", "")):
        for size in (65 << 10, 5 << 20):
            answer = page.ask(path, "POST", b"text=" + b"x" * size, cookie=cookie, **own)
            assert answer.status == 413
            assert f"{MAX_FORM >> 10} KB" in answer.text
        many = "&".join(f"a{number}=1" for number in range(200)).encode()
        assert page.ask(path, "POST", many, cookie=cookie, **own).status == 400


def test_a_tunnel_shows_the_page_under_its_https_name(crew: Merges) -> None:
    with page_of(crew.root, "--host-name", "Box.tail1.ts.net") as page:
        own = {"host": "box.tail1.ts.net", "origin": "https://box.tail1.ts.net"}
        assert "https://box.tail1.ts.net/login#t=" in page.terminal.text
        answer = page.enter(page.codes[-1], **own)
        assert answer.status == 303
        assert "Secure" in answer.headers["set-cookie"]
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert page.ask(cookie=cookie, host=own["host"]).status == 200
        wrong = {**own, "origin": "http://box.tail1.ts.net"}
        assert page.post("/logout", {}, **wrong).status == 403
        assert page.ask(host="other.tail1.ts.net").status == 421


def test_no_run_starts_the_page_or_ends_its_logins(crew: Merges) -> None:
    from tests.terminal_stand_in import TerminalStandIn

    environ = {"LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(crew.root)}
    for words in (["--port", "0"], ["--log-out"]):
        with TerminalStandIn([BIN / "liza", "web", *words], crew.root, (200, 24), env=environ) as terminal:
            assert terminal.process.wait(60) == 1
            terminal.wait_for_text("this is for a person")
