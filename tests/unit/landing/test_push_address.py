"""Which address counts as the one that a person has accepted."""

from __future__ import annotations

import pytest

from liza.git.rules.push_address import (
    PushAddress,
    accept_command,
    find_change,
    make_address,
    parse_accepted,
    strip_login,
)

GOOD = "https://forge.example/a/b.git"
ACCEPT = accept_command("liza push", GOOD)


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
        (make_address([GOOD]), make_address(["https://x:y@forge.example/a/b.git"]), "", ""),
        (None, make_address([GOOD]), "no person has accepted", ACCEPT),
        (make_address(["/old"]), make_address(["/new it"]), "origin is at /new it now", "--origin '/new it'"),
        (make_address([GOOD]), make_address([GOOD, "/x"]), "the URLs of origin are", ACCEPT),
        (PushAddress(urls=()), make_address([GOOD]), "origin is at", ACCEPT),
    ],
)
def test_an_unaccepted_address_is_named_with_one_command(
    accepted: PushAddress | None, present: PushAddress, words: str, hint: str
) -> None:
    error = find_change(accepted, present, "liza push")
    assert (error is None) == (not words)
    if error is not None:
        assert words in error.message
        assert error.hint.endswith(hint)


@pytest.mark.parametrize("record", [None, [], {}, {"urls": "x"}, {"urls": [1]}])
def test_a_damaged_record_accepts_nothing(record: object) -> None:
    assert parse_accepted(record) is None


def refusal(accepted: PushAddress | None, present: PushAddress) -> tuple[str, str]:
    error = find_change(accepted, present, "liza land --pr")
    assert error is not None
    return error.message, error.hint


def test_a_refused_address_is_named_with_what_was_accepted_before() -> None:
    new, old = make_address(["/new it"]), make_address(["/old"])
    accept = "liza land --pr --origin '/new it'"
    assert refusal(None, new) == ("no person has accepted the address of origin, which is /new it", accept)
    assert refusal(old, new) == ("origin is at /new it now, and a person has accepted /old", accept)
    assert refusal(PushAddress(urls=()), new) == ("origin is at /new it now, and a person has accepted ", accept)
    two = make_address(["/new it", "/b"])
    assert refusal(make_address(["/new it", "/a"]), two) == (
        "the URLs of origin are /new it and /b now, and a person has accepted /new it and /a",
        accept,
    )


def test_a_record_of_an_accepted_address_survives_a_round_trip() -> None:
    # A record of an earlier version has digests of settings.
    assert parse_accepted({"urls": ["/a", "/b"], "settings": {"http.x": "1"}}) == PushAddress(urls=("/a", "/b"))
    assert parse_accepted({"urls": ["/a"]}) == PushAddress(urls=("/a",))
