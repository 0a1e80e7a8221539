"""Removal of secrets from a text before it is stored or shown. Pure.

Recognised are the key formats of providers, and values after a name such as ``password=``. A secret without such a
format or name is not recognised. Hashes, uuids and base64 texts without such a name are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_NOT_INSIDE = r"(?<![A-Za-z0-9_+/-])"
_KEYS = (
    ("API key", r"sk-(?:ant-|proj-|or-|svcacct-|live-|test-)?[A-Za-z0-9_-]{20,}"),
    ("API key", r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("GitHub token", r"gh[opusr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}"),
    ("GitLab token", r"glpat-[A-Za-z0-9_-]{20,}"),
    ("AWS key", r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])"),
    ("Slack token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("Google key", r"AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}"),
    ("npm token", r"npm_[A-Za-z0-9]{36}"),
    ("PyPI token", r"pypi-[A-Za-z0-9_-]{50,}"),
    ("Hugging Face token", r"hf_[A-Za-z0-9]{30,}"),
    ("JWT", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
)
_PEM = (
    r"-----BEGIN (?P<pem>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----(?:(?!-----BEGIN ).)*?(?:-----END (?P=pem)-----|\Z)"
)
_UNFINISHED_KEY = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?!.*-----END )"
MAX_LINE, MAX_KEY = 4096, 16_384  # characters: how much text is held back until the line or key is complete
_URL = r"(?P<scheme>\b[a-z][a-z0-9+.-]{1,20}://)(?P<user>[^\s/:@\"'<>]{0,100}):(?P<word>[^\s/@\"'<>]{1,200})@"
_NAME = r"(?:password|passwd|passphrase|secret(?:[_-]?key)?|api[_-]?key|access[_-]?key|private[_-]?key|token)[0-9]{0,2}"
# Placeholders and code are not secrets: ${TOKEN}, <token>, token=None, password: str.
_VALUE = r"(?P<quote>[\"']?)(?![\"'$<{(\[*]|%\()(?P<value>[^\s\"'`,;&<>(){}\[\]]{8,200})(?P=quote)(?![(\[.])"
_ASSIGNED = rf"(?i:(?P<name>{_NAME})(?P<is>[\"']?\s?(?:=|:)\s?)){_VALUE}"
_HEADER = (
    r"(?i:(?P<header>\bauthorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token)\s+))"
    r"(?P<credential>[^\s\"'\[<$][^\s\"']{5,})"
)
_BEARER = r"(?P<bearer>\bBearer\s+)(?P<what>[A-Za-z0-9_.~+/=-]{20,})"

# Compiled by `re` on first use: most commands redact nothing, and compiling takes 4 ms.
_PATTERN = "|".join([_PEM, _HEADER, _BEARER, *(f"{_NOT_INSIDE}(?P<k{n}>{key})" for n, (_, key) in enumerate(_KEYS))])
_HINT = re.compile(
    r"sk-|[srp]k_|gh[opusr]_|github_pat|glpat-|AKIA|ASIA|xox|AIza|ya29|npm_|pypi-|hf_|eyJ|PRIVATE KEY|Bearer|://"
    r"|(?i:authorization|passw|passphrase|secret|key|token)"
)


def redact(text: str) -> str:
    """Return ``text`` with each recognised secret replaced by ``[redacted: <kind>]``."""
    if not _HINT.search(text):
        return text
    text = re.sub(_PATTERN, _redact_key, text, flags=re.DOTALL)
    text = re.sub(_URL, lambda match: f"{match['scheme']}{match['user']}:[redacted: password]@", text)
    return re.sub(_ASSIGNED, _redact_assignment, text)


def redact_values(value: Any) -> Any:
    """Return a value of JSON with secrets removed from its texts."""
    if isinstance(value, dict):
        return {name: redact_values(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [redact_values(entry) for entry in value]
    return redact(value) if isinstance(value, str) else value


def redactable_length(text: str) -> int:
    """Return the length of the part of a growing text that can be redacted now: without the unfinished line or key.

    An unfinished line longer than MAX_LINE is cut after its last blank, or not at all if it has none.
    """
    end = max(text.rfind("\n"), text.rfind("\r")) + 1
    begun = re.search(_UNFINISHED_KEY, text, re.DOTALL)
    if begun is not None and len(text) - begun.start() <= MAX_KEY:
        return min(begun.start(), end)
    if len(text) - end <= MAX_LINE:
        return end
    return text.rfind(" ") + 1 or len(text)


def redact_changes(before: Any, after: Any) -> Any:
    """Return ``after``, a part of a board, with secrets removed from the texts that differ from ``before``.

    Unchanged texts are kept: what a person wrote stays when another process changes the entry around it.
    """
    if after is before:
        return after
    if type(after) is str:
        return after if after == before else redact(after)
    if isinstance(after, msgspec.Struct):
        old = {name: getattr(before, name, None) for name in after.__struct_fields__}
        pairs = [(name, getattr(after, name), redact_changes(old[name], getattr(after, name))) for name in old]
        changed = {name: new for name, was, new in pairs if new is not was}
        return msgspec.structs.replace(after, **changed) if changed else after
    if isinstance(after, tuple):
        return _redact_entries(before if isinstance(before, tuple) else (), after)
    if isinstance(after, Mapping):
        old_values = before if isinstance(before, Mapping) else {}
        return {name: redact_changes(old_values.get(name), entry) for name, entry in after.items()}
    return after


def describe_secrets(before: Any, after: Any) -> tuple[str, ...]:
    """Return a remark if ``after``, a part of a board that a person wrote, has a secret that ``before`` does not have.

    The text is kept: it may be no secret, and a person's text is never changed.
    """
    redacted = redact_changes(before, after)
    if redacted is after or redacted == after:
        return ()
    kinds = sorted(set(re.findall(r"\[redacted: ([^\]]{1,60})\]", repr(redacted))))
    return (
        f"this looks like a secret ({', '.join(kinds)}). It is kept as typed; agents and providers get it redacted",
    )


def _redact_entries(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the list ``after`` redacted. Of thousands of tasks a transaction changes one; the others are the same."""
    unchanged = set(map(id, before))
    if all(id(entry) in unchanged for entry in after):
        return after
    previous = {_entry_key(entry): entry for entry in before}
    return tuple(
        entry if id(entry) in unchanged else redact_changes(previous.get(_entry_key(entry)), entry) for entry in after
    )


