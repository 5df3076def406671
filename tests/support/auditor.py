"""What is looked at while a world runs: positions, limits, and all that its drivers send.

Invariant N7: the sender position stays within the sender limit, offers within the publisher limit,
an image within half a term of its last status message; no datagram is longer than the MTU; readers
are never beyond what was written, and on IPC never lapped; positions never go back.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from aeron_async.errors import ClosedError
from aeron_async.logbuffer.position import compute_position, framed_length, max_message_length
from aeron_async.protocol.datagram import frame_type
from aeron_async.protocol.header import DATA_HEADER_LENGTH, FrameType, align_frame
from aeron_async.testing.recorder import ViolationError
from aeron_async.testing.trace import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.driver.conductor import Conductor
    from aeron_async.driver.core.ipc_publication import IpcPublication
    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.testing.world import World

__all__ = ["Auditor", "conductor_of", "data_frames"]

SESSION_ID: Final = Struct("<i")
DATA_FRAME: Final = Struct("<i2xHi8xi")
EVENTS_BETWEEN_FULL_AUDITS: Final = 8
"""Of delivered datagrams; a full audit costs as much as a few of them."""


class Auditor:
    """Watches the drivers of one world.

    Args:
        world: Whose drivers.

    Attributes:
        violations: The first that were found; nothing is raised amid a driver's work.
    """

    def __init__(self, world: World) -> None:
        self.violations: list[ViolationError] = []
        self.audit_count = 0
        self._world = world
        self._before: WeakKeyDictionary[Any, tuple[int, ...]] = WeakKeyDictionary()
        self._told: WeakKeyDictionary[PublicationImage, int] = WeakKeyDictionary()
        self._until_full = EVENTS_BETWEEN_FULL_AUDITS
        world.network.trace.watch(self._on_event)

    def audit(self) -> None:
        """Look at every stream of every driver now."""
        self.audit_count += 1
        for host in self._world.hosts:
            for driver in host.drivers:
                conductor = conductor_of(driver)
                if conductor is None:
                    continue
                for publication in conductor.network_publications:
                    self._audit_publication(publication)
                for ipc_publication in conductor.ipc_publications:
                    self._audit_ipc_publication(ipc_publication)
                for image in conductor.publication_images:
                    self._audit_image(image)

    def _on_event(
        self,
        now_ns: int,
        verdict: Verdict,
        source: SocketAddress,
        destination: SocketAddress,
        datagram: bytes,
    ) -> None:
        del now_ns, destination
        if verdict is Verdict.DELIVERED:
            self._until_full -= 1
            if not self._until_full:
                self._until_full = EVENTS_BETWEEN_FULL_AUDITS
                self.audit()
        elif verdict is Verdict.SENT and frame_type(datagram) in {FrameType.DATA, FrameType.PAD}:
            self._audit_datagram(source[0], datagram)

    def _audit_datagram(self, source: str, datagram: bytes) -> None:
        """See that a datagram of data is no longer than the MTU, and within the sender limit."""
        (session_id,) = SESSION_ID.unpack_from(datagram, 12)
        for publication in self._publications_at(source):
            if publication.session_id != session_id:
                continue
            log = publication.log
            if len(datagram) > log.mtu_length:
                self._violated(f"datagram of {len(datagram)} bytes, mtu {log.mtu_length}")
            for kind, term_id, start, end in data_frames(datagram):
                position = compute_position(
                    term_id, start, initial_term_id=log.initial_term_id, bits=log.position_bits
                )
                self._audit_frame(publication, position)
                # Padding may pass the limit: only its header travels. A group that shrinks may take
                # the limit back, and what was sent before is still sent again.
                limit = max(publication.sender_limit, publication.sender_position)
                if kind == FrameType.DATA and position + end - start > limit:
                    self._violated(
                        f"publication {session_id} sent up to {position + end - start}, "
                        f"and its limit is {limit}"
                    )

    def _audit_frame(self, publication: NetworkPublication, position: int) -> None:
        """Take note of a frame that is sent, or sent again."""

    def _publications_at(self, address: str) -> Iterator[NetworkPublication]:
        for host in self._world.hosts:
            if address not in host.machine.addresses:
                continue
            for driver in host.drivers:
                conductor = conductor_of(driver)
                if conductor is not None:
                    yield from conductor.network_publications

    def _audit_publication(self, publication: NetworkPublication) -> None:
        log = publication.log
        sent = publication.sender_position
        name = f"publication {publication.session_id} of stream {publication.stream_id}"
        produced = publication.producer_position
        # The publisher limit may be pulled back, but was never further ahead of the sender.
        if produced > sent + log.term_length // 2 + longest_message(log):
            self._violated(f"{name}: producer position {produced}, sender position {sent}")
        if sent > produced:
            self._violated(f"{name}: sender position {sent} beyond the producer's {produced}")
        self._audit_readers(publication, name)
        self._audit_growth(publication, name, (sent, produced))

    def _audit_ipc_publication(self, publication: IpcPublication) -> None:
        log = publication.log
        name = f"IPC publication {publication.session_id} of stream {publication.stream_id}"
        produced, furthest = publication.producer_position, publication.consumer_position
        # Nobody comes after the slowest: where readers are, the limit follows them.
        slowest = min([furthest, *publication.subscribers.consumed()])
        if produced > slowest + log.term_length // 2 + longest_message(log):
            self._violated(f"{name}: producer position {produced}, slowest reader {slowest}")
        self._audit_readers(publication, name)
        self._audit_growth(publication, name, (furthest, produced))

    def _audit_readers(self, publication: SubscribablePublication, name: str) -> None:
        consumed, produced = publication.subscribers.consumed(), publication.producer_position
        if max(consumed, default=0) > produced:
            self._violated(f"{name}: subscriber position {max(consumed)} beyond {produced}")

    def _audit_image(self, image: PublicationImage) -> None:
        name = f"image {image.session_id} of stream {image.stream_id}"
        rebuilt, highest = image.rebuild_position, image.hwm_position
        consumed = image.subscribers.consumed()
        if not consumed:
            return
        # Status messages carry what was consumed at some time, so never more than this.
        told = self._told[image] = max(self._told.get(image, 0), min(consumed))
        if highest > told + image.log.term_length // 2:
            self._violated(f"{name}: hwm {highest} is half a term beyond {told}")
        if rebuilt > highest:
            self._violated(f"{name}: rebuild position {rebuilt} beyond hwm {highest}")
        if max(consumed) > rebuilt:
            self._violated(f"{name}: subscriber position {max(consumed)} beyond {rebuilt}")
        self._audit_growth(image, name, (rebuilt, highest))

    def _audit_growth(self, stream: Any, name: str, positions: tuple[int, ...]) -> None:
        before = self._before.get(stream, positions)
        self._before[stream] = positions
        if any(new < old for new, old in zip(positions, before, strict=True)):
            self._violated(f"{name}: positions went back from {before} to {positions}")

    def _violated(self, what: str, name: str = "N7") -> None:
        if len(self.violations) < 4:
            self.violations.append(ViolationError(f"{name}: {what}, at {self._world.now_ns} ns"))


def longest_message(log: LogBuffers) -> int:
    """Return by how much one offer may run over the publisher limit, in bytes."""
    return framed_length(
        max_message_length(log.term_length),
        max_payload_length=log.mtu_length - DATA_HEADER_LENGTH,
    )


def data_frames(datagram: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Return type, term id, and where it begins and ends in its term, of each frame."""
    offset = 0
    while offset + DATA_HEADER_LENGTH <= len(datagram):
        frame_length, kind, term_offset, term_id = DATA_FRAME.unpack_from(datagram, offset)
        if frame_length <= 0:
            return
        aligned_length = align_frame(frame_length)
        yield kind, term_id, term_offset, term_offset + aligned_length
        offset += aligned_length


def conductor_of(driver: Any) -> Conductor | None:
    try:
        conductor: Conductor = driver.conductor
    except ClosedError:
        return None
    return conductor
