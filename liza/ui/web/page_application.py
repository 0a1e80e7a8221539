"""Check each request, and answer it. Nothing is answered before the host, the peer and the cookie were checked.

A page of another origin can send requests to 127.0.0.1, and an agent's process can connect to it: see decision 041 for
what each check is for.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
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
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from liza.crew.crew import Crew
from liza.model.errors import Refused
from liza.model.value_classes import Value
from liza.ui.rules.header import STALE_AFTER, describe_freshness
from liza.ui.rules.snapshot import ScreenName, Wanted
from liza.ui.web.login import Browsers, LoginCodes
from liza.ui.web.page_actions import FormIncomplete, SentForm, TakenAction, carry_out, read_sent, stamp_forms
from liza.ui.web.page_feed import DrawnPage, PageFeed
from liza.ui.web.pages import END_ACTIONS, Page, PageKey, PageUnknown, render_document, render_login

MAX_BODY: Final = 64 << 10
"""Maximum size of a form, in bytes."""
ALIVE_SECONDS: Final = 5.0
"""Seconds between two signs of life in a stream."""
FIRST_SECONDS: Final = 10.0
"""Seconds that a page waits for the first reading of the crew."""
COOKIE_LIFE: Final = 30 * 24 * 3600
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # With no-referrer a browser sends `Origin: null` with a form, and the form would be refused.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of each response. No inline style or script, nothing of another origin, no frame."""
_DIRECTORY: Final = Path(__file__).parent
_ASSETS: Final = {"/page.css": "text/css", "/page.js": "text/javascript"}
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


