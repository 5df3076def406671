"""Every exception that aeron_async raises, in one tree.

    AeronError
    ├── ConfigurationError            (ValueError)  a URI, context or argument; before any I/O
    │   ├── ChannelUriError                         an invalid channel URI
    │   └── DoorInUseError                          another process has opened the door
    ├── RegistrationError                           the conductor refused; carries a code
    ├── ProtocolError                               a peer broke the wire contract
    ├── ClosedError                                 we closed it, or its owner was closed
    ├── NotConnectedError                           no subscriber, and the caller would not wait
    ├── BusyError            (RuntimeError)         a second task consumes the same object
    ├── EncodeError                   (ValueError)  a value that its codec cannot encode
    ├── DecodeError                   (ValueError)  a payload that its codec cannot decode
    ├── LaggedError                                 a reader is too far behind; has lag and limit
    ├── TooManyKeysError                            more keys wait than a conflating reader holds
    ├── SnapshotError                               no snapshot joins the live stream
    ├── PublicationError                            an offer can never succeed
    │   ├── MessageTooLongError       (ValueError)  longer than the log buffer allows
    │   └── MaxPositionExceededError                the stream is at its last position
    ├── AeronTimeoutError             (TimeoutError) a caller's timeout passed
    │   ├── OfferTimeoutError                       an offer found no room in time
    │   └── DriverTimeoutError                      the driver did not answer in time
    ├── WrongLoopError                (RuntimeError) used from another loop than its own
    ├── DriverError                                 an agent of the driver failed, or none is there
    ├── RpcError                                    a call had no answer, or was answered an error
    │   ├── CallFailedError                         the server answered an error; has a status
    │   ├── CallNotSentError                        no server got it: it is safe to call again
    │   │   └── NoServerError                       no server is connected
    │   ├── CallLostError                           it was sent, and whether it ran is unknown
    │   └── CallTimeoutError    (AeronTimeoutError) its deadline passed
    └── ArchiveError                                an archive refused or failed; carries a code
        ├── ArchiveFileError                        a file of an archive is invalid; has offset
        ├── ArchiveBusyError                        another archive holds the directory
        ├── UnknownRecordingError     (LookupError) no recording has that id
        ├── InvalidPositionError       (ValueError) a position outside, or in mid frame
        ├── DataLossError                           recorded data is missing or torn
        ├── RecordingGapError                       a recording stopped, and its stream continued
        ├── ForeignLogError                         a cursor is of the log of another archive
        ├── CursorConflictError                     another consumer has moved the cursor
        ├── FencedError                             a newer producer has taken over the log
        └── StorageError                  (OSError) the disk is full, or failed

An expected outcome is a value, never an exception: see `OfferOutcome`. A malformed datagram raises
`ProtocolError` inside the protocol layer only; the driver counts and drops it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, final

from aeron_async.text import printable

if TYPE_CHECKING:
    from aeron_async.waits import Why

__all__ = [
    "AeronError",
    "AeronTimeoutError",
    "ArchiveBusyError",
    "ArchiveError",
    "ArchiveErrorCode",
    "ArchiveFileError",
    "BusyError",
    "CallFailedError",
    "CallLostError",
    "CallNotSentError",
    "CallTimeoutError",
    "ChannelUriError",
    "ClosedError",
    "ConfigurationError",
    "CursorConflictError",
    "DataLossError",
    "DecodeError",
    "DoorInUseError",
    "DriverError",
    "DriverTimeoutError",
    "EncodeError",
    "ErrorCode",
    "FencedError",
    "ForeignLogError",
    "InvalidPositionError",
    "LaggedError",
    "MaxPositionExceededError",
    "MessageTooLongError",
    "NoServerError",
    "NotConnectedError",
    "OfferTimeoutError",
    "ProtocolError",
    "PublicationError",
    "RecordingGapError",
    "RegistrationError",
    "RpcError",
    "SnapshotError",
    "Status",
    "StorageError",
    "TooManyKeysError",
    "UnknownRecordingError",
    "WrongLoopError",
]


MESSAGE_LENGTH_MAX: Final = 4_000
"""Longest error text, in characters."""


@final
class ErrorCode(IntEnum):
    """Error codes of the client protocol and of ERR frames.

    Source: Aeron `ErrorCode`.
    """

    GENERIC = 11
    INVALID_CHANNEL = 1
    UNKNOWN_SUBSCRIPTION = 2
    UNKNOWN_PUBLICATION = 3
    CHANNEL_ENDPOINT_ERROR = 4
    UNKNOWN_COUNTER = 5
    UNKNOWN_COMMAND = 6
    MALFORMED_COMMAND = 7
    NOT_SUPPORTED = 8
    UNKNOWN_HOST = 9
    RESOURCE_TEMPORARILY_UNAVAILABLE = 10
    STORAGE_SPACE = 12
    IMAGE_REJECTED = 13
    PUBLICATION_REVOKED = 14


class AeronError(Exception):
    """Base of the exceptions of this package; its text is safe for terminals and logs."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(
            *(
                printable(each, MESSAGE_LENGTH_MAX) if isinstance(each, str) else each
                for each in arguments
            )
        )


