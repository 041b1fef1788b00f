"""Who may judge: codes without capitals, and an invitation list where the study has one."""

from __future__ import annotations

import secrets
import sqlite3

from fabula.apps.web.errors import RefusedError

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""None that is read as another."""
LENGTH = 8


def new_codes(number: int) -> list[str]:
    """Codes that nobody guesses: 31^8 of them."""
    made: set[str] = set()
    while len(made) < number:
        made.add("".join(secrets.choice(LETTERS) for _ in range(LENGTH)))
    return sorted(made)


def admitted(db: sqlite3.Connection, code: str) -> str:
    """The code as the study has it, or a refusal: capitals do not make another person.

    Who was here before there was a list, or before capitals stopped counting, stays who they were.
    """
    rows = [row[0] for row in db.execute("SELECT code FROM judge_annotators").fetchall()]
    alike = [known for known in rows if known.casefold() == code.casefold()]
    if alike:
        return code if code in alike else alike[0]
    folded = code.casefold()
    if db.execute("SELECT 1 FROM judge_invited").fetchone() is None:
        return folded
    if db.execute("SELECT 1 FROM judge_invited WHERE code = ?", (folded,)).fetchone() is None:
        raise RefusedError(
            403, "this code is not on the list of this study: look at your invitation again", field="code"
        )
    return folded
