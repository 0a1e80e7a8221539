"""Recognise lines, with the cursor after them, that ask a person: choices, secrets, keys to press, pagers. Pure.

Any text typed there is taken as the answer, so a line that only resembles a question is treated as one.
"""

from __future__ import annotations

import re

_MAX_LINE = 400  # characters at a line's end that are examined
_END = r"[\s?:>.!]*$"
_GROUP = re.compile(r"[\[({<](?P<choices>\S.{0,60}?)[\])}>]+" + _END)
_YES_OR_NO = frozenset({"y", "n", "yes", "no"})
_LETTER = re.compile(r"[\[(][A-Za-z][\])]")
_EXPLICIT = (
    re.compile(r"\b(y|yes)\s*(/|\||,|\bor\b)\s*(n|no)\b\W*$", re.IGNORECASE),
    re.compile(
        r"\b(pass(word|phrase|code)|pin|otp|secret|api[ _-]?key|access token|(verification|security|one-time) code"
        r"|user ?name|login)\b.{0,200}[:?]\s*$",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(press|hit|strike)\W+(the\W+)?(enter|return|any( other)? key|a key|space)\b(?!\W*(to|and) (send|submit))",
        re.IGNORECASE,
    ),
    re.compile(r"\b(type|enter|answer|say|write)\W{1,3}(yes|no|y|n)\b", re.IGNORECASE),
    re.compile(r"\b(choice|selection|option)\b[^:?>]{0,20}[:?>]\s*$|\benter a value:\s*$|^#\? $", re.IGNORECASE),
    re.compile(r"\(END\)\s*$|--\s*more\s*--.{0,20}$|\bpress h for help or q to quit\b", re.IGNORECASE),
)
_PAGER = re.compile(r"\s*:\s*$|lines \d+-\d+")
_OPEN = re.compile(r"\W*(what|how|which|who|where|when|why)\b", re.IGNORECASE)
_SENTENCE = re.compile(
    r"(\b(do|does|would|are|is|shall|should|can|may|will|did) (you|i|we|it|this|that|the)\b"
    r"|\b(continue|proceed|overwrite|replace|delete|remove|quit|exit|abort|retry|save|confirm|ok|okay|sure|really|accept"
    r"|agree|allow|trust|install|apply|restart|reset|discard|correct|ready)\b)[^?]*\?\s*$",
    re.IGNORECASE,
)


def is_question(line: str, by_line: bool | None = None) -> bool:
    """Return whether a line asks for a decision; ``by_line``: the kernel edits the answer, so it is no pager."""
    return is_explicit_question(line, by_line) or (
        not _OPEN.match(line) and _SENTENCE.search(line[-_MAX_LINE:]) is not None
    )


def is_explicit_question(line: str, by_line: bool | None = None) -> bool:
    """Return whether more than a question's words show it: choices, a term for a secret, a key to press, a pager's
    sign."""
    line = line[-_MAX_LINE:]
    if _is_choice(line) or any(pattern.search(line) for pattern in _EXPLICIT):
        return True
    return not by_line and _PAGER.match(line) is not None


def _is_choice(line: str) -> bool:
    """Return whether a line ends with its possible answers in brackets, or marks them by letters."""
    match = _GROUP.search(line)
    if match is not None:
        words = (re.sub(r"\W", "", word).lower() for word in re.split(r"[/,|=:;]|\bor\b", match["choices"]))
        answers = [word for word in words if word]
        if _YES_OR_NO.intersection(answers):
            return True
        if len(answers) > 1 and all(len(word) == 1 and word.isalpha() for word in answers):
            return True
    return len(_LETTER.findall(line)) > 1 and re.search(r"[?:>\])]\s*$", line) is not None
