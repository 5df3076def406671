"""Authentication of control sessions: credentials of clients, and what judges them.

Source: Aeron `Authenticator`, `AuthenticatorSupplier`, `AeronArchive`, `ControlResponsePoller`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol, final

import attrs

__all__ = [
    "AcceptAll",
    "AskAgain",
    "Authenticator",
    "AuthenticatorSupplier",
    "CredentialsSupplier",
    "Verdict",
]


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


class CredentialsSupplier(Protocol):
    """Says who we are, and answers when the archive wants to know more."""

    def encoded_credentials(self) -> bytes:
        """Return what the first request carries."""

    def on_challenge(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge."""


class FixedCredentials:
    """Always the same credentials, whatever the challenge."""

    def __init__(self, credentials: bytes) -> None:
        self._credentials = credentials

    def encoded_credentials(self) -> bytes:
        """Return them."""
        return self._credentials

    def on_challenge(self, challenge: bytes) -> bytes:
        """Return them again."""
        del challenge
        return self._credentials