def _entry_key(entry: Any) -> object:
    """Return the key that identifies an entry in an older list: a string itself, else its id, else the object."""
    return entry if isinstance(entry, str) else getattr(entry, "id", None) or id(entry)


def _redact_key(match: re.Match[str]) -> str:
    if match["pem"]:
        return f"[redacted: {match['pem'].lower()}]"
    if match["header"]:
        return f"{match['header']}[redacted: credential]"
    if match["bearer"]:
        return f"{match['bearer']}[redacted: token]"
    kind = next(name for n, (name, _) in enumerate(_KEYS) if match[f"k{n}"])
    return f"[redacted: {kind}]"


def _redact_assignment(match: re.Match[str]) -> str:
    value = match["value"]
    if not _is_like_a_secret(value):
        return match[0]
    return f"{match['name']}{match['is']}{match['quote']}[redacted: {match['name'].lower()}]{match['quote']}"


def _is_like_a_secret(value: str) -> bool:
    """Return whether a value may be a secret: no plain word (``token=required``), path, dotted name or redaction."""
    if value.startswith(("[redacted", "/", "./", "~/", "http", "os.", "process.", "env.")):
        return False
    kinds = (any(c.islower() for c in value), any(c.isupper() for c in value), any(c.isdigit() for c in value))
    return kinds[2] or (sum(kinds) + any(not c.isalnum() and c not in "._-" for c in value)) > 1
