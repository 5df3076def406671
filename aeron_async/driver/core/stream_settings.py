"""The settings of streams: lengths of their buffers and windows, sessions, timers.

Source: Aeron `MediaDriver.Context`, `Configuration`, `aeron_driver_context.c`; names beginning
`aeron_async.` are ours.
"""

from __future__ import annotations

from typing import Final

import attrs

from aeron_async.driver.core.directory_settings import (
    GIB,
    KIB,
    MIB,
    MS,
    SECOND,
    US,
    DirectorySettings,
)
from aeron_async.protocol.units import INT32_MAX, INT32_MIN
from aeron_async.settings import duration, flag, inferable, integer, size

__all__ = [
    "DEFAULT_RCVBUF_LENGTH",
    "DEFAULT_WINDOW_LENGTH",
    "TERM_MAX_LENGTH",
    "TERM_MIN_LENGTH",
    "StreamSettings",
]

DEFAULT_WINDOW_LENGTH: Final = 128 * KIB
DEFAULT_RCVBUF_LENGTH: Final = 128 * KIB

TERM_MIN_LENGTH: Final = 64 * KIB
TERM_MAX_LENGTH: Final = GIB
# The data header takes 32 bytes, and frames begin at multiples of 32.
MTU_MIN_LENGTH: Final = 64
MTU_MAX_LENGTH: Final = 65_504
FRAME_ALIGNMENT: Final = 32


