"""What is heard on the wire while a world runs: whether it is true, and whether it comes on time.

Invariant N9: what a driver says is true. A heartbeat says where the stream is and whether it has
ended; a status message, what readers have read, to within a part of the window, and a window within
half a term; a NAK asks only for what is missing; nothing is resent twice within a round trip. A
window that grows by itself does so by a half at most, in whole windows read, and not after
datagrams were dropped.

Invariant N10: all comes on time. Of a silent stream each receiver hears a heartbeat, and its
publisher a status message, at each interval; what may be sent is sent, and what has arrived whole
is shown.
"""

from __future__ import annotations

from collections import deque
from math import ceil, log10
from struct import Struct
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.publication import PublicationState
from aeron_async.logbuffer.position import compute_position, partition_index
from aeron_async.protocol.datagram import frame_type
from aeron_async.protocol.header import DATA_HEADER_LENGTH, DataFlags, FrameType
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.testing.trace import Verdict
from tests.support.auditor import Auditor, conductor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.testing.world import World
    from tests.support.scenario import Scenario

__all__ = ["WireAuditor"]

IDS: Final = Struct("<8xiii")
"""Term offset, session id, and stream id of data; the first is the session id of the others."""
HEARTBEAT: Final = Struct("<ixBxxiiii")
"""Frame length, flags, term offset, session id, stream id and term id."""
HEARTBEAT_LIMIT_NS: Final = 105 * NS_PER_MS
"""A heartbeat comes every 100 ms, or somewhat sooner."""
REPORT_LIMIT_NS: Final = 205 * NS_PER_MS
"""The same of status messages, every 200 ms."""
SOON_NS: Final = 20 * NS_PER_MS
"""Until then all is done that waits for nothing but its turn."""
TURN_NS: Final = 51 * NS_PER_MS
"""A window grows when it was read within 50 ms."""
PATIENCE_NS: Final = 10 * NS_PER_SECOND
"""For so long it does not grow again after a drop."""
RESEND_LIMIT_NS: Final = 10 * NS_PER_MS
RESENDS_MAX: Final = 2
TYPE_SHIFT: Final = 16
SAID: Final = frozenset({Verdict.SENT, Verdict.LOST, Verdict.PARTITIONED, Verdict.QUEUE_FULL})
"""What is lost on the way was said all the same, and is not said twice."""
REPEAT_NS: Final = 12 * NS_PER_MS
"""What is not answered is asked for again after this time, beside the round trip."""
Key = tuple[Any, ...]


def repair_limit_ns(scenario: Scenario) -> int:
    """Return how long it may take until all is there that was sent, by how much is lost.

    So many rounds that one of a milliard fails in all of them, and as many heartbeats before.
    """
    data, control = scenario.conditions
    loss = max(data.loss, control.loss)
    rounds = ceil(-9 / log10(1 - (1 - loss) ** 2)) if loss else 1
    heartbeats = ceil(-9 / log10(loss)) if loss else 1
    round_ns = 2 * (data.delay_ns + control.delay_ns + data.jitter_ns + control.jitter_ns)
    repair_ns = rounds * (round_ns + REPEAT_NS) + 2 * data.reorder_delay_ns
    return repair_ns + heartbeats * HEARTBEAT_LIMIT_NS + 2 * SOON_NS


class Window:
    """The window of one image, as its status messages told of it."""

    def __init__(self) -> None:
        self.length = 0
        self.told: deque[tuple[int, int]] = deque()
        self.dropped_ns = -PATIENCE_NS