class ConfigurationError(AeronError, ValueError):
    """A setting or argument that is not valid; raised before any I/O."""


class ChannelUriError(ConfigurationError):
    """A channel URI that cannot be parsed, or whose parameters contradict each other."""


class DoorInUseError(ConfigurationError):
    """The path of a door at which another process, or another door of this one, listens."""


class RegistrationError(AeronError):
    """The conductor refused a request.

    Attributes:
        code: Aeron's error code for the refusal.
    """

    def __init__(self, message: str, *, code: ErrorCode = ErrorCode.GENERIC) -> None:
        super().__init__(message)
        self.code = code


class ProtocolError(AeronError):
    """A frame that violates the wire protocol."""


class ClosedError(AeronError):
    """The object, or the client or driver that owns it, has been closed on this side."""


class NotConnectedError(AeronError):
    """No subscriber is connected, and the publication was told not to wait for one."""


class BusyError(AeronError, RuntimeError):
    """A second task tried to read where only one task may."""


class EncodeError(AeronError, ValueError):
    """A value that its codec cannot encode; nothing was offered."""


class DecodeError(AeronError, ValueError):
    """A payload that its codec cannot decode; its text has nothing of the payload but numbers."""


class LaggedError(AeronError):
    """A reader is further behind the newest data than it allows; nothing is lost yet.

    Attributes:
        lag_bytes: How far it is behind, in bytes of the stream.
        max_lag_bytes: How far it may be.
    """

    def __init__(self, message: str, *, lag_bytes: int, max_lag_bytes: int) -> None:
        super().__init__(message)
        self.lag_bytes = lag_bytes
        self.max_lag_bytes = max_lag_bytes


class TooManyKeysError(AeronError):
    """More keys have a value that waits than a conflating reader may hold."""


class SnapshotError(AeronError):
    """No snapshot was found that joins the live stream without a gap."""


class PublicationError(AeronError):
    """An offer that can never succeed on this publication."""


class MessageTooLongError(PublicationError, ValueError):
    """A message longer than the publication's term length and MTU allow."""


class MaxPositionExceededError(PublicationError):
    """The stream has reached the last position its term length can express."""


class AeronTimeoutError(AeronError, TimeoutError):
    """A timeout given by the caller has passed.

    Attributes:
        why: Why the publication or subscription made its caller wait; None for other waits.
    """

    def __init__(self, message: str, *, why: Why | None = None) -> None:
        super().__init__(message)
        self.why = why


class OfferTimeoutError(AeronTimeoutError):
    """An offer found no room, or no subscriber, before its timeout.

    Attributes:
        position: Position of the publication, in bytes.
        position_limit: Position up to which appending was allowed, in bytes.
        waited_ns: How long the offer waited.
        is_connected: Whether any subscriber was connected at the end.
        slowest_receiver: Identity of the receiver that sets the pace, if it is known.
        accepted: Of an offer of many messages: how many were appended.
    """

    accepted: int = 0

    def __init__(
        self,
        message: str,
        *,
        position: int,
        position_limit: int,
        waited_ns: int,
        is_connected: bool,
        slowest_receiver: str | None = None,
        why: Why | None = None,
    ) -> None:
        super().__init__(message, why=why)
        self.position = position
        self.position_limit = position_limit
        self.waited_ns = waited_ns
        self.is_connected = is_connected
        self.slowest_receiver = slowest_receiver


class DriverTimeoutError(AeronTimeoutError):
    """The media driver did not answer in time, or was lost while a call waited."""


class WrongLoopError(AeronError, RuntimeError):
    """A client, a driver or an object of one was used outside its event loop.

    Each belongs to one event loop of one process, in which it was started. Use it from there;
    another thread calls `loop.call_soon_threadsafe` or `asyncio.run_coroutine_threadsafe`.
    """


class DriverError(AeronError):
    """No driver can be used.

    An agent of this process's media driver failed, and the driver and its clients are closed; or an
    Aeron directory has no driver that is ready.
    """


@final
class ArchiveErrorCode(IntEnum):
    """Error codes of archives, as in the control protocol.

    Source: Aeron `ArchiveException`.
    """

    GENERIC = 0
    ACTIVE_LISTING = 1
    ACTIVE_RECORDING = 2
    ACTIVE_SUBSCRIPTION = 3
    UNKNOWN_SUBSCRIPTION = 4
    UNKNOWN_RECORDING = 5
    UNKNOWN_REPLAY = 6
    MAX_REPLAYS = 7
    MAX_RECORDINGS = 8
    INVALID_EXTENSION = 9
    AUTHENTICATION_REJECTED = 10
    STORAGE_SPACE = 11
    UNKNOWN_REPLICATION = 12
    UNAUTHORISED_ACTION = 13
    REPLICATION_CONNECTION_FAILURE = 14
    EMPTY_RECORDING = 15
    INVALID_POSITION = 16


