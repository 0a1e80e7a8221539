"""Secrets do not reach the board, the journal, the history, the briefs, the alerts, or the screen."""

from __future__ import annotations

import base64
import hashlib
import string
import uuid
from contextlib import chdir
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.briefs.note import note
from liza.printing import printing
from liza.project.config_verb import set_setting
from liza.tasks.questions import BlockRequest, block
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add, unblock
from liza.text.redaction import MAX_KEY, MAX_LINE, redact, redactable_length
from tests.edges.merge_crew import copied, prepared

LONG = "".join(chr(ord("a") + n % 26) + str(n % 10) for n in range(30))
PEM = "-----BEGIN {0}PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 3 + "-----END {0}PRIVATE KEY-----"
# Put together here, so that nobody who looks for leaked keys finds one in this file.
SECRETS = {
    "anthropic": "sk-" + "ant-api03-" + LONG[:40],
    "openai": "sk-" + "proj-" + LONG[:40],
    "stripe": "sk_" + "live_" + LONG[:24],
    "github": "ghp" + "_" + LONG[:36],
    "github oauth": "gho" + "_" + LONG[:36],
    "github fine": "github" + "_pat_" + LONG[:30],
    "gitlab": "glpat" + "-" + LONG[:20],
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "slack": "xoxb" + "-1234567890-" + LONG[:20],
    "google": "AIza" + LONG[:35],
    "npm": "npm" + "_" + LONG[:36],
    "jwt": ".".join(("eyJ" + LONG[:20], "eyJ" + LONG[:30], LONG[:30])),
    "rsa": PEM.format("RSA "),
    "key": PEM.format(""),
}
SAID = (
    ("password=hunter2!x", "hunter2!x"),
    ("PGPASSWORD=correct-Horse9", "correct-Horse9"),
    ('{"api_key": "9f8e7d6c5b4a"}', "9f8e7d6c5b4a"),
    ("export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "wJalrXUtnFEMI"),
    ("client_secret: 'a1b2c3d4e5'", "a1b2c3d4e5"),
    ("curl -H 'Authorization: Bearer abcdef0123456789'", "abcdef0123456789"),
    ("authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("postgres://admin:s3cr3t@db.internal/x", "s3cr3t"),
    ("https://x-access-token:abc@github.com/a/b.git", ":abc@"),
    ("NPM_TOKEN=0a1b2c3d-4e5f", "0a1b2c3d-4e5f"),
)
KEPT = (
    hashlib.sha1(b"x").hexdigest(),
    hashlib.sha256(b"x").hexdigest(),
    str(uuid.uuid5(uuid.NAMESPACE_DNS, "x")),
    '"integrity": "sha512-' + base64.b64encode(hashlib.sha512(b"x").digest()).decode() + '"',
    base64.b64encode(bytes(range(256))).decode(),
    "task-3: CLAIMED → READY_FOR_REVIEW (coder-1.7)",
    "the token is read from the environment, and the password is asked for",
    "password: str = getpass.getpass()",
    "token = os.environ['TOKEN']",
    "token=${GITHUB_TOKEN}  password=<your password>  secret={{ vault }}",
    "def login(user, password=None, token=default):",
    "assert token == expected_token",
    "risk-assessment-of-the-disk-subsystem, sk-learn",
    "max_tokens=1000000000 token_count: 123456789 monkey=a1b2c3d4",
    "https://example.org:8080/a@b  git@github.com:a/b.git  user@host:/path",
    "tests/test_tokens.py::test_secret_key_rotation PASSED",
    "config.secret_key is not set; see docs/secrets.md",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "Bearer tokens are refused",
    "mask-and-desk-" + "x" * 8,
)


WORDS = (
    "sk",
    "gh",
    "token",
    "key",
    "pass",
    "secret",
    "bearer",
    "auth",
    "_",
    "xox",
    "akia",
    "asia",
    "eyj",
    "aiza",
    "glpat",
)


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("around", ["{}", "it said {}, then ended", "KEY='{}'", "a\n{}\nb", "({})"])
def test_keys_of_known_shapes_are_redacted_everywhere(name: str, around: str) -> None:
    text = around.format(SECRETS[name])
    left = redact(text)
    assert SECRETS[name] not in left
    assert "[redacted: " in left
    assert redact(left) == left


@pytest.mark.parametrize(("text", "secret"), SAID)
def test_a_secret_is_removed_and_its_name_stays(text: str, secret: str) -> None:
    left = redact(text)
    assert secret not in left, left
    assert redact(left) == left


@pytest.mark.parametrize("text", KEPT)
def test_hashes_ids_code_and_sentences_about_secrets_stay_unchanged(text: str) -> None:
    assert redact(text) == text


def test_a_private_key_without_its_end_is_removed_entirely() -> None:
    assert "MIIEv" not in redact(PEM.format("EC ").partition("-----END")[0])


@given(st.text(alphabet=string.ascii_letters + string.digits + " .,;!?()\n/-_'\"", max_size=300))
def test_a_text_without_any_secret_is_unchanged(text: str) -> None:
    low = text.lower()
    if not any(word in low for word in WORDS):
        assert redact(text) == text


@given(st.binary(max_size=200))
def test_bytes_in_base64_and_hex_are_unchanged(data: bytes) -> None:
    for text in (data.hex(), base64.b64encode(data).decode(), base64.b85encode(data).decode().replace("://", "")):
        if "=" not in text.rstrip("=") and ":" not in text:
            assert redact(f"blob {text}") == f"blob {text}"


@given(st.text(max_size=200), st.sampled_from(sorted(SECRETS)), st.text(max_size=200))
def test_twice_redacted_is_once_redacted(before: str, name: str, after: str) -> None:
    once = redact(f"{before} {SECRETS[name]} {after}")
    assert SECRETS[name] not in once
    assert redact(once) == once


@pytest.mark.campaign
def test_a_long_text_takes_time_in_proportion_to_its_length() -> None:
    for part in ("-----BEGIN PRIVATE KEY-----\n", "password=", "eyJ", "a://b:", "sk-", "token" * 3 + "_", "a_"):
        assert isinstance(redact(part * 40_000), str)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("begun", ""),
        ("one\ntwo", "one\n"),
        ("one\n", "one\n"),
        ("10%\r20%\r30", "10%\r20%\r"),
        ("one\n" + PEM.format("")[:60], "one\n"),
        ("one\n" + PEM.format("RSA ") + "\nmore", "one\n" + PEM.format("RSA ") + "\n"),
        ("x " + "y" * MAX_LINE, "x "),
        ("y" * (MAX_LINE + 1), "y" * (MAX_LINE + 1)),
        (PEM.format("") + "\n" + PEM.format("RSA ")[:70], PEM.format("") + "\n"),
    ],
)
def test_a_growing_text_shows_no_unfinished_line_or_key(text: str, shown: str) -> None:
    assert text[: redactable_length(text)] == shown


