"""A browser without a screen at `liza web`: it logs in with the code of the terminal, reads pages and sends forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from liza.model.value_classes import Value
from tests.conftest import until
from tests.edges.ui.page_client import FORM, Answer, PageClient, page_of


class PageForm(Value):
    """A form of a page with what its fields have."""

    action: str
    fields: tuple[tuple[str, str], ...]
    text: str

    def value(self, name: str) -> str:
        return next((value for field, value in self.fields if field == name), "")


class PageReader(HTMLParser):
    """The text of a page, its forms, and its links."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.forms: list[PageForm] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self._form = ""
        self._start = 0
        self._fields: list[tuple[str, str]] = []
        self._area: str | None = None
        self.feed(html)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def title(self) -> str:
        """The title of the document, such as ``(1) Now · Liza``."""
        return next(text for text in self.texts if text.strip())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        if tag == "form":
            self._form, self._fields, self._start = values["action"], [], len(self.texts)
        elif tag == "a":
            self.links.append(values["href"])
        elif tag == "input" and values.get("type") == "hidden":
            self._fields.append((values["name"], values["value"]))
        elif tag in ("input", "select") and values.get("name"):
            self._fields.append((values["name"], ""))
        elif tag == "textarea":
            self._area = values["name"]
            self._fields.append((self._area, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.forms.append(PageForm(self._form, tuple(self._fields), "".join(self.texts[self._start :])))
        elif tag == "textarea":
            self._area = None

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self._fields[-1] = (self._area, self._fields[-1][1] + data.removeprefix("\n"))
        self.texts.append(data)


class PageBrowser:
    """A browser that is logged in. Each request has a connection of its own."""

    def __init__(self, client: PageClient) -> None:
        self.client = client

    def load(self, path: str) -> Answer:
        """The answer to the address of a page."""
        return self.client.ask(path)

    def read(self, path: str) -> PageReader:
        """A page that has to be there."""
        answer = self.load(path)
        assert answer.status == 200, answer.text
        return PageReader(answer.text)

    def read_when(self, path: str, text: str) -> PageReader:
        """A page when it shows a text: the server reads the crew a moment after a change."""
        until(lambda: text in self.read(path).text, f"{path} shows {text}")
        return self.read(path)

    def find_form(self, path: str, action: str, subject: str = "") -> PageForm:
        """The form of an action on a page, when it is there."""

        def find() -> PageForm | None:
            forms = [form for form in self.read(path).forms if form.value("action") == action]
            return next((form for form in forms if form.value("subject") == subject), None)

        until(find, f"{path} has the form {action} {subject}")
        form = find()
        assert form is not None
        return form

    def send(self, form: PageForm, *texts: str, **fields: str) -> Answer:
        """Send a form with these texts in its fields, as its button does without script."""
        return self._send(form, texts, fields)

    def run(self, form: PageForm, *texts: str, **fields: str) -> dict[str, Any]:
        """Send a form as the script of the page does; what the script gets."""
        answer = self._send(form, texts, fields, x_liza="none")
        assert answer.status == 200, answer.text
        news: dict[str, Any] = msgspec.json.decode(answer.text)
        return news

    def _send(self, form: PageForm, texts: Sequence[str], fields: Mapping[str, str], **headers: str) -> Answer:
        kept = [(name, value) for name, value in form.fields if name not in ("text", *fields)]
        body = urlencode([*kept, *(("text", text) for text in texts), *fields.items()]).encode()
        origin = f"http://{self.client.host}"
        return self.client.ask(form.action, "POST", body, origin=origin, content_type=FORM, **headers)


@contextmanager
def opened(root: Path, *options: str) -> Iterator[PageBrowser]:
    """A browser that is logged in at a `liza web` of this crew."""
    with page_of(root, *options) as client:
        client.cookie = client.enter(client.codes[-1]).headers["set-cookie"].partition(";")[0]
        yield PageBrowser(client)
