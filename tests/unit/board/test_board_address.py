"""The URL of a board: what it may name, and what it may not."""

from __future__ import annotations

import pytest

from liza.board.address import BoardAddress, format_file, parse_file, parse_url
from liza.model.errors import UsageError

TLS = {"sslmode": "verify-full"}
FILES = {"sslrootcert": "/etc/ca.pem", "sslcert": "/c", "sslkey": "/k"}
URL = "postgresql://liza_h1@db.example:5432/liza?crew=shop"


@pytest.mark.parametrize(
    ("url", "parameters"),
    [
        (URL, {"host": "db.example", "port": "5432", "user": "liza_h1", "dbname": "liza", **TLS}),
        ("postgres://db.example/liza?crew=shop", {"host": "db.example", "dbname": "liza", **TLS}),
        ("postgresql://[::1]:5433/l?crew=s", {"host": "::1", "port": "5433", "dbname": "l", **TLS}),
        ("postgresql:///liza?host=/run/pg&crew=shop", {"host": "/run/pg", "dbname": "liza"}),
        ("postgresql://ann@/l?host=/s&port=7&crew=a.b", {"host": "/s", "port": "7", "user": "ann", "dbname": "l"}),
        (
            "postgresql://a%40b@db/l%20z?crew=s&sslmode=verify-full",
            {"host": "db", "user": "a@b", "dbname": "l z", **TLS},
        ),
        (
            "postgresql://db/l?crew=s&sslrootcert=/etc/ca.pem&sslcert=/c&sslkey=/k",
            {"host": "db", "dbname": "l", **TLS, **FILES},
        ),
    ],
)
def test_a_url_becomes_parameters_of_libpq(url: str, parameters: dict[str, str]) -> None:
    address = parse_url(url)
    assert address.parameters == parameters
    assert parse_url(address.full_url) == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql://db/l?crew=s", "does not begin with postgresql://"),
        ("db.example/liza", "does not begin with postgresql://"),
        ("postgresql://db/l", "names no crew"),
        ("postgresql://db/l?crew=", "names no crew"),
        ("postgresql://db/l?crew=a/b", "crew=a/b is no name of a crew"),
        ("postgresql://db/?crew=s", "names no database"),
        ("postgresql://db?crew=s", "names no database"),
        ("postgresql://db/a/b?crew=s", "no name of a database"),
        ("postgresql:///l?crew=s", "names no host"),
        ("postgresql://db:port/l?crew=s", "host or port is malformed"),
        ("postgresql://db:99999/l?crew=s", "host or port is malformed"),
        ("postgresql://a,b/l?crew=s", "more than one host"),
        ("postgresql://db/l?crew=s&host=/run", "names the host twice"),
        ("postgresql:///l?crew=s&host=db", "not the directory of a Unix socket"),
        ("postgresql://db/l?crew=s&port=7", "port comes after the host"),
        ("postgresql://db/l?crew=s&crew=t", "parameter twice"),
        ("postgresql://db/l?crew=s&sslmode=disable", "sslmode may only be verify-full"),
        ("postgresql://db/l?crew=s&sslmode=require", "sslmode may only be verify-full"),
        ("postgresql://db/l?crew=s&options=-csearch_path=x", "options is no parameter"),
        ("postgresql://db/l?crew=s&passfile=/x", "passfile is no parameter"),
    ],
)
def test_a_wrong_url_is_refused_with_its_reason(url: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert reason in caught.value.message


@pytest.mark.parametrize(
    "url",
    ["postgresql://ann:s3cret@db/l?crew=s", "postgresql://db/l?crew=s&password=s3cret", "postgresql://:s3cret@db/l"],
)
def test_a_url_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="PGPASSFILE") as caught:
        parse_url(url)
    assert "s3cret" not in str(caught.value) + caught.value.hint


def test_the_file_of_the_address_is_read_as_written() -> None:
    for address in (
        parse_url(URL, "h1"),
        parse_url(URL, remote="up\\stream"),
        parse_url("postgresql:///l?host=/a%20b&crew=s"),
    ):
        assert parse_file(format_file(address)) == address
    assert parse_file(f'url = "{URL}"') == BoardAddress("postgresql://liza_h1@db.example:5432/liza", "shop")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("url =", "no TOML"),
        ("", "it has no url"),
        ("url = 5", "url is no text"),
        (f'url = "{URL}"\npassword = "x"', "password is no text that it may have"),
        (f'url = "{URL}"\nhost = "H 1"', "'H 1' is not the name of a host"),
        (f'url = "{URL}"\nremote = "--upload-pack=x"', "is not the name of a git remote"),
    ],
)
def test_a_wrong_file_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_file(text)
    assert reason in caught.value.message