@attrs.frozen(kw_only=True)
class StreamSettings(DirectorySettings):
    """The settings of streams: buffer lengths, windows, sessions and timers."""

    # Log buffers, windows and datagrams.
    term_buffer_length: int = size(
        "aeron.term.buffer.length",
        16 * MIB,
        "Length of each of the three terms of a network publication.",
        minimum=TERM_MIN_LENGTH,
        maximum=TERM_MAX_LENGTH,
        power_of_two=True,
        uri_key="term-length",
    )
    ipc_term_buffer_length: int = size(
        "aeron.ipc.term.buffer.length",
        64 * MIB,
        "Length of each of the three terms of an IPC publication.",
        minimum=TERM_MIN_LENGTH,
        maximum=TERM_MAX_LENGTH,
        power_of_two=True,
        uri_key="term-length",
    )
    term_buffer_sparse_file: bool = flag(
        "aeron.term.buffer.sparse.file",
        True,
        "Whether the system provides memory for a term only as the term is written.",
        uri_key="sparse",
    )
    file_page_size: int = size(
        "aeron.file.page.size",
        4 * KIB,
        "Page size; the length of a log buffer is rounded up to a multiple of it.",
        minimum=4 * KIB,
        maximum=GIB,
        power_of_two=True,
    )
    mtu_length: int = size(
        "aeron.mtu.length",
        1_408,
        "Length of the longest datagram of a network publication, frame headers included.",
        minimum=MTU_MIN_LENGTH,
        maximum=MTU_MAX_LENGTH,
        multiple=FRAME_ALIGNMENT,
        uri_key="mtu",
    )
    ipc_mtu_length: int = size(
        "aeron.ipc.mtu.length",
        1_408,
        "Length of the longest frame of an IPC publication, its header included.",
        minimum=MTU_MIN_LENGTH,
        maximum=MTU_MAX_LENGTH,
        multiple=FRAME_ALIGNMENT,
        uri_key="mtu",
    )
    publication_term_window_length: int = size(
        "aeron.publication.term.window.length",
        0,
        "How far a network publication may be ahead of receivers; 0 means half a term, the most.",
        maximum=TERM_MAX_LENGTH,
        uri_key="pub-wnd",
    )
    ipc_publication_term_window_length: int = size(
        "aeron.ipc.publication.term.window.length",
        0,
        "How far an IPC publication may be ahead of subscribers; 0 means half a term, the most.",
        maximum=TERM_MAX_LENGTH,
        uri_key="pub-wnd",
    )
    initial_window_length: int = size(
        "aeron.rcv.initial.window.length",
        DEFAULT_WINDOW_LENGTH,
        "First window that an image offers its sender; half a term if that is less.",
        minimum=256,
        uri_key="rcv-wnd",
    )
    socket_rcvbuf_length: int = size(
        "aeron.socket.so_rcvbuf",
        DEFAULT_RCVBUF_LENGTH,
        "Receive buffer that the driver requests for each socket; 0 keeps the system's default.",
        uri_key="so-rcvbuf",
    )
    socket_sndbuf_length: int = size(
        "aeron.socket.so_sndbuf",
        0,
        "Send buffer that the driver requests for each socket; 0 keeps the system's default.",
        uri_key="so-sndbuf",
    )
    socket_multicast_ttl: int = integer(
        "aeron.socket.multicast.ttl",
        0,
        "Number of hops that a multicast datagram may travel; 0 keeps the system's default.",
        minimum=0,
        maximum=255,
        uri_key="ttl",
    )

    # Sessions and subscriptions.
    publication_reserved_session_id_low: int = integer(
        "aeron.publication.reserved.session.id.low",
        -1,
        "First of the session ids that the driver never chooses by itself.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    publication_reserved_session_id_high: int = integer(
        "aeron.publication.reserved.session.id.high",
        1_000,
        "Last of the session ids that the driver never chooses by itself.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    stream_session_limit: int = integer(
        "aeron.driver.stream.session.limit",
        INT32_MAX,
        "Maximum number of images of one stream on one receiving endpoint.",
        minimum=1,
        maximum=INT32_MAX,
    )
    spies_simulate_connection: bool = flag(
        "aeron.spies.simulate.connection",
        False,
        "Whether a spy makes a publication connected if there is no receiver.",
        uri_key="ssc",
    )
    reliable_stream: bool = flag(
        "aeron.reliable.stream",
        True,
        "Whether receivers request lost data with NAKs; if not, they fill gaps with padding.",
        uri_key="reliable",
    )
    tether_subscriptions: bool = flag(
        "aeron.tether.subscriptions",
        True,
        "Whether a slow subscriber slows the stream down; if not, the stream leaves it behind.",
        uri_key="tether",
    )
    rejoin_stream: bool = flag(
        "aeron.rejoin.stream",
        True,
        "Whether a receiver may join a stream again that it has lost, with a new image.",
        uri_key="rejoin",
    )
    receiver_group_consideration: bool | None = inferable(
        "aeron.receiver.group.consideration",
        "Whether receivers delay NAKs as members of a group; `infer` decides by the channel.",
        uri_key="group",
    )

    # Timers.
    timer_interval_ns: int = duration(
        "aeron.timer.interval",
        SECOND,
        "How often the conductor checks for timeouts that have passed.",
        minimum=US,
    )
    status_message_timeout_ns: int = duration(
        "aeron.rcv.status.message.timeout",
        200 * MS,
        "Longest interval between two status messages of an image.",
        minimum=US,
    )
    image_liveness_timeout_ns: int = duration(
        "aeron.image.liveness.timeout",
        10 * SECOND,
        "How long an image lives without a datagram, and how long it lingers afterwards.",
        minimum=US,
    )
    image_gap_timeout_ns: int = duration(
        "aeron_async.image.gap.timeout",
        5 * SECOND,
        "How long an image waits for lost data while its source is active; then the image ends.",
        minimum=MS,
    )
    over_run_rejoin_interval_ns: int = duration(
        "aeron_async.over.run.rejoin.interval",
        0,
        "How old an image must be to be left and joined again at once after an over-run; 0: never.",
    )
    publication_connection_timeout_ns: int = duration(
        "aeron.publication.connection.timeout",
        5 * SECOND,
        "How long a publication stays connected without a status message.",
        minimum=US,
    )
    publication_linger_timeout_ns: int = duration(
        "aeron.publication.linger.timeout",
        5 * SECOND,
        "How long a closed publication still answers NAKs.",
        minimum=0,
        uri_key="linger",
    )
    publication_unblock_timeout_ns: int = duration(
        "aeron.publication.unblock.timeout",
        15 * SECOND,
        "How long a claimed frame may stay uncommitted before the driver makes it padding.",
        minimum=US,
    )
    client_liveness_timeout_ns: int = duration(
        "aeron.client.liveness.timeout",
        10 * SECOND,
        "How long a client may be silent before the driver closes what it owns.",
        minimum=US,
    )
    untethered_window_limit_timeout_ns: int = duration(
        "aeron.untethered.window.limit.timeout",
        5 * SECOND,
        "How long an untethered subscriber may stay at the window's end before it lingers.",
        uri_key="untethered-window-limit-timeout",
    )
    untethered_linger_timeout_ns: int | None = duration(
        "aeron.untethered.linger.timeout",
        None,
        "How long an untethered subscriber lingers; by default the window limit timeout.",
        uri_key="untethered-linger-timeout",
    )
    untethered_resting_timeout_ns: int = duration(
        "aeron.untethered.resting.timeout",
        10 * SECOND,
        "How long an untethered subscriber rests before it may join the stream again.",
        uri_key="untethered-resting-timeout",
    )
    counters_free_to_reuse_timeout_ns: int = duration(
        "aeron.counters.free.to.reuse.timeout",
        SECOND,
        "How long the driver waits before it uses the id of a freed counter again.",
    )
    # Ours: Aeron has none like it.
    waiting_hint_ns: int = duration(
        "aeron_async.waiting.hint",
        2 * SECOND,
        "How long a client waits before it logs the reason and the remedy; 0 means never.",
    )
