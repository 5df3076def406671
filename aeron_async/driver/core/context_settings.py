"""Settings of streams and timers, of which many can be overridden by a channel URI.

Source: Aeron `Configuration`, `aeron_driver_context.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.core.environment import (
    INT32_MAX,
    INT32_MIN,
    duration,
    flag,
    inferable,
    integer,
    size,
    supplier,
)
from aeron_async.driver.core.registered import NAME_RESOLVER_GROUP

if TYPE_CHECKING:
    from aeron_async.driver.core.name_resolution import NameResolver, NameResolverSupplier

__all__ = ["GIB", "KIB", "MIB", "MS", "SECOND", "US", "StreamSettings"]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000

TERM_MIN_LENGTH: Final = 64 * KIB
TERM_MAX_LENGTH: Final = GIB
# The data header takes 32 bytes, and frames begin at multiples of 32.
MTU_MIN_LENGTH: Final = 64
MTU_MAX_LENGTH: Final = 65_504
FRAME_ALIGNMENT: Final = 32
SYSTEM_NAME_RESOLVER: Final = "default"


@attrs.frozen(kw_only=True)
class StreamSettings:
    """How long, how often, how far: the shape of a stream and the patience with it."""

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
        "Whether term memory is taken only as it is written, rather than all at once.",
        uri_key="sparse",
    )
    file_page_size: int = size(
        "aeron.file.page.size",
        4 * KIB,
        "What the length of a log buffer is rounded up to.",
        minimum=4 * KIB,
        maximum=GIB,
        power_of_two=True,
    )
    mtu_length: int = size(
        "aeron.mtu.length",
        1_408,
        "Longest datagram of a network publication, headers of frames included.",
        minimum=MTU_MIN_LENGTH,
        maximum=MTU_MAX_LENGTH,
        multiple=FRAME_ALIGNMENT,
        uri_key="mtu",
    )
    ipc_mtu_length: int = size(
        "aeron.ipc.mtu.length",
        1_408,
        "Longest frame of an IPC publication, its header included.",
        minimum=MTU_MIN_LENGTH,
        maximum=MTU_MAX_LENGTH,
        multiple=FRAME_ALIGNMENT,
        uri_key="mtu",
    )
    publication_term_window_length: int = size(
        "aeron.publication.term.window.length",
        0,
        "How far a network publication may run ahead of its receivers; 0 is half a term, the most.",
        maximum=TERM_MAX_LENGTH,
        uri_key="pub-wnd",
    )
    ipc_publication_term_window_length: int = size(
        "aeron.ipc.publication.term.window.length",
        0,
        "How far an IPC publication may run ahead of its subscribers; 0 is half a term, the most.",
        maximum=TERM_MAX_LENGTH,
        uri_key="pub-wnd",
    )
    initial_window_length: int = size(
        "aeron.rcv.initial.window.length",
        128 * KIB,
        "Window that an image grants its sender, at most half a term.",
        minimum=256,
        uri_key="rcv-wnd",
    )
    socket_rcvbuf_length: int = size(
        "aeron.socket.so_rcvbuf",
        128 * KIB,
        "Receive buffer asked of the system for each socket; 0 leaves the system's own.",
        uri_key="so-rcvbuf",
    )
    socket_sndbuf_length: int = size(
        "aeron.socket.so_sndbuf",
        0,
        "Send buffer asked of the system for each socket; 0 leaves the system's own.",
        uri_key="so-sndbuf",
    )
    socket_multicast_ttl: int = integer(
        "aeron.socket.multicast.ttl",
        0,
        "Hops a multicast datagram may take; 0 leaves the system's own number.",
        minimum=0,
        maximum=255,
        uri_key="ttl",
    )

    # Sessions and subscriptions.
    publication_reserved_session_id_low: int = integer(
        "aeron.publication.reserved.session.id.low",
        -1,
        "First of the session ids that are never chosen automatically.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    publication_reserved_session_id_high: int = integer(
        "aeron.publication.reserved.session.id.high",
        1_000,
        "Last of the session ids that are never chosen automatically.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    stream_session_limit: int = integer(
        "aeron.driver.stream.session.limit",
        INT32_MAX,
        "Most images of one stream on one receiving endpoint.",
        minimum=1,
        maximum=INT32_MAX,
    )
    spies_simulate_connection: bool = flag(
        "aeron.spies.simulate.connection",
        False,
        "Whether a spy alone makes a publication connected.",
        uri_key="ssc",
    )
    reliable_stream: bool = flag(
        "aeron.reliable.stream",
        True,
        "Whether gaps are repaired by NAK, rather than filled with padding.",
        uri_key="reliable",
    )
    tether_subscriptions: bool = flag(
        "aeron.tether.subscriptions",
        True,
        "Whether a slow subscriber holds the stream back, rather than falling out of it.",
        uri_key="tether",
    )
    rejoin_stream: bool = flag(
        "aeron.rejoin.stream",
        True,
        "Whether a stream that was lost may come back as a new image.",
        uri_key="rejoin",
    )
    receiver_group_consideration: bool | None = inferable(
        "aeron.receiver.group.consideration",
        "Whether receivers back off before a NAK as one of many; by default as the channel says.",
        uri_key="group",
    )

    # Timers.
    timer_interval_ns: int = duration(
        "aeron.timer.interval",
        SECOND,
        "How often the conductor looks after lifecycles.",
        minimum=US,
    )
    status_message_timeout_ns: int = duration(
        "aeron.rcv.status.message.timeout",
        200 * MS,
        "Longest pause between two status messages of an image.",
        minimum=US,
    )
    image_liveness_timeout_ns: int = duration(
        "aeron.image.liveness.timeout",
        10 * SECOND,
        "How long an image lives without a datagram; also how long it lingers.",
        minimum=US,
    )
    image_gap_timeout_ns: int = duration(
        "aeron_async.image.gap.timeout",
        5 * SECOND,
        "How long the first gap of an image may stay while its source is heard; then it ends.",
        minimum=MS,
    )
    publication_connection_timeout_ns: int = duration(
        "aeron.publication.connection.timeout",
        5 * SECOND,
        "How long a publication counts as connected without a status message.",
        minimum=US,
    )
    publication_linger_timeout_ns: int = duration(
        "aeron.publication.linger.timeout",
        5 * SECOND,
        "How long a closed publication still answers NAKs.",
        minimum=US,
        uri_key="linger",
    )
    publication_unblock_timeout_ns: int = duration(
        "aeron.publication.unblock.timeout",
        15 * SECOND,
        "How long a claimed frame may stay uncommitted before it becomes padding.",
        minimum=US,
    )
    client_liveness_timeout_ns: int = duration(
        "aeron.client.liveness.timeout",
        10 * SECOND,
        "How long a client lives without a sign of life.",
        minimum=US,
    )
    untethered_window_limit_timeout_ns: int = duration(
        "aeron.untethered.window.limit.timeout",
        5 * SECOND,
        "How long an untethered subscriber may stand at the window's end before it lingers.",
        uri_key="untethered-window-limit-timeout",
    )
    untethered_linger_timeout_ns: int | None = duration(
        "aeron.untethered.linger.timeout",
        None,
        "How long an untethered subscriber lingers; unless set, the window limit timeout.",
        uri_key="untethered-linger-timeout",
    )
    untethered_resting_timeout_ns: int = duration(
        "aeron.untethered.resting.timeout",
        10 * SECOND,
        "How long an untethered subscriber rests before it may join again.",
        uri_key="untethered-resting-timeout",
    )
    counters_free_to_reuse_timeout_ns: int = duration(
        "aeron.counters.free.to.reuse.timeout",
        SECOND,
        "How long the id of a freed counter rests.",
    )
    name_resolver_supplier: str | NameResolver | NameResolverSupplier = supplier(
        "aeron.name.resolver.supplier",
        SYSTEM_NAME_RESOLVER,
        "Looks up names: the system's resolver, a registered one, a resolver, or what makes one.",
        choices=(SYSTEM_NAME_RESOLVER,),
        group=NAME_RESOLVER_GROUP,
        instance_method="resolve",
    )
    reresolution_check_interval_ns: int = duration(
        "aeron.driver.reresolution.check.interval",
        SECOND,
        "How often names of silent endpoints are looked up again; 0 is never.",
    )
    driver_timeout_ms: int = integer(
        "aeron.driver.timeout",
        10_000,
        "How long a driver may be silent before it counts as dead, in milliseconds.",
        minimum=0,
        unit_ns=MS,
    )
    # Ours: Aeron has none like it.
    waiting_hint_ns: int = duration(
        "aeron_async.waiting.hint",
        2 * SECOND,
        "How long a client waits before one log line says for what, and what to change; 0 is off.",
    )