class WireAuditor(Auditor):
    """Listens to the drivers of one world, besides watching them.

    Args:
        world: Whose drivers.
        scenario: Says what may be expected of them.
    """

    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world)
        self._scenario = scenario
        features = scenario.features
        self._is_honest = scenario.is_exact and features.isdisjoint({"hostile", "forger"})
        self._is_told_at_once = "send_errors" not in features
        self._is_calm = (
            self._is_honest
            and not scenario.may_fall_silent
            and features.isdisjoint({"collision", "churn"})
        )
        delays = [each.delay_ns for each in scenario.conditions]
        is_steady = features.isdisjoint({"drift", "jump", "pause"})
        self._resend_limit_ns = min(RESEND_LIMIT_NS, sum(delays)) * 9 // 10
        self._is_lossless = (
            self._is_calm
            and all(each.is_lossless for each in scenario.conditions)
            and features.isdisjoint({"bandwidth", "first_frames"})
            and not ("destinations" in features and {"jitter", "delay"} & features)
            # What a slow reader of a group has no room for, it has to ask for later.
            and ("min_flow_control" in features or not {"multicast", "slow_reader"} <= features)
        )
        self._repair_limit_ns = repair_limit_ns(scenario)
        self._sent: WeakKeyDictionary[NetworkPublication, deque[tuple[int, int]]] = (
            WeakKeyDictionary()
        )
        self._is_steady = is_steady
        # A sender remembers a few answers only, and there are many gaps between small datagrams.
        self._answers_once = is_steady and self._is_honest and "small_mtu" not in features
        self._reported: WeakKeyDictionary[PublicationImage, int] = WeakKeyDictionary()
        self._windows: WeakKeyDictionary[PublicationImage, Window] = WeakKeyDictionary()
        self._resent: WeakKeyDictionary[NetworkPublication, dict[int, tuple[int, int]]] = (
            WeakKeyDictionary()
        )
        self._waiting: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()
        self._silence_ns = 0
        self._is_silent = False
        self._heard: dict[Key, int] = {}
        self._has_dropped = False
        self._joined: WeakKeyDictionary[PublicationImage, int] = WeakKeyDictionary()

    # On time.

    def begin_silence(self) -> None:
        """Expect nothing but heartbeats and status messages from now on."""
        self._silence_ns, self._is_silent = self._world.now_ns, True
        self._heard.clear()
        self._check_silence()

    def end_silence(self) -> None:
        """See that no interval was too long to its end, and expect nothing more.

        A stream that was not connected when the silence began was not listened to.
        """
        self._check_silence(frozenset(self._heard))
        self._is_silent = False

    def _check_silence(self, known: frozenset[Key] | None = None) -> None:
        if not self._scenario.features.isdisjoint({"collision", "drift", "jump"}):
            return  # Of two under one session one is not heard; a clock that went back waits.
        for image, publication, receiver, sender in self._connected():
            ids = image.session_id, image.stream_id
            for key, limit_ns in (
                ((*ids, receiver), HEARTBEAT_LIMIT_NS),
                ((*ids, *sender), REPORT_LIMIT_NS),
            ):
                if known is None or key in known:
                    self._on_heard(key, limit_ns)
            if image.rebuild_position != publication.sender_position:
                self._violated(f"image {ids[0]} is not where its publication is", "N10")

    def _on_heard(self, key: Key, limit_ns: int) -> None:
        """Take note that something was heard now; complain if it was silent for too long."""
        now_ns = self._world.now_ns
        silent_ns = now_ns - self._heard.get(key, self._silence_ns)
        self._heard[key] = now_ns
        if silent_ns > limit_ns:
            self._violated(f"{key} was silent for {silent_ns} ns", "N10")

    def _connected(
        self,
    ) -> Iterator[tuple[PublicationImage, NetworkPublication, SocketAddress, tuple[int, str]]]:
        """Return each image that is fed, its publication, where it hears, and where it is heard.

        The latter is the port of its publication, or 0 of a group, and its own address.
        """
        for host in self._world.hosts:
            for driver in host.drivers:
                conductor = conductor_of(driver)
                for image in () if conductor is None else conductor.publication_images:
                    if image.state is not ImageState.ACTIVE or not image.subscribers.has_working:
                        continue
                    (connection,) = image.connections
                    destination: Any = connection.destination
                    source, address = connection.source, host.machine.addresses[0]
                    heard_at = 0 if destination.is_multicast else source[1], address
                    for publication in self._publications_at(source[0]):
                        ids = publication.session_id, publication.stream_id
                        if (
                            ids == (image.session_id, image.stream_id)
                            and publication.state is PublicationState.ACTIVE
                            and publication.is_connected
                        ):
                            yield image, publication, destination.bound_address, heard_at

    # What waits.

    def _audit_publication(self, publication: NetworkPublication) -> None:
        super()._audit_publication(publication)
        if not self._is_calm or publication.state is not PublicationState.ACTIVE:
            return
        log, position = publication.log, publication.sender_position
        words = log.term_words[partition_index(position, bits=log.position_bits)]
        index = (position & (log.term_length - 1)) >> 2
        # Padding before which the last offer was refused waits for a turn of any kind.
        is_data = words[index] > 0 and words[index + 1] >> TYPE_SHIFT == FrameType.DATA
        may_send = is_data and publication.sender_limit - position >= log.mtu_length
        self._audit_waiting(publication, position, "may be sent", is_waiting=may_send)
        sent, now_ns = self._sent.setdefault(publication, deque([(0, 0)])), self._world.now_ns
        if now_ns - sent[-1][0] >= SOON_NS:
            sent.append((now_ns, position))
        while len(sent) > 1 and now_ns - sent[1][0] >= self._repair_limit_ns:
            sent.popleft()

    def _audit_image(self, image: PublicationImage) -> None:
        super()._audit_image(image)
        if not self._is_calm or image.state is not ImageState.ACTIVE:
            return
        log, position = image.log, image.rebuild_position
        self._joined.setdefault(image, position)
        words = log.term_words[partition_index(position, bits=log.position_bits)]
        is_there = words[(position & (log.term_length - 1)) >> 2] > 0
        is_whole = is_there and position < image.hwm_position and image.subscribers.has_working
        self._audit_waiting(image, position, "has arrived", is_waiting=is_whole)
        if not (image.subscribers.has_working and self._scenario.readers[0].is_reliable):
            return
        for connection in image.connections:
            for publication in self._publications_at(connection.source[0]):
                is_its = publication.session_id == image.session_id
                # In a group whoever asks waits for a while, and for one gap after the other.
                is_its = is_its and not publication.params.has_group_semantics
                sent = self._sent.get(publication) if is_its else None
                if sent and self._world.now_ns - sent[0][0] >= self._repair_limit_ns:
                    before_ns, was_sent = sent[0]
                    if was_sent > position:
                        self._violated(
                            f"{was_sent} of {image.session_id} was sent before {before_ns} ns, and "
                            f"{position} is not there",
                            "N10",
                        )

    def _audit_waiting(self, stream: Any, position: int, what: str, *, is_waiting: bool) -> None:
        """Complain of what waits at one position for too long."""
        now_ns = self._world.now_ns
        since = self._waiting.get(stream)
        if not is_waiting:
            self._waiting.pop(stream, None)
        elif since is None or since[0] != position:
            self._waiting[stream] = position, now_ns
        elif now_ns - since[1] > SOON_NS:
            name = f"stream {stream.stream_id}, session {stream.session_id}"
            self._violated(f"what {what} at {position} of {name} waits since {since[1]} ns", "N10")

    # What is said.

    def _on_event(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        super()._on_event(now_ns, verdict, source, destination, datagram)
        kind = frame_type(datagram)
        if verdict is Verdict.DELIVERED:
            if self._is_silent:
                self._on_delivered(kind, source, destination, datagram)
        elif verdict is Verdict.BUFFER_FULL:
            self._on_dropped(destination)
        elif verdict not in SAID or not self._is_honest:
            return
        elif kind == FrameType.SM:
            self._audit_report(source[0], StatusMessage.decode(datagram))
        elif kind == FrameType.NAK:
            self._audit_nak(source[0], Nak.decode(datagram))
        elif kind == FrameType.DATA and len(datagram) == DATA_HEADER_LENGTH:
            self._audit_heartbeat(source[0], datagram)

    def _on_delivered(
        self, kind: int, source: SocketAddress, destination: SocketAddress, datagram: bytes
    ) -> None:
        if kind == FrameType.DATA:
            _, session_id, stream_id = IDS.unpack_from(datagram)
            if (key := (session_id, stream_id, destination)) in self._heard:
                self._on_heard(key, HEARTBEAT_LIMIT_NS)
        elif kind == FrameType.SM:
            session_id, stream_id, _ = IDS.unpack_from(datagram)
            for port in destination[1], 0:
                if (told := (session_id, stream_id, port, source[0])) in self._heard:
                    self._on_heard(told, REPORT_LIMIT_NS)

    def _audit_heartbeat(self, address: str, datagram: bytes) -> None:
        length, flags, offset, session_id, stream_id, term_id = HEARTBEAT.unpack_from(datagram)
        if length or not self._is_told_at_once:
            return
        for publication in self._publications_at(address):
            if (publication.session_id, publication.stream_id) != (session_id, stream_id):
                continue
            log = publication.log
            told = compute_position(
                term_id, offset, initial_term_id=log.initial_term_id, bits=log.position_bits
            )
            is_ended = bool(flags & DataFlags.END_OF_STREAM)
            told_truth = publication.sender_position, publication.is_end_of_stream
            if (told, is_ended) != told_truth:
                self._violated(
                    f"a heartbeat of {session_id} says {told}, {is_ended}, not {told_truth}", "N9"
                )

    def _audit_frame(self, publication: NetworkPublication, position: int) -> None:
        if (
            position >= publication.sender_position
            or not self._answers_once
            or publication.params.has_group_semantics
        ):
            return
        now_ns, resent = self._world.now_ns, self._resent.setdefault(publication, {})
        since_ns, count = resent.get(position, (now_ns, 0))
        if now_ns - since_ns >= self._resend_limit_ns:
            since_ns, count = now_ns, 0
        resent[position] = since_ns, count + 1
        # Twice is no fault: what is asked for first and what then may overlap.
        if count >= RESENDS_MAX:
            session_id = publication.session_id
            self._violated(f"{session_id} resent {position} again and again", "N9")

    def _audit_nak(self, address: str, nak: Nak) -> None:
        for image in self._images_at(address, nak.session_id, nak.stream_id):
            log = image.log
            start = compute_position(
                nak.term_id,
                nak.term_offset,
                initial_term_id=log.initial_term_id,
                bits=log.position_bits,
            )
            # Who is one of several may join behind what the others were sent.
            is_in_it = start > self._joined.get(image, start) + log.term_length // 4
            if self._is_lossless and not self._has_dropped and is_in_it:
                self._violated(f"a NAK of {nak.session_id}, though nothing was lost", "N9")
            if start <= image.rebuild_position:
                continue  # Where a gap stays, what lies around it is in doubt, and asked for, too.
            words = log.term_words[partition_index(start, bits=log.position_bits)]
            end = nak.term_offset + nak.length
            is_missing = start + nak.length <= image.hwm_position and not any(
                words[each >> 2] for each in range(nak.term_offset, end, DATA_HEADER_LENGTH)
            )
            if not is_missing and image.state is ImageState.ACTIVE:
                self._violated(f"a NAK of {nak.session_id} from {start}, {nak.length} bytes", "N9")

    def _audit_report(self, address: str, sm: StatusMessage) -> None:
        if sm.is_setup_elicit or not self._is_told_at_once:
            return
        for image in self._images_at(address, sm.session_id, sm.stream_id):
            consumed = image.subscribers.consumed()
            if image.state is not ImageState.ACTIVE or not consumed:
                continue
            log, window = image.log, sm.receiver_window
            told = compute_position(
                sm.consumption_term_id,
                sm.consumption_term_offset,
                initial_term_id=log.initial_term_id,
                bits=log.position_bits,
            )
            before = self._reported.get(image, told)
            self._reported[image] = told
            least = min(consumed) - min(window // 4, max(0, window - log.mtu_length))
            if not (max(before, least) <= told <= min(consumed) and window <= log.term_length // 2):
                self._violated(
                    f"a status message of {sm.session_id} says {told} after {before}, window "
                    f"{window}, and readers have read {min(consumed)}",
                    "N9",
                )
            if "window_auto" in self._scenario.features:
                self._audit_window(image, told, window)

    # Windows that grow.

    def _audit_window(self, image: PublicationImage, told: int, length: int) -> None:
        window = self._windows.setdefault(image, Window())
        now_ns, before = self._world.now_ns, window.length
        history = window.told
        while len(history) > 1 and history[1][0] <= now_ns - TURN_NS:
            history.popleft()
        if before and length > before and self._is_steady:
            is_old = history and history[0][0] <= now_ns - TURN_NS
            if (is_old and told - history[0][1] < before) or length > 2 * before:
                self._violated(f"a window grew from {before} to {length} unread", "N9")
            if now_ns - window.dropped_ns < PATIENCE_NS:
                self._violated(f"a window grew to {length} after {before} was too long", "N9")
        window.length = length
        history.append((now_ns, told))

    def _on_dropped(self, destination: SocketAddress) -> None:
        self._has_dropped = True
        for image, window in self._windows.items():
            (connection,) = image.connections
            local: Any = connection.destination
            if local.bound_address == destination:
                window.dropped_ns = self._world.now_ns

    def _images_at(
        self, address: str, session_id: int, stream_id: int
    ) -> Iterator[PublicationImage]:
        for host in self._world.hosts:
            if address not in host.machine.addresses:
                continue
            for driver in host.drivers:
                conductor = conductor_of(driver)
                for image in () if conductor is None else conductor.publication_images:
                    if (image.session_id, image.stream_id) == (session_id, stream_id):
                        yield image
