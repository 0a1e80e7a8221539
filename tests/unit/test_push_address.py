"""Which address counts as the one that a person has accepted."""

from __future__ import annotations

import pytest

from liza.rules.landing.push_address import (
    PushAddress,
    accept_command,
    find_change,
    make_address,
    parse_accepted,
    strip_login,
)

GOOD = "https://forge.example/a/b.git"
ACCEPT = accept_command("liza push", GOOD)
WITH_PROXY = make_address([GOOD], [("http.proxy", "http://proxy.example"), ("user.name", "x")])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (GOOD, GOOD),
        ("https://me:token@forge.example/a/b.git", GOOD),
        ("ssh://git@forge.example:22/a", "ssh://forge.example:22/a"),
        ("git@forge.example:a/b.git", "git@forge.example:a/b.git"),
        ("/home/me/origin.git", "/home/me/origin.git"),
        # The host of these is not forge.example.
        ("https://evil.example?@forge.example/a/b.git", "https://evil.example?@forge.example/a/b.git"),
        ("https://evil.example#@forge.example/a/b.git", "https://evil.example#@forge.example/a/b.git"),
        ("https://evil.example\\@forge.example/a/b.git", "https://evil.example\\@forge.example/a/b.git"),
        ("https://evil.example/@forge.example/a/b.git", "https://evil.example/@forge.example/a/b.git"),
        ("https://a@b@forge.example/a/b.git", "https://b@forge.example/a/b.git"),
    ],
)
def test_only_a_login_is_left_out_of_a_url(url: str, shown: str) -> None:
    assert strip_login(url) == shown


@pytest.mark.parametrize(
    ("accepted", "present", "words", "hint"),
    [
        (make_address([GOOD], []), make_address(["https://x:y@forge.example/a/b.git"], []), "", ""),
        (WITH_PROXY, WITH_PROXY, "", ""),
        (None, make_address([GOOD], []), "no person has accepted", ACCEPT),
        (make_address(["/old"], []), make_address(["/new it"], []), "origin is at /new it now", "--origin '/new it'"),
        (make_address([GOOD], []), make_address([GOOD, "/x"], []), "the URLs of origin are", ACCEPT),
        (make_address([GOOD], []), WITH_PROXY, "http.proxy was set after", "git config --unset-all http.proxy"),
        (WITH_PROXY, make_address([GOOD], []), "http.proxy was removed after", ACCEPT),
        (make_address([GOOD], [("http.proxy", "a")]), WITH_PROXY, "http.proxy was set after", "--unset-all http.proxy"),
        (PushAddress(urls=()), make_address([GOOD], []), "origin is at", ACCEPT),
    ],
)
def test_an_address_that_nobody_accepted_is_named_with_one_command(
    accepted: PushAddress | None, present: PushAddress, words: str, hint: str
) -> None:
    error = find_change(accepted, present, "liza push")
    assert (error is None) == (not words)
    if error is not None:
        assert words in error.message
        assert error.hint.endswith(hint)
        assert "proxy.example" not in error.message, "values can be secrets"


@pytest.mark.parametrize("record", [None, [], {}, {"urls": "x"}, {"urls": [1]}, {"urls": ["x"], "settings": 3}])
def test_a_damaged_record_accepts_nothing(record: object) -> None:
    assert parse_accepted(record) is None
