"""Secrets in texts: what is recognised, what is kept, and how much of a growing text can be judged."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.model.value_classes import replace
from liza.text.redaction import MAX_KEY, MAX_LINE, redact, redact_changes, redactable_length
from tests.unit.boards import board, task

BEGIN = "-----BEGIN PRIVATE KEY-----"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"


def letters(number: int) -> str:
    return ("aB3" * number)[:number]


KEYS = [
    ("API key", "sk-", 20),
    ("API key", "sk-ant-", 16),
    ("API key", "sk-proj-", 15),
    ("API key", "sk_live_", 16),
    ("API key", "rk_test_", 16),
    ("API key", "pk_live_", 16),
    *(("GitHub token", f"gh{letter}_", 30) for letter in "opusr"),
    ("GitHub token", "github_pat_", 22),
    ("GitLab token", "glpat-", 20),
    *(("Slack token", f"xox{letter}-", 10) for letter in "abeoprs"),
    ("Google key", "AIza", 35),
    ("Google key", "ya29.", 20),
    ("npm token", "npm_", 36),
    ("PyPI token", "pypi-", 50),
    ("Hugging Face token", "hf_", 30),
]


@pytest.mark.parametrize(("kind", "prefix", "length"), KEYS)
def test_a_provider_key_is_redacted_and_a_shorter_text_kept(kind: str, prefix: str, length: int) -> None:
    assert redact(f"use {prefix}{letters(length)} now") == f"use [redacted: {kind}] now"
    assert redact(f"use {prefix}{letters(length - 1)} now") == f"use {prefix}{letters(length - 1)} now"
    assert redact(f"x{prefix}{letters(length)}") == f"x{prefix}{letters(length)}", "it is part of another word"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("AKIA" + "A1" * 8, "[redacted: AWS key]"),
        ("ASIA" + "A1" * 8, "[redacted: AWS key]"),
        ("AKIA" + "A1" * 9, "AKIA" + "A1" * 9),
        ("eyJ" + "a" * 8 + ".eyJ" + "b" * 8 + "." + "c" * 8, "[redacted: JWT]"),
        ("eyJ" + "a" * 8 + ".eyJ" + "b" * 8, "eyJ" + "a" * 8 + ".eyJ" + "b" * 8),
        (f"a {PEM} b", "a [redacted: rsa private key] b"),
        ("-----BEGIN PRIVATE KEY-----\nMII", "[redacted: private key]"),
        (PEM.replace("RSA ", "OPENSSH "), "[redacted: openssh private key]"),
        (PEM.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"), "[redacted: pgp private key block]"),
        (PEM.replace("PRIVATE", "PUBLIC"), PEM.replace("PRIVATE", "PUBLIC")),
        (f"-----BEGIN PRIVATE KEY-----\n{PEM}", f"-----BEGIN PRIVATE KEY-----\n{redact(PEM)}"),
        ("Authorization: Bearer abcdef", "Authorization: Bearer [redacted: credential]"),
        ('"authorization": "Basic abcdef"', '"authorization": "Basic [redacted: credential]"'),
        ("Authorization: Bearer abcde", "Authorization: Bearer abcde"),
        ("Authorization: Bearer $TOKEN_X", "Authorization: Bearer $TOKEN_X"),
        (f"Bearer {letters(20)}", "Bearer [redacted: token]"),
        (f"Bearer {letters(19)}", f"Bearer {letters(19)}"),
        ("https://ann:pw@host/x", "https://ann:[redacted: password]@host/x"),
        ("https://:pw@host/x", "https://:[redacted: password]@host/x"),
        ("https://ann@host:80/x", "https://ann@host:80/x"),
        ("no secret here", "no secret here"),
    ],
)
def test_other_forms_of_secrets(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter22", "password=[redacted: password]"),
        ("PASSWORD = 'hunter22'", "PASSWORD = '[redacted: password]'"),
        ('{"api_key": "Abcdefgh"}', '{"api_key": "[redacted: api_key]"}'),
        ("db_secret: abc!DEFG", "db_secret: [redacted: secret]"),
        ("token2=abcdefg1", "token2=[redacted: token2]"),
        ("passphrase=a1234567", "passphrase=[redacted: passphrase]"),
        ("access-key=a1234567", "access-key=[redacted: access-key]"),
        ("passwd=a1234567;", "passwd=[redacted: passwd];"),
    ],
)
def test_a_value_after_a_name_of_a_secret_is_replaced(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "token=required",
        "token=REQUIRED",
        "token=a123456",
        "token=${TOKEN1234}",
        "token=<token1234>",
        "token=[token1234",
        "password: getpass(x)",
        "token = items12[0]",
        "token=/etc/token1",
        "token=./token12",
        "token=~/token12",
        "token=https12345",
        "token=os.environ1",
        "token=process.env1",
        "token=env.TOKEN12",
        "token=my.dotted-name_x",
        "keyboard=hunter22",
    ],
)
def test_code_placeholders_paths_and_plain_words_are_kept(text: str) -> None:
    assert redact(text) == text


@given(st.text(alphabet="ab1 =:/@.\n'-", max_size=60))
def test_a_text_that_was_redacted_is_not_changed_again(text: str) -> None:
    once = redact(f"password={text}")
    assert redact(once) == once


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("", 0),
        ("half a line", 0),
        ("line\nhalf", 5),
        ("line\rhalf", 5),
        ("line\n", 5),
        (f"a\n{BEGIN}\nMII\n", 2),
        (f"a\nb {BEGIN}\nMII\n", 4),
        (f"a\n{PEM}\nhalf", len(PEM) + 3),
        (BEGIN + "\n" + "x\n" * MAX_KEY, 28 + 2 * MAX_KEY),
        ("x" * MAX_LINE, 0),
        ("x" * (MAX_LINE + 1), MAX_LINE + 1),
        ("a b" + "x" * MAX_LINE, 2),
        ("l\n" + "x" * MAX_LINE, 2),
    ],
)
def test_redaction_of_a_growing_text_ends_before_unfinished_parts(text: str, length: int) -> None:
    assert redactable_length(text) == length
    assert (MAX_LINE, MAX_KEY) == (4096, 16384)


SECRET, SHOWN = "password=hunter22", "password=[redacted: password]"


def test_only_texts_that_changed_are_redacted() -> None:
    kept = task("a", description=SECRET)
    edited = replace(kept, done_when=SECRET)
    before, after = board(kept), board(edited, task("b", description=SECRET))
    state = redact_changes(before, after)
    assert [entry.description for entry in state.tasks] == [SECRET, SHOWN]
    assert state.tasks[0].done_when == SHOWN
    assert redact_changes(after, after) is after
    clean = board(kept, task("b"))
    assert redact_changes(before, clean) == clean


def test_texts_in_lists_and_mappings_are_compared_before_redaction() -> None:
    assert redact_changes(("x", SECRET), (SECRET, "y", SECRET + "1")) == (SECRET, "y", SHOWN)
    assert redact_changes({"a": SECRET}, {"a": SECRET, "b": SECRET}) == {"a": SECRET, "b": SHOWN}
    assert redact_changes(None, {"a": (SECRET, 1)}) == {"a": (SHOWN, 1)}
    assert redact_changes("x", (SECRET,)) == (SHOWN,)
    assert redact_changes({"a": 1}, 5) == 5
    assert redact_changes(None, SECRET) == SHOWN
    same = (SECRET, 1)
    assert redact_changes((*same, 2), same) is same


class Named(msgspec.Struct, frozen=True):
    """An entry with an id."""

    id: str
    text: str


def test_list_entries_are_compared_by_id_before_redaction() -> None:
    before = (Named("a", SECRET), Named("b", "x"))
    after = (Named("b", SECRET), Named("a", SECRET), Named("c", SECRET))
    assert redact_changes(before, after) == (Named("b", SHOWN), Named("a", SECRET), Named("c", SHOWN))
