"""Errors of archives, as exceptions here and as numbers in the control protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.archive.control.settings import CONTROL_STREAM_ID
from aeron_async.errors import (
    AeronError,
    AeronTimeoutError,
    ArchiveError,
    ArchiveErrorCode,
    InvalidPositionError,
    StorageError,
    UnknownRecordingError,
)
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode
from aeron_async.text import printable
from aeron_async.waits import PublicationSeen, WaitReason, Why

if TYPE_CHECKING:
    from aeron_async.archive.control.requests import Request
    from aeron_async.client.publication import Publication
    from aeron_async.logs import Log

__all__ = [
    "archive_error",
    "refusal_of",
    "unanswered",
    "unknown_recording",
    "where_answers_go",
    "why_no_archive",
]

KINDS: Final[dict[ArchiveErrorCode, type[ArchiveError]]] = {
    ArchiveErrorCode.UNKNOWN_RECORDING: UnknownRecordingError,
    ArchiveErrorCode.INVALID_POSITION: InvalidPositionError,
    ArchiveErrorCode.STORAGE_SPACE: StorageError,
}
"""Codes that have an exception of their own."""
NOBODY: Final = frozenset({WaitReason.NO_ANSWER, WaitReason.NO_SUBSCRIPTION_HERE})
"""Why a session cannot begin where no archive listens."""
CHANNEL_LENGTH_MAX: Final = 300
"""In characters: what to change comes behind it."""
TEXT_LENGTH_MAX: Final = 1_000
"""In characters: an archive elsewhere says what it likes."""


def archive_error(code: int, text: str) -> ArchiveError:
    """Return what an archive says was wrong; a code that is not known is a generic one."""
    text = printable(text, TEXT_LENGTH_MAX)
    known = ArchiveErrorCode(code) if code in set(ArchiveErrorCode) else ArchiveErrorCode.GENERIC
    kind = KINDS.get(known)
    return ArchiveError(text, code=known) if kind is None else kind(text)


def unanswered(
    error: AeronTimeoutError, publication: Publication, timeout: float
) -> AeronTimeoutError:
    """Return what to say where no session with an archive could begin."""
    why = error.why
    if why is None or why.reason not in NOBODY:
        return AeronTimeoutError(f"no archive: {error}", why=why)
    why = why_no_archive(why, publication)
    channel = printable(publication.channel, CHANNEL_LENGTH_MAX)
    sent_to = why.seen.sent_to if isinstance(why.seen, PublicationSeen) else ()
    return AeronTimeoutError(
        f"nobody answers at {', '.join(sent_to) or channel} (control channel "
        f"{channel} stream {publication.stream_id}) within {timeout:g} s: "
        f"{why.remedy}; if it only starts late, raise timeout",
        why=why,
    )


def why_no_archive(why: Why, publication: Publication) -> Why:
    """Return why requests have nobody to go to, in the words of whoever looks for an archive."""
    if why.reason not in NOBODY:
        return why
    remedy = (
        "is an archive with its control channel there? check the control stream id "
        f"({publication.stream_id} here, default {CONTROL_STREAM_ID})"
    )
    return attrs.evolve(why, remedy=remedy)


def where_answers_go(response_channel: str) -> str:
    """Return what to do about an archive that hears requests and is not heard."""
    uri = ChannelUri.parse(response_channel)
    if uri.control_mode is ControlMode.RESPONSE and uri.control is not None:
        return (
            f"its answers are to come from {uri.control}, which must be an address of the archive, "
            "with a port that is free there; give another control in response_channel, or instead "
            "of control and control-mode an endpoint as the archive sees this host"
        )
    shown = printable(response_channel, CHANNEL_LENGTH_MAX)
    return (
        f"its answers go to {shown}, which must lead from the archive to this client; "
        "give response_channel as the archive sees this host"
    )


def refusal_of(request: Request, error: Exception, log: Log) -> ArchiveError:
    """Return what a client hears of an error; one that nobody foresaw is logged."""
    if isinstance(error, ArchiveError):
        return error
    if not isinstance(error, AeronError):
        log.error("archive_request_failed", request=str(request), exc_info=error)
    return ArchiveError(str(error))


def unknown_recording(recording_id: int) -> UnknownRecordingError:
    """Return the error about a recording that is not there, in the official archive's words."""
    return UnknownRecordingError(f"unknown recording id: {recording_id}")
