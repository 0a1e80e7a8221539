"""What is checked of a request before it is answered, and the answers that refuse one.

A page of another origin can send requests to 127.0.0.1, and so can each process of this machine, also an agent's. The
checks are pure but for `read_form`; decision 041 says what each is for.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from liza.model.errors import UsageError
from liza.ui.web.pages import render_refusal

MAX_FORM: Final = 64 << 10
"""Maximum size of a form, in bytes."""
MAX_FIELDS: Final = 100
FORM_SECONDS: Final = 30.0
"""Seconds in which the whole form has to arrive."""
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
_LOOPBACK: Final = re.compile(r"(?:127\.0\.0\.1|localhost)(?::[0-9]{1,5})?", re.ASCII)
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME: Final = re.compile(rf"(?=.{{1,253}}(?::|$))({_LABEL}(?:\.{_LABEL})*)(?::([0-9]{{1,5}}))?", re.ASCII)
_FOR_SCRIPTS: Final = ("/events", "/alive")


class PageRefused(Exception):
    """A request that is refused, with the sentence for the person."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def parse_host_name(text: str) -> str:
    """Return the value of Host under which a tunnel shows the page. Raises UsageError."""
    match = _HOST_NAME.fullmatch(text.lower())
    port = int(match[2] or 443) if match is not None else 0
    if match is None or not 0 < port < 1 << 16:
        message = f"{text!r} is no host name: expected a name without https:// and path, such as box.example.ts.net"
        raise UsageError(message, "liza web --help")
    return match[1] if port == 443 else f"{match[1]}:{port}"


def find_origin(host: str, host_name: str) -> str | None:
    """Return the origin of the page at a value of Host; None if this page is not there.

    ``host_name``: that of the tunnel, or empty. At 127.0.0.1 each port is taken, because `ssh -L` may show the page at
    another one; no name but localhost is, because its owner could resolve another to 127.0.0.1.
    """
    if _LOOPBACK.fullmatch(host):
        return f"http://{host}"
    return f"https://{host}" if host and host == host_name else None


def check_origin(request: Request, host_name: str) -> None:
    """Raise PageRefused for a request at another host, or one that a page of another origin sends."""
    host = request.headers.get("host", "").lower()
    own = find_origin(host, host_name)
    if own is None:
        raise PageRefused(421, f"this page is not at {host!r}: open the address that liza web printed")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if request.method in ("GET", "HEAD"):
        # A link in a message opens the page. What another page loads from here is refused.
        if site not in ("same-origin", "none") and request.headers.get("sec-fetch-mode") != "navigate":
            raise PageRefused(403, "another page sends this request")
        return
    origin = request.headers.get("origin", "").lower()
    if origin != own or site != "same-origin":
        raise PageRefused(403, f"the form comes from {origin or 'an unknown page'}, expected {own}")


def is_from_script(request: Request) -> bool:
    """Return whether the answer is read by the page's script: then it is no page."""
    return request.scope["path"] in _FOR_SCRIPTS or "x-liza" in request.headers


def comes_from_elsewhere(request: Request) -> bool:
    """Return whether a link of another site opens the page: the browser sends no cookie with it."""
    return request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site"


def make_refusal(request: Request, status: int, text: str, assets: str) -> Response:
    """Return the answer to a refused request: a short page, or a line for the page's script."""
    # An answer before the whole body was read: the connection cannot be used again.
    more = {"connection": "close"} if status in (408, 413) else {}
    if "x-liza" in request.headers:
        return Response(msgspec.json.encode({"isDone": False, "text": text}), status, more, "application/json")
    if is_from_script(request):
        return Response(f"{text}\n", status, more, "text/plain")
    return Response(render_refusal(status=status, text=text, assets=assets), status, more, "text/html")


def with_headers(response: Response) -> Response:
    """Add the headers that each response has."""
    response.headers.update(HEADERS)
    response.headers.setdefault("cache-control", "no-store")
    return response


def own_path(text: str) -> str:
    """Return a path of this page; the first page for anything else, so that no link leads to another site."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/"
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and not parts.netloc and text.isprintable()
    return text if is_own else "/"


async def read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form. Raises PageRefused if it is too large, too slow or no form.

    The rest of a too large form is read and dropped, so that the client reads the answer before a broken pipe.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise PageRefused(415, "this is no form")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= MAX_FORM:
                    chunks.append(chunk)
    except ClientDisconnect:
        raise PageRefused(400, "the form is incomplete") from None
    except TimeoutError:
        raise PageRefused(408, f"the form was not complete after {FORM_SECONDS:g} s") from None
    if size > MAX_FORM:
        raise PageRefused(413, f"the form has more than {MAX_FORM >> 10} KB")
    try:
        return parse_qs(b"".join(chunks).decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise PageRefused(400, f"the form has more than {MAX_FIELDS} fields") from None
