"""Who may open a session with an archive.

Source: Aeron `Authenticator`, `AuthenticatorSupplier`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol, final

import attrs

__all__ = ["AcceptAll", "AskAgain", "Authenticator", "AuthenticatorSupplier", "Verdict"]


@final
class Verdict(Enum):
    """Whether a client may come in."""

    ACCEPT = "accept"
    REJECT = "reject"


@attrs.frozen
class AskAgain:
    """The client must answer before there is a verdict.

    Attributes:
        challenge: What it is asked.
    """

    challenge: bytes


class Authenticator(Protocol):
    """Judges one client; every session has its own."""

    def on_connect(self, credentials: bytes) -> Verdict | AskAgain:
        """Judge by what the first request carries."""

    def on_challenge_response(self, credentials: bytes) -> Verdict | AskAgain:
        """Judge by what the client answers."""


AuthenticatorSupplier = Callable[[], Authenticator]
"""Makes an authenticator for each session."""


@final
class AcceptAll:
    """Lets everybody in; what archives do unless told otherwise."""

    def on_connect(self, credentials: bytes) -> Verdict:
        """Accept."""
        del credentials
        return Verdict.ACCEPT

    def on_challenge_response(self, credentials: bytes) -> Verdict:
        """Accept."""
        return self.on_connect(credentials)