def test_an_endless_key_is_not_held_back_forever() -> None:
    text = PEM.format("")[:60] + "\nline" * MAX_KEY
    assert redactable_length(text) == text.rindex("\n") + 1


def test_a_secret_in_a_persons_text_is_kept_and_reported(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with prepared(tmp_path_factory) as made:
        crew = copied(made, tmp_path)
    key = SECRETS["anthropic"]
    there = crew.claimed("a")
    with chdir(there):
        by_agent = block(crew.crew, BlockRequest(reason=f"needs {key}", questions=("where?",)))
    results = (
        add(crew.crew, [TaskFields("b", f"Use {key}", "it is there", "b.txt", "README.md")]),
        note(crew.crew, f"use {key}"),
        unblock(crew.crew, "a", [f"use {key}"]),
        set_setting(crew.crew, "integration_command", f"KEY={key} true"),
    )
    remark = "this looks like a secret (API key). It is kept as typed; agents and providers get it redacted"
    assert [result.remarks for result in results] == [(remark,)] * len(results)
    assert results[0].to_dict()["remarks"] == (remark,)
    assert crew.crew.paths.state.read_text().count(key) == len(results)
    clean = note(crew.crew, "ask for the password")
    assert by_agent.remarks == clean.remarks == ()
    assert "remarks" not in clean.to_dict()
    printing.print_result(results[1], as_json=False)
    assert capsys.readouterr().err == f"remark: {remark}\n"
