"""The commits of ``refs/notes/liza``: what each changed, and what is known about its signature. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from liza.model.value_classes import Value

NOTES_REF: Final = "refs/notes/liza"
FETCH_COMMAND: Final = f"git fetch origin {NOTES_REF}:{NOTES_REF}"


class SignatureState(StrEnum):
    """What is known about the signature of a commit of the notes."""

    UNSIGNED = "unsigned"
    GOOD = "signed"
    UNTRUSTED = "signed with a key that this clone does not trust"
    UNKNOWN = "signed, which this clone cannot check"
    EXPIRED = "signed with a key that has expired"
    REVOKED = "signed with a key that was revoked"
    BAD = "signed, and the signature is wrong"

    @property
    def strength(self) -> int:
        """How much the signature proves: 2 by a trusted key, 1 by some key, 0 nothing."""
        if self is SignatureState.GOOD:
            return 2
        return 0 if self in (SignatureState.UNSIGNED, SignatureState.REVOKED, SignatureState.BAD) else 1


class NotesCommit(Value):
    """A commit of the notes: its signature, who signed it, and the objects of the notes that it changed, by commit."""

    commit: str
    signature: SignatureState
    signer: str
    parents: tuple[str, ...]
    changed: dict[str, str | None]
