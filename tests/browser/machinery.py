"""An ear for what pages complain about."""

import re

from playwright.sync_api import ConsoleMessage


class Watch:
    """What a page complained about on its console; a test says which complaints it provokes."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.expected: list[str] = []

    def heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")

    def allow(self, pattern: str) -> None:
        self.expected.append(pattern)

    @property
    def unexpected(self) -> list[str]:
        return [told for told in self.complaints if not any(re.search(pattern, told) for pattern in self.expected)]
