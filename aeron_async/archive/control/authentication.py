"""Authentication of control sessions: credentials of clients, and authenticators of archives.

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
    """Whether a client is admitted."""

    ACCEPT = "accept"
    REJECT = "reject"


@attrs.frozen
class AskAgain:
    """A challenge that the client must answer before there is a verdict.

    Attributes:
        challenge: Bytes that the client gets.
    """

    challenge: bytes


class Authenticator(Protocol):
    """Judges one client; every session has its own authenticator."""

    def on_connect(self, credentials: bytes) -> Verdict | AskAgain:
        """Judge the credentials of the connect request."""

    def on_challenge_response(self, credentials: bytes) -> Verdict | AskAgain:
        """Judge the credentials of the answer to a challenge."""


AuthenticatorSupplier = Callable[[], Authenticator]
"""Makes an authenticator for each session."""


@final
class AcceptAll:
    """Authenticator that accepts every client; the default."""

    def on_connect(self, credentials: bytes) -> Verdict:
        """Accept."""
        del credentials
        return Verdict.ACCEPT

    def on_challenge_response(self, credentials: bytes) -> Verdict:
        """Accept."""
        return self.on_connect(credentials)


class CredentialsSupplier(Protocol):
    """Supplies a client's credentials, and answers challenges."""

    def encoded_credentials(self) -> bytes:
        """Return the credentials for the connect request."""

    def on_challenge(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge."""


class FixedCredentials:
    """Supplies the same credentials always, whatever the challenge."""

    def __init__(self, credentials: bytes) -> None:
        self._credentials = credentials

    def encoded_credentials(self) -> bytes:
        """Return the credentials."""
        return self._credentials

    def on_challenge(self, challenge: bytes) -> bytes:
        """Return the credentials again."""
        del challenge
        return self._credentials
