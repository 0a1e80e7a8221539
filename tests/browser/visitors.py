"""People who visit `liza web` with a browser of their own."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.shops import EXAMPLE_TIME, Web

LIMIT = 30_000
"""Milliseconds after which something that was waited for does not come."""


class Visitor:
    """A person with a browser of their own at the page. ``complaints``: what its console showed.

    ``may_complain``: it cannot be silent, because the server is away in this test.
    """

    def __init__(self, browser: Browser, web: Web, **options: Any) -> None:
        self.web = web
        options = {"viewport": {"width": 360, "height": 740}, "locale": "en-GB", "timezone_id": "UTC", **options}
        self.context: BrowserContext = browser.new_context(**options)
        self.context.set_default_timeout(LIMIT)
        expect.set_options(timeout=LIMIT)
        if options.get("java_script_enabled", True):
            self.context.clock.install(time=EXAMPLE_TIME)
        self.complaints: list[str] = []
        self.may_complain = False
        self.strange_requests: list[str] = []
        self.context.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        self.context.on("request", lambda request: self._note_request(request.url))
        self.page: Page = self.context.new_page()

    def _note_request(self, url: str) -> None:
        if not url.startswith((f"{self.web.origin}/", "data:")):
            self.strange_requests.append(url)

    def log_in(self) -> Visitor:
        """Open the address of the terminal, as a person who clicks on it does."""
        self.page.goto(self.web.take_address())
        expect(self.page.locator("#waits")).to_be_visible()
        return self

    def open(self, path: str) -> Page:
        """Open another screen."""
        self.page.goto(self.web.origin + path)
        return self.page
