"""Secrets of known shapes taken out of a text before it is kept or shown. Pure.

It knows what providers' keys look like, and what stands behind a word such as ``password=``. A secret that looks like
any other word passes; a hash, a uuid or a base64 text that nobody calls a secret is left alone.
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
_UNFINISHED_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?!.*-----END )", re.DOTALL)
MAX_LINE, MAX_KEY = 4096, 16_384  # characters that an end is waited for
_URL = r"(?P<scheme>\b[a-z][a-z0-9+.-]{1,20}://)(?P<user>[^\s/:@\"'<>]{0,100}):(?P<word>[^\s/@\"'<>]{1,200})@"
_NAME = r"(?:password|passwd|passphrase|secret(?:[_-]?key)?|api[_-]?key|access[_-]?key|private[_-]?key|token)[0-9]{0,2}"
# A word that stands for a secret, or tells about one, is none: ${TOKEN}, <token>, token=None, password: str.
_VALUE = r"(?P<quote>[\"']?)(?![\"'$<{(\[*]|%\()(?P<value>[^\s\"'`,;&<>(){}\[\]]{8,200})(?P=quote)(?![(\[.])"
_ASSIGNED = rf"(?i:(?P<name>{_NAME})(?P<is>[\"']?\s?(?:=|:)\s?)){_VALUE}"
_HEADER = (
    r"(?i:(?P<header>\bauthorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token)\s+))"
    r"(?P<credential>[^\s\"'\[<$][^\s\"']{5,})"
)
_BEARER = r"(?P<bearer>\bBearer\s+)(?P<what>[A-Za-z0-9_.~+/=-]{20,})"

_PATTERN = re.compile(
    "|".join([_PEM, _HEADER, _BEARER, *(f"{_NOT_INSIDE}(?P<k{n}>{key})" for n, (_, key) in enumerate(_KEYS))]),
    re.DOTALL,
)
_URLS = re.compile(_URL)
_ASSIGNMENTS = re.compile(_ASSIGNED)
_HINT = re.compile(
    r"sk-|[srp]k_|gh[opusr]_|github_pat|glpat-|AKIA|ASIA|xox|AIza|ya29|npm_|pypi-|hf_|eyJ|PRIVATE KEY|Bearer|://"
    r"|(?i:authorization|passw|passphrase|secret|key|token)"
)


def redact(text: str) -> str:
    """``text`` with each secret of a known shape replaced by a word that says what stood there."""
    if not _HINT.search(text):
        return text
    text = _PATTERN.sub(_redact_key, text)
    text = _URLS.sub(lambda found: f"{found['scheme']}{found['user']}:[redacted: password]@", text)
    return _ASSIGNMENTS.sub(_redact_assignment, text)


def redactable_length(text: str) -> int:
    """How much of a text that still grows can be redacted for itself: no line that may go on, no key that was begun.

    For what is too long to wait for that, it is what stands before its last blank, or all where it has none.
    """
    end = max(text.rfind("\n"), text.rfind("\r")) + 1
    begun = _UNFINISHED_KEY.search(text)
    if begun is not None and len(text) - begun.start() <= MAX_KEY:
        return min(begun.start(), end)
    if len(text) - end <= MAX_LINE:
        return end
    return text.rfind(" ") + 1 or len(text)


def redact_changes(before: Any, after: Any) -> Any:
    """``after``, parts of a board, with secrets taken out of the texts that ``before`` does not have: what a person
    wrote there stays as it is when somebody else changes what stands beside it."""
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
        known = {_entry_key(one): one for one in before} if isinstance(before, tuple) else {}
        return tuple(redact_changes(known.get(_entry_key(one)), one) for one in after)
    if isinstance(after, Mapping):
        old_ones = before if isinstance(before, Mapping) else {}
        return {name: redact_changes(old_ones.get(name), one) for name, one in after.items()}
    return after


def _entry_key(one: Any) -> object:
    """What finds an entry again in an older list: its id; else it is itself or it is new."""
    return one if isinstance(one, str) else getattr(one, "id", None) or id(one)


def _redact_key(found: re.Match[str]) -> str:
    if found["pem"]:
        return f"[redacted: {found['pem'].lower()}]"
    if found["header"]:
        return f"{found['header']}[redacted: credential]"
    if found["bearer"]:
        return f"{found['bearer']}[redacted: token]"
    kind = next(name for n, (name, _) in enumerate(_KEYS) if found[f"k{n}"])
    return f"[redacted: {kind}]"


def _redact_assignment(found: re.Match[str]) -> str:
    value = found["value"]
    if not _is_like_a_secret(value):
        return found[0]
    return f"{found['name']}{found['is']}{found['quote']}[redacted: {found['name'].lower()}]{found['quote']}"


def _is_like_a_secret(value: str) -> bool:
    """Not a plain word, a path or a name with dots, and not a word of ours: ``token=required`` tells, not betrays."""
    if value.startswith(("[redacted", "/", "./", "~/", "http", "os.", "process.", "env.")):
        return False
    kinds = (any(c.islower() for c in value), any(c.isupper() for c in value), any(c.isdigit() for c in value))
    return kinds[2] or (sum(kinds) + any(not c.isalnum() and c not in "._-" for c in value)) > 1
