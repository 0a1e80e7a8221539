from __future__ import annotations

import pytest

from liza.model.errors import format_error, read_last_message


@pytest.mark.parametrize(("message", "hint"), [("it is Tuesday", "liza status"), ("no: reason", ""), ("", "")])
def test_an_error_text_is_read_back_as_it_was_written(message: str, hint: str) -> None:
    output = f"coder-1  started\n{format_error('liza-agent', message, hint)}\n\n" if message else ""
    assert read_last_message("liza-agent", output) == (message, hint)


def test_any_other_line_is_returned_as_the_last_message() -> None:
    assert read_last_message("liza-agent", "coder-1  started\n") == ("coder-1  started", "")
    assert read_last_message("liza-agent", "  next: liza status\n") == ("  next: liza status", "")
