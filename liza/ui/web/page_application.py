"""Check each request, and answer it. Nothing is answered before the host, the peer and the cookie were checked.

A page of another origin can send requests to 127.0.0.1, and an agent's process can connect to it: see decision 041 for
what each check is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from liza.crew.crew import Crew
from liza.model.errors import LizaError, Refused
from liza.model.value_classes import Value
from liza.printing.columns import format_local_time
from liza.ui.rules.header import STALE_AFTER, describe_freshness
from liza.ui.rules.snapshot import ScreenName, Wanted
from liza.ui.web.login import Browsers, LoginCodes
from liza.ui.web.page_actions import FormIncomplete, SentForm, TakenAction, carry_out, read_sent, stamp_forms
from liza.ui.web.page_feed import DrawnPage, PageFeed
from liza.ui.web.page_guards import (
    PageRefused,
    check_origin,
    comes_from_elsewhere,
    is_from_script,
    make_refusal,
    own_path,
    read_form,
    with_headers,
)
from liza.ui.web.pages import END_ACTIONS, PageKey, render_document, render_login

ALIVE_SECONDS: Final = 5.0
"""Seconds between two signs of life in a stream."""
FIRST_SECONDS: Final = 10.0
"""Seconds that a page waits for the first reading of the crew."""
COOKIE_LIFE: Final = 30 * 24 * 3600
_DIRECTORY: Final = Path(__file__).parent
_ASSETS: Final = {"/page.css": "text/css", "/page.js": "text/javascript", "/login.js": "text/javascript"}
_PATHS: Final = {
    "/": ScreenName.NOW,
    "/board": ScreenName.BOARD,
    "/agents": ScreenName.AGENTS,
    "/queue": ScreenName.QUEUE,
    "/costs": ScreenName.COSTS,
    "/history": ScreenName.HISTORY,
}
_SUBJECT_PATH: Final = re.compile(r"/(task|session)s/([\w.-]{1,100})", re.ASCII)
_SUBJECT_ROUTES: Final = ("/tasks/{name}", "/sessions/{name}", "/do/{action}/{name}")
_END_PATH: Final = re.compile(rf"/do/({'|'.join(END_ACTIONS)})/([\w.-]{{1,100}})", re.ASCII)
Handler = Callable[[Request], Awaitable[Response]]


class PageOptions(Value, kw_only=True):
    """``host_name``: that of a tunnel, or empty."""

    host_name: str
    is_read_only: bool = False


class PageServer:
    """The state of one server: the crew, the browsers, the feed and the threads."""

    def __init__(self, crew: Crew, options: PageOptions, browsers: Browsers, codes: LoginCodes, feed: PageFeed) -> None:
        self.crew, self.options, self.browsers, self.codes, self.feed = crew, options, browsers, codes, feed
        # The feed draws a page after the other: more threads would only need more memory.
        self._draw_threads = ThreadPoolExecutor(1, "draw")
        # Neither a merge nor a reading that hangs may keep requests from being refused.
        self._act_threads = ThreadPoolExecutor(2, "act")
        self._check_threads = ThreadPoolExecutor(2, "check")
        self._assets = {path: (_DIRECTORY / path[1:]).read_bytes() for path in _ASSETS}
        self._assets_digest = hashlib.sha256(b"".join(self._assets.values())).hexdigest()[:12]
        self.is_stopping = asyncio.Event()

    def stop(self) -> None:
        """End the streams."""
        self.is_stopping.set()
        self.feed.stop()

    @property
    def _now(self) -> datetime:
        return self.crew.clock.now()

    async def _in_draw_thread(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns that reads files."""
        return await asyncio.get_running_loop().run_in_executor(self._draw_threads, function)

    async def _in_check_thread(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._check_threads, function)

    # Checks.

    async def answer(self, request: Request, handler: Handler, *, is_public: bool = False) -> Response:
        """Check a request, and answer it. Nothing is raised: a fault in one page must not end the server."""
        try:
            token = await self._check(request)
            request.state.token = token
            response = await handler(request) if token or is_public else self._ask_to_log_in(request)
        except PageRefused as error:
            response = make_refusal(request, error.status, error.text, self._assets_digest)
        except Exception as error:  # noqa: BLE001
            response = make_refusal(request, 500, _report_bug(error), self._assets_digest)
        return with_headers(response)

    async def _check(self, request: Request) -> str:
        """Return the cookie of a browser that is logged in; empty for another one. Raises PageRefused."""
        check_origin(request, self.options.host_name)
        session = request.scope["state"]["session"]
        try:
            run = await self._in_check_thread(partial(session.find_run, self.crew.paths.root))
        except Refused as error:
            raise PageRefused(403, error.message) from error
        if run is not None:
            raise PageRefused(403, f"the page is for a person, and the request comes from inside the session {run}")
        token = request.cookies.get(self.browsers.cookie, "")
        return token if token and await self._is_logged_in(token, is_use=True) else ""

    async def _is_logged_in(self, token: str, *, is_use: bool) -> bool:
        is_logged_in: bool = await self._in_check_thread(lambda: self.browsers.has(token, self._now, is_use=is_use))
        return is_logged_in

    def _ask_to_log_in(self, request: Request) -> Response:
        if is_from_script(request):
            return make_refusal(request, 401, "log in again: load the page", self._assets_digest)
        path, query = request.scope["path"], request.scope["query_string"].decode("latin-1")
        is_page = request.method in ("GET", "HEAD")
        back = own_path(f"{path}?{query}" if query else path) if is_page else "/"
        return self._login_page(401, "", back, is_repeated=comes_from_elsewhere(request))

    # Answers.

    async def show_page(self, request: Request) -> Response:
        """Answer with a page."""
        key = key_of(request.scope["path"], request.scope["query_string"].decode("latin-1"))
        await self.feed.wait_for_first(FIRST_SECONDS)
        drawn = await self._draw(key)
        document = await self._in_draw_thread(
            partial(
                render_document, drawn.page, key, fresh=self._freshness, time=self._time, assets=self._assets_digest
            )
        )
        return _html(stamp_forms(document))

    async def do(self, request: Request) -> Response:
        """Carry out the action of a form, once. Answer with what became of it, and with the page afterwards."""
        if self.options.is_read_only:
            raise PageRefused(403, "this page only shows the crew: it was started with --read-only")
        try:
            form = read_sent(await read_form(request))
        except FormIncomplete as error:
            raise PageRefused(400, str(error)) from error
        back = own_path(form.back)
        url = urlsplit(back)
        key = key_of(url.path, url.query)
        taken = await self.feed.work.take(form, partial(self._carry_out, form))
        version = request.headers.get("x-liza")
        if version is None:
            return RedirectResponse(back if taken.outcome.is_done else own_path(form.retry_path), 303)
        drawn, outcome = await self._draw(key), taken.outcome
        answer = {"isDone": outcome.is_done, "text": outcome.text, "next": outcome.next}
        news = _news(drawn, drawn.page.changed_parts(version))
        return Response(msgspec.json.encode(answer | news), media_type="application/json")

    async def _carry_out(self, form: SentForm) -> TakenAction:
        work = self.feed.work
        carry = partial(carry_out, self.crew, work, form)
        taken: TakenAction = await asyncio.get_running_loop().run_in_executor(self._act_threads, carry)
        work.remember(form, taken)
        await self.feed.reread()
        return taken

    async def show_asset(self, request: Request) -> Response:
        """Answer with the style or the script: they are the same for all browsers."""
        path = request.scope["path"]
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(self._assets[path], media_type=_ASSETS[path], headers=headers)

    async def ask_for_code(self, request: Request) -> Response:
        """Answer with the page that asks for a code; a browser that is logged in needs none."""
        if request.state.token:
            return RedirectResponse("/#main", 303)  # the browser drops the code of the address for this fragment
        return self._login_page(200, "")

    def _login_page(self, status: int, problem: str, back: str = "/", *, is_repeated: bool = False) -> Response:
        """Return the page that asks for a code. ``is_repeated``: it asks for ``back`` once more, from this origin."""
        facts = {"problem": problem, "back": back, "is_repeated": is_repeated, "assets": self._assets_digest}
        return _html(render_login(**facts), status)

    async def log_in(self, request: Request) -> Response:
        """Exchange a code for a cookie."""
        form = await read_form(request)
        code, back = form.get("code", [""])[0].strip(), own_path(form.get("back", ["/"])[0])
        now = self._now
        if request.state.token:
            return RedirectResponse(back, 303)
        if self.codes.is_locked(now):
            return self._login_page(401, "too many wrong codes: wait a minute", back)
        if not self.codes.take(code.rpartition("#t=")[2], now):
            return self._login_page(401, "this code is wrong, used, too old, or was replaced by a newer one", back)
        try:
            token = await self._in_check_thread(lambda: self.browsers.add(now))
        except (LizaError, OSError) as error:
            return self._login_page(503, f"the login cannot be recorded: {error}", back)
        answer = RedirectResponse(back, 303)
        is_secure = request.headers.get("origin", "").startswith("https:")
        answer.set_cookie(
            self.browsers.cookie, token, max_age=COOKIE_LIFE, httponly=True, samesite="strict", secure=is_secure
        )
        return answer

    async def log_out(self, request: Request) -> Response:
        """Log this browser out."""
        try:
            await self._in_check_thread(lambda: self.browsers.remove(request.state.token, self._now))
        except (LizaError, OSError) as error:
            raise PageRefused(503, f"you are not logged out: {error}") from error
        answer = self._login_page(200, "you are logged out")
        answer.delete_cookie(self.browsers.cookie, httponly=True, samesite="strict")
        return answer

    async def follow(self, request: Request) -> Response:
        """Answer with the stream of changes of a page."""
        url = urlsplit(own_path(request.query_params.get("page", "/")))
        key = key_of(url.path, url.query)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        version = request.headers.get("last-event-id") or request.query_params.get("version", "")
        stream = self._stream(key, version, request.state.token)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def _stream(self, key: PageKey, version: str, token: str) -> AsyncIterator[bytes]:
        with self.feed.viewing():
            async for event in self._watch(key, version, token):
                yield event

    async def _watch(self, key: PageKey, version: str, token: str) -> AsyncIterator[bytes]:
        """Yield the sections of a page that differ from the version that the browser has, and signs of life.

        The next drawing is made when the last one was sent: a slow browser gets only the newest one.
        """
        number = -1
        while not self.is_stopping.is_set():
            try:
                if not await self._is_logged_in(token, is_use=False):
                    return  # the browser connects again, and is asked to log in
                drawn = await self._draw(key) if number != self.feed.number else None
            except PageRefused as error:
                yield _event({"fresh": error.text, "isOld": True})
                return
            if drawn is not None:
                number, page = drawn.number, drawn.page
                parts = page.changed_parts(version)
                if parts:
                    yield _event(_news(drawn, parts) | self._life, page.version)
                version = page.version
            if drawn is None or not parts:
                yield _event(self._life)
            await self.feed.wait_for_change(number, ALIVE_SECONDS)

    @property
    def _life(self) -> dict[str, Any]:
        """What a stream says of the picture, as a sign of life."""
        return {"fresh": self._freshness, "isOld": self._is_old}

    @property
    def _time(self) -> str:
        """Local time of the last reading."""
        snapshot = self.feed.snapshot
        return "?" if snapshot is None else format_local_time(snapshot.time)

    @property
    def _freshness(self) -> str:
        snapshot = self.feed.snapshot
        return "the crew is being read" if snapshot is None else describe_freshness(snapshot, self.feed.age)[0]

    @property
    def _is_old(self) -> bool:
        snapshot = self.feed.snapshot
        return snapshot is None or snapshot.fault is not None or self.feed.age >= STALE_AFTER

    async def _draw(self, key: PageKey) -> DrawnPage:
        try:
            drawn: DrawnPage = await self._in_draw_thread(partial(self.feed.draw, key))
            return drawn
        except Exception as error:
            raise PageRefused(500, _report_bug(error)) from error


def key_of(path: str, query: str) -> PageKey:
    """Return the page at an address. Raises PageRefused if there is none."""
    values = parse_qs(query)
    is_all, hunk = values.get("all") == ["1"], values.get("hunk", [""])[0]
    number = int(hunk) if hunk.isascii() and hunk.isdigit() and len(hunk) < 6 else None
    if path in _PATHS:
        return PageKey(Wanted(_PATHS[path]), is_all)
    if match := _END_PATH.fullmatch(path):
        return PageKey(Wanted(ScreenName.BOARD, match[2]), action=END_ACTIONS[match[1]])
    match = _SUBJECT_PATH.fullmatch(path)
    if match is None:
        raise PageRefused(404, f"there is no {path} here")
    screen = ScreenName.TASK if match[1] == "task" else ScreenName.SESSION
    return PageKey(Wanted(screen, match[2]), is_all, number)


def make_application(server: PageServer) -> Starlette:
    """Return the application."""

    def route(path: str, handler: Handler, method: str = "GET", *, is_public: bool = False) -> Route:
        async def endpoint(request: Request) -> Response:
            return await server.answer(request, handler, is_public=is_public)

        return Route(path, endpoint, methods=[method])

    async def answer_alive(request: Request) -> Response:
        return Response(status_code=204)

    async def answer_http_exception(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        is_method = error.status_code == 405
        path = request.scope["path"]
        text = f"{path} does not take {request.method}" if is_method else f"there is no {path} here"

        async def refuse(_: Request) -> Response:
            raise PageRefused(error.status_code, text)

        response = await server.answer(request, refuse)
        with contextlib.suppress(KeyError, TypeError):
            response.headers["allow"] = (error.headers or {})["Allow"]
        return response

    application = Starlette(
        routes=[
            *(route(path, server.show_page) for path in (*_PATHS, *_SUBJECT_ROUTES)),
            *(route(path, server.show_asset, is_public=True) for path in _ASSETS),
            route("/events", server.follow),
            route("/alive", answer_alive),
            route("/do", server.do, "POST"),
            route("/login", server.ask_for_code, is_public=True),
            route("/login", server.log_in, "POST", is_public=True),
            route("/logout", server.log_out, "POST"),
        ],
        exception_handlers={HTTPException: answer_http_exception},
    )
    application.router.redirect_slashes = False
    return application


def _report_bug(bug: Exception) -> str:
    """Write the traceback to the terminal of the person; return a sentence without it."""
    traceback.print_exception(bug, file=sys.stderr)
    return f"this is a bug in liza: {type(bug).__name__}: liza bug-report"


def _html(text: str, status: int = 200) -> Response:
    return Response(text.encode("utf-8", "replace"), status, media_type="text/html")


def _news(drawn: DrawnPage, parts: Mapping[str, str]) -> dict[str, Any]:
    """Return what the script takes into a page: sections, with the number of their reading, title and version."""
    stamped = {name: stamp_forms(html) for name, html in parts.items()}
    page = drawn.page
    return {"number": drawn.number, "title": page.title, "version": page.version, "parts": stamped}


def _event(data: Any, event_id: str = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"
