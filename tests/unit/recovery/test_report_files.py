"""The files of a bug report: no secrets, no home directory, bounded."""

from __future__ import annotations

import json

import pytest

from liza.recovery.rules import report_files
from liza.recovery.rules.report_files import CUT_NOTE, MAX_FILE_SIZE, READ_SIZE, ReportFile

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
KEY_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"


def test_secrets_and_the_home_directory_are_cut() -> None:
    file = report_files.prepare_file("a", f"token {TOKEN} in /home/ana/shop\n".encode(), "/home/ana")
    assert file == ReportFile("a", b"token [redacted: GitHub token] in ~/shop\n")
    assert report_files.prepare_file("a", b"/x\n", "/").data == b"/x\n"
    assert report_files.prepare_file("a", b"\xff\n", "").data == "\ufffd\n".encode()


def test_addresses_of_notices_are_cut_and_other_addresses_stay() -> None:
    command = 'curl -d "x" -u ann:pass ntfy.sh/topic'
    text = f"""\
targets: ["https://hooks.slack.com/services/T0/B0/XX", "discord://12/ab", 'tgram://1:AA/55']
origin https://github.com/ann/shop git@github.com:ann/shop ssh://git@host/shop file:///srv/shop http://localhost:8000/
https://discord.com/api/webhooks/1/ab, https://api.telegram.org/bot12:AA/send
exec: {command}
{json.dumps({"exec": command})}
"""
    wanted = f"""\
targets: ["https://…", "discord://…", 'tgram://…']
origin https://github.com/ann/shop git@github.com:ann/shop ssh://git@host/shop file:///srv/shop http://localhost:8000/
https://… https://…
exec: {report_files.PRIVATE_NOTE}
{{"exec": "{report_files.PRIVATE_NOTE}"}}
"""
    assert report_files.prepare_file("a", text.encode(), "", [command]).data.decode() == wanted


def test_the_end_of_a_long_file_is_kept_and_marked() -> None:
    data = b"first\n" + b"x" * MAX_FILE_SIZE + b"\nlast\n"
    file = report_files.prepare_file("a", data, "")
    assert file.is_cut
    assert len(file.data) <= MAX_FILE_SIZE + len(CUT_NOTE.encode())
    assert file.data.startswith(CUT_NOTE.encode())
    assert file.data.endswith(b"\nlast\n")


def test_a_secret_at_the_cut_is_not_kept_in_part() -> None:
    padding = "y" * (MAX_FILE_SIZE - 30)
    file = report_files.prepare_file("a", f"{TOKEN}\n{padding}".encode(), "")
    assert TOKEN[-20:].encode() not in file.data
    tail = f"{TOKEN[10:]}\n{KEY_BODY}\n-----END PRIVATE KEY-----\nkept\n".encode()
    assert len(tail) < READ_SIZE
    file = report_files.prepare_file("a", tail, "", is_tail=True)
    assert file.data == (CUT_NOTE + "kept\n").encode()


def test_a_report_is_bounded_and_names_what_is_left_out() -> None:
    big = ReportFile("big", b"x" * report_files.MAX_REPORT_SIZE)
    small = ReportFile("small", b"x")
    assert report_files.bound_report([big, small]) == ([big], ["small"])
    assert report_files.bound_report([small, big]) == ([small], ["big"])


def test_a_report_file_is_cut_only_above_the_largest_size() -> None:
    whole = report_files.prepare_file("a", b"x" * MAX_FILE_SIZE, "")
    assert (len(whole.data), whole.is_cut) == (MAX_FILE_SIZE, False)
    cut = report_files.prepare_file("a", b"x" * (MAX_FILE_SIZE + 1), "")
    assert (cut.data, cut.is_cut) == (CUT_NOTE.encode() + b"x" * MAX_FILE_SIZE, True)
    wide = report_files.prepare_file("a", "é".encode() * MAX_FILE_SIZE + b"x", "")
    assert wide.data.decode() == CUT_NOTE + "é" * (MAX_FILE_SIZE // 2 - 1) + "x", "half of a character is not kept"


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        ("half a line\nb\nc\n", "b\nc\n"),
        ("a\n-----BEGIN x-----\nq\n-----END x-----\nb\n", "-----BEGIN x-----\nq\n-----END x-----\nb\n"),
        ("no line end", ""),
        ("a\nkey\n-----END x-----", ""),
        ("a\nkey\n-----END x-----\nb\n-----BEGIN y-----\n", "b\n-----BEGIN y-----\n"),
    ],
)
def test_a_shortened_file_keeps_whole_lines_and_no_partial_key(tail: str, kept: str) -> None:
    file = report_files.prepare_file("a", tail.encode(), "", is_tail=True)
    assert file == ReportFile("a", (CUT_NOTE + kept).encode(), True)


def test_files_that_fill_the_report_exactly_fit() -> None:
    half = report_files.MAX_REPORT_SIZE // 2
    files = [ReportFile(name, b"x" * half) for name in "ab"]
    assert report_files.bound_report([*files, ReportFile("c", b"")]) == ([*files, ReportFile("c", b"")], [])
    assert report_files.bound_report([*files, ReportFile("c", b"x"), ReportFile("d", b"")])[1] == ["c"]
    assert report_files.MAX_REPORT_SIZE == 6 * 1024 * 1024
    assert report_files.MAX_FILE_SIZE == 256 * 1024