class PageRefused(Exception):
    """A request that is refused, with the sentence for the person."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class PageOptions(Value, kw_only=True):
    """``hosts``: values of Host that are answered. ``origins``: origins whose forms are taken. ``cookie``: its name."""

    hosts: frozenset[str]
    origins: frozenset[str]
    cookie: str
    is_read_only: bool = False


class PageServer:
    """The state of one server: the crew, the browsers, the feed and the threads."""

    def __init__(self, crew: Crew, options: PageOptions, browsers: Browsers, codes: LoginCodes, feed: PageFeed) -> None:
        self.crew, self.options, self.browsers, self.codes, self.feed = crew, options, browsers, codes, feed
        self._threads = ThreadPoolExecutor(4, "page")
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

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns that reads files."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    # Checks.

    async def check(self, request: Request) -> str:
        """Return the cookie of a browser that is logged in; empty for another one. Raises PageRefused."""
        host = request.headers.get("host", "").lower()
        if host not in self.options.hosts:
            raise PageRefused(421, f"this page is not at {host!r}: open the address that liza web printed")
        session = request.scope["state"]["session"]
        try:
            run = await self.in_thread(partial(session.find_run, self.crew.paths.root))
        except Refused as error:
            raise PageRefused(403, error.message) from error
        if run is not None:
            raise PageRefused(403, f"the page is for a person, and the request comes from inside the session {run}")
        if request.method not in ("GET", "HEAD"):
            self._check_origin(request)
        token = request.cookies.get(self.options.cookie, "")
        return token if token and await self.in_thread(lambda: self.browsers.has(token, self._now)) else ""

    def _check_origin(self, request: Request) -> None:
        origin = request.headers.get("origin", "").lower()
        site = request.headers.get("sec-fetch-site", "same-origin")
        if origin not in self.options.origins or site != "same-origin":
            raise PageRefused(403, f"the form comes from {origin or 'an unknown page'}, expected this page")

    # Answers.

    async def show_page(self, request: Request) -> Response:
        """Answer with a page."""
        key = key_of(request.url.path, request.url.query)
        await self.feed.wait_for_first(FIRST_SECONDS)
        drawn = await self._draw(key)
        document = await self.in_thread(
            partial(render_document, drawn.page, key, fresh=self._freshness, assets=self._assets_digest)
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
        before = await self._draw(key)
        taken = await self.feed.work.take(form, partial(self._carry_out, form))
        if "x-liza" not in request.headers:
            return RedirectResponse(back if taken.outcome.is_done else own_path(form.retry_path), 303)
        page, outcome = (await self._draw(key)).page, taken.outcome
        answer = {"isDone": outcome.is_done, "text": outcome.text, "next": outcome.next}
        news = _news(page, page.changed_parts(before.page.digests))
        return Response(msgspec.json.encode(answer | news), media_type="application/json")

    async def _carry_out(self, form: SentForm) -> TakenAction:
        work = self.feed.work
        taken: TakenAction = await self.in_thread(partial(carry_out, self.crew, work, form))
        work.remember(form, taken)
        await self.feed.reread()
        return taken

    async def show_asset(self, request: Request) -> Response:
        """Answer with the style or the script: they are the same for all browsers."""
        path = request.url.path
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(self._assets[path], media_type=_ASSETS[path], headers=headers)

    def login_page(self, status: int, problem: str, back: str = "/") -> Response:
        """Return the page that asks for a code."""
        return _html(render_login(problem=problem, back=own_path(back), assets=self._assets_digest), status)

    async def log_in(self, request: Request) -> Response:
        """Exchange a code for a cookie."""
        form = await read_form(request)
        code, back = form.get("code", [""])[0].strip(), own_path(form.get("back", ["/"])[0])
        now = self._now
        if self.codes.is_locked(now):
            return self.login_page(401, "too many wrong codes: wait a minute", back)
        if not self.codes.take(code.rpartition("#t=")[2], now):
            return self.login_page(401, "this code is wrong, used or too old", back)
        token = await self.in_thread(lambda: self.browsers.add(now))
        answer = RedirectResponse(back, 303)
        is_secure = request.headers.get("origin", "").startswith("https:")
        answer.set_cookie(
            self.options.cookie, token, max_age=COOKIE_LIFE, httponly=True, samesite="strict", secure=is_secure
        )
        return answer

    async def log_out(self, request: Request) -> Response:
        """Log this browser out."""
        token = request.cookies.get(self.options.cookie, "")
        await self.in_thread(lambda: self.browsers.remove(token, self._now))
        answer = self.login_page(200, "you are logged out")
        answer.delete_cookie(self.options.cookie, httponly=True, samesite="strict")
        return answer

    async def follow(self, request: Request) -> Response:
        """Answer with the stream of changes of a page."""
        url = urlsplit(own_path(request.query_params.get("page", "/")))
        key = key_of(url.path, url.query)
        version = request.headers.get("last-event-id") or request.query_params.get("version", "")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._stream(key, version), media_type="text/event-stream", headers=headers)

    async def _stream(self, key: PageKey, version: str) -> AsyncIterator[bytes]:
        """Yield the sections of a page that have changed since the version that the browser has, and signs of life."""
        with self.feed.viewing():
            async for event in self._watch(key, version):
                yield event

    async def _watch(self, key: PageKey, version: str) -> AsyncIterator[bytes]:
        digests: Mapping[str, str] = {}
        number = -1
        while not self.is_stopping.is_set():
            if number != self.feed.number:
                try:
                    drawn = await self._draw(key)
                except PageRefused as error:
                    yield _event("alive", {"fresh": error.text, "isOld": True})
                    return
                number, page = drawn.number, drawn.page
                parts = {} if page.version == version else page.changed_parts(digests)
                if parts:
                    yield _event("", _news(page, parts), page.version)
                digests, version = page.digests, page.version
            yield _event("alive", {"fresh": self._freshness, "isOld": self._is_old})
            await self.feed.wait_for_change(number, ALIVE_SECONDS)

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
            drawn: DrawnPage = await self.in_thread(partial(self.feed.draw, key))
            return drawn
        except PageUnknown as error:
            raise PageRefused(404, str(error)) from error


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


def own_path(text: str) -> str:
    """Return a path of this page; the first page for anything else, so that no link leads to another site."""
    parts = urlsplit(text)
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and not parts.netloc and text.isprintable()
    return text if is_own else "/"


async def read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form. Raises PageRefused if it is too large or no form."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise PageRefused(415, "this is no form")
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY:
                raise PageRefused(413, f"the form has more than {MAX_BODY >> 10} KB")
            chunks.append(chunk)
    except ClientDisconnect:
        raise PageRefused(400, "the form is incomplete") from None
    body = b"".join(chunks).decode("utf-8", "replace")
    return parse_qs(body, keep_blank_values=True, max_num_fields=100)


def make_application(server: PageServer) -> Starlette:
    """Return the application."""

    def guarded(answer: Callable[[Request], Awaitable[Response]], *, is_public: bool = False) -> Any:
        async def endpoint(request: Request) -> Response:
            try:
                token = await server.check(request)
                if not token and not is_public:
                    return _with_headers(server.login_page(401, "", str(request.url.path)))
                return _with_headers(await answer(request))
            except PageRefused as error:
                return _with_headers(_refusal(error))

        return endpoint

    async def ask_for_code(request: Request) -> Response:
        return server.login_page(200, "")

    async def answer_alive(request: Request) -> Response:
        return Response("", 204)

    routes = [
        *(
            Route(path, guarded(server.show_page))
            for path in (*_PATHS, "/tasks/{name}", "/sessions/{name}", "/do/{action}/{name}")
        ),
        *(Route(path, guarded(server.show_asset, is_public=True)) for path in _ASSETS),
        Route("/events", guarded(server.follow)),
        Route("/do", guarded(server.do), methods=["POST"]),
        Route("/alive", guarded(answer_alive)),
        Route("/login", guarded(ask_for_code, is_public=True)),
        Route("/login", guarded(server.log_in, is_public=True), methods=["POST"]),
        Route("/logout", guarded(server.log_out), methods=["POST"]),
    ]

    async def answer_http_exception(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _with_headers(_refusal(PageRefused(error.status_code, error.detail)))

    application = Starlette(routes=routes, exception_handlers={HTTPException: answer_http_exception})
    application.router.redirect_slashes = False
    return application


def _refusal(error: PageRefused) -> Response:
    more = {"connection": "close"} if error.status == 413 else {}
    return Response(f"{error.text}\n", error.status, more, "text/plain")


def _html(text: str, status: int = 200) -> Response:
    return Response(text.encode("utf-8", "replace"), status, {"cache-control": "no-store"}, "text/html")


def _with_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("cache-control", "no-store")
    return response


def _news(page: Page, parts: Mapping[str, str]) -> dict[str, Any]:
    """Return what the script takes into a page: its title, its version, and sections."""
    stamped = {name: stamp_forms(html) for name, html in parts.items()}
    return {"title": page.title, "version": page.version, "parts": stamped}


def _event(name: str, data: Any, event_id: str = "") -> bytes:
    head = (f"event: {name}\n" if name else "") + (f"id: {event_id}\n" if event_id else "")
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"