class ArchiveError(AeronError):
    """An archive refused a request, or failed.

    Attributes:
        code: Error code, as in the control protocol.
    """

    code: ArchiveErrorCode = ArchiveErrorCode.GENERIC

    def __init__(self, message: str, *, code: ArchiveErrorCode | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class ArchiveFileError(ArchiveError):
    """A file of an archive is damaged, foreign, or of an unknown version.

    Attributes:
        file: Name of the file.
        offset: Offset in the file, in bytes.
    """

    def __init__(self, message: str, *, file: str, offset: int) -> None:
        super().__init__(f"{file}, offset {offset}: {message}")
        self.file = file
        self.offset = offset


class ArchiveBusyError(ArchiveError):
    """Another archive is alive on this directory."""


class UnknownRecordingError(ArchiveError, LookupError):
    """No recording has that id, or it was purged."""

    code = ArchiveErrorCode.UNKNOWN_RECORDING


class InvalidPositionError(ArchiveError, ValueError):
    """A position outside the recording, or inside a frame.

    Attributes:
        nearest: The nearest valid position, in bytes; None if it is not known.
    """

    code = ArchiveErrorCode.INVALID_POSITION

    def __init__(self, message: str, *, nearest: int | None = None) -> None:
        super().__init__(message)
        self.nearest = nearest


class DataLossError(ArchiveError):
    """Data that a query should read was purged or truncated, or is damaged.

    Attributes:
        recording_id: Id of the recording.
        position: Position from which on data is missing, in bytes.
    """

    def __init__(self, message: str, *, recording_id: int, position: int) -> None:
        super().__init__(f"recording {recording_id}, position {position}: {message}")
        self.recording_id = recording_id
        self.position = position


class RecordingGapError(ArchiveError):
    """A recording has stopped, and its stream has continued: the part in between is not available.

    Attributes:
        recording_id: Id of the recording.
        recorded_position: Where the recorded or received part ends, in bytes.
        live_position: Where the live stream continues, in bytes.
    """

    def __init__(self, *, recording_id: int, recorded_position: int, live_position: int) -> None:
        super().__init__(
            f"recording {recording_id} ends at {recorded_position}, and its stream continues at "
            f'{live_position}: on_gap="report" continues there; start a new recording to miss '
            "nothing more"
        )
        self.recording_id = recording_id
        self.recorded_position = recorded_position
        self.live_position = live_position


class ForeignLogError(ArchiveError):
    """A cursor is of the log of another archive; its positions mean nothing in this one.

    Attributes:
        expected: Id of the log that was opened.
        found: Id of the log that the cursor is of.
    """

    def __init__(self, *, expected: object, found: object) -> None:
        super().__init__(
            f"the cursor is of log {found}, and this archive's log is {expected}: open the archive "
            "that the cursor was made with, or begin again without the cursor"
        )
        self.expected = expected
        self.found = found


class CursorConflictError(ArchiveError):
    """A stored cursor is not where this consumer left it: another consumer uses it, too.

    Nothing was stored, and the transaction was rolled back.
    """


class FencedError(ArchiveError):
    """A newer producer has taken over the log, and this one appends nothing more.

    Attributes:
        last_sequence: Sequence of the last record of this producer that is known to be recorded.
    """

    def __init__(self, message: str, *, last_sequence: int = 0) -> None:
        super().__init__(message)
        self.last_sequence = last_sequence


class StorageError(ArchiveError, OSError):
    """The disk is full, or failed; what was written before can be read."""

    code = ArchiveErrorCode.STORAGE_SPACE


@final
class Status(IntEnum):
    """What became of a call, in the numbers of gRPC.

    Source: https://grpc.io/docs/guides/status-codes/
    """

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


STATUSES: Final = frozenset(Status)


class RpcError(AeronError):
    """A call that had no answer, or was answered with an error.

    Attributes:
        status: What became of it.
    """

    status: Status = Status.UNKNOWN


class CallFailedError(RpcError):
    """The server answered with an error; a handler raises it to answer with one.

    Attributes:
        status: What became of the call.
        error_type: The class of the error that the handler raised, if it raised another.
        is_never_begun: Whether the handler did not begin, so that the call may be sent again.
        retry_after_ms: When the server wants to be asked again, in milliseconds; None if it does
            not say.
    """

    def __init__(
        self,
        message: str,
        *,
        status: Status = Status.UNKNOWN,
        error_type: str = "",
        is_never_begun: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = Status(status) if status in STATUSES else Status.UNKNOWN
        self.error_type = printable(error_type, MESSAGE_LENGTH_MAX)
        self.is_never_begun = is_never_begun
        # It travels in 32 bits.
        self.retry_after_ms = (
            None if retry_after_ms is None else min(max(int(retry_after_ms), 0), 0xFFFF_FFFF)
        )


class CallNotSentError(RpcError):
    """No server got the call, so it is safe to call again."""

    status = Status.UNAVAILABLE


class NoServerError(CallNotSentError):
    """No server is connected."""


class CallLostError(RpcError):
    """The call was sent, the server was lost before it answered: the call may have run."""

    status = Status.UNAVAILABLE


class CallTimeoutError(RpcError, AeronTimeoutError):
    """The deadline of a call passed before an answer came.

    Attributes:
        was_sent: Whether a server may have run it.
    """

    status = Status.DEADLINE_EXCEEDED

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent
