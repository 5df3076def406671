"""The publication under a conversation with the sending end: how it is made, and what must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.control_packet_dispatcher import ControlPacketDispatcher
from aeron_async.driver.core.flow_control import unicast_flow_control
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.stream_counters import PublicationCounters
from aeron_async.logbuffer.appender import ExclusiveAppender, SharedAppender
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.position import term_id_at
from aeron_async.logbuffer.rebuilder import is_hole
from aeron_async.protocol.data import DATA_HEADER
from aeron_async.protocol.header import FrameType
from tests.driver.fakes import (
    HALF_TERM,
    MS,
    SECOND,
    Counts,
    NoReaders,
    make_params,
    position_of,
    send_each,
)
from tests.fuzz.wire import Watch, Wire
from tests.logbuffer.logs import INITIAL_TERM_ID, SESSION_ID, STREAM_ID, TERM_LENGTH, make_log

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.logbuffer.placing import SegmentTable
    from aeron_async.protocol.error import ErrorFrame
    from aeron_async.protocol.header import Buffer

SLOT_LIMIT: Final = 16
TERM_MASK: Final = TERM_LENGTH - 1
BITS: Final = TERM_LENGTH.bit_length() - 1
CHANNEL: Final = "aeron:udp?endpoint=localhost:40123"
ORDER: Final = list(PublicationState)
FIRST_TERM_IDS: Final = (INITIAL_TERM_ID, 0, -1, 2**31 - 1, -(2**31), 2**31 - 2)
BURST_LENGTH: Final = 128 * 1024
BASE_LENGTH: Final = 1024 * 1024
"""What the context grants each second is a window or some datagrams, and less than this."""
SHARE_PERCENT: Final = 50
CONTEXTS: Final = tuple(
    DriverContext(
        retransmit_unicast_delay_ns=delay_ns,
        max_retransmit_burst_length=BURST_LENGTH,
        max_retransmit_percent=SHARE_PERCENT,
        max_lingering_ranges=SLOT_LIMIT,
    )
    for delay_ns in (0, MS)
)
TYPES: Final = (LogType.CONCURRENT_PUBLICATION, LogType.EXCLUSIVE_PUBLICATION)
APPENDERS: Final = (SharedAppender, ExclusiveAppender)
COUNTS: Final = Counts()
WATCH: Final = Watch(COUNTS)


class SendingEnd:
    """A publication and its endpoint, on a wire that keeps nothing.

    Attributes:
        resent_length: Bytes of the datagrams that were sent again.
        starts: Where the frames begin that have been sent, in bytes.
    """

    def __init__(self, choice: int) -> None:
        WATCH.begin_again()
        context = CONTEXTS[choice & 1]
        is_group, is_exclusive = bool(choice & 2), bool(choice & 4)
        self.log = make_log(
            log_type=TYPES[is_exclusive],
            initial_term_id=FIRST_TERM_IDS[(choice >> 3) % len(FIRST_TERM_IDS)],
        )
        self.counters = PublicationCounters.allocate(
            COUNTS.manager,
            registration_id=1,
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            channel=CHANNEL,
            client_id=1,
            is_exclusive=is_exclusive,
        )
        self.publication = NetworkPublication(
            registration_id=1,
            channel=CHANNEL,
            log=self.log,
            params=make_params(
                self.log,
                is_exclusive=is_exclusive,
                is_unicast=not is_group,
                has_group_semantics=is_group,
            ),
            context=context,
            flow_control=unicast_flow_control(context),
            counters=self.counters,
            system_counters=COUNTS.system,
            outbox=self,
            listener=self,
            readers=NoReaders(),
            now_ns=0,
        )
        self.appender = APPENDERS[is_exclusive](self.log)
        self.wire = Wire()
        self.dispatcher = ControlPacketDispatcher(
            COUNTS.system, self.on_activity, self.on_invalid_datagram
        )
        self.dispatcher.add(self.publication)
        self.handler = self.publication._retransmit_handler
        self.first_position = self.fresh_position = self.publication.sender_position
        self.resent_length = 0
        self.starts: set[int] = set()
        self.now_ns = 0
        self.rank = 0

    def on_activity(self, publication: NetworkPublication) -> None:
        assert publication is self.publication

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        assert now_ns == self.now_ns

    def on_publication_error(
        self,
        publication: NetworkPublication,
        error: ErrorFrame,
        source: Address | None,
        destination_id: int | None,
    ) -> None:
        assert publication is self.publication

    def send_batches(self, data: memoryview, segments: SegmentTable) -> int:
        return send_each(self.send, data, segments)

    def send(self, datagram: Buffer) -> bool:
        """Take what leaves, and tell what is sent again from what is sent for the first time."""
        if not self.wire.send(datagram):
            return False
        frame_length, _, _, kind, term_offset, _, _, term_id, _ = DATA_HEADER.unpack_from(datagram)
        if kind > FrameType.DATA or frame_length == 0:
            return True
        position = position_of(term_id, term_offset, self.log)
        if position < self.fresh_position:
            assert position in self.starts, "resent from where no frame begins"
            self.resent_length += len(datagram)
            return True
        self.fresh_position = position + len(datagram)
        offset = 0
        while offset < len(datagram):
            self.starts.add(position + offset)
            offset += DATA_HEADER.unpack_from(datagram, offset)[0] + 31 & -32
        return True

    def term_id(self, position: int) -> int:
        return term_id_at(position, initial_term_id=self.log.initial_term_id, bits=BITS)

    def is_active(self) -> bool:
        return self.publication.state is PublicationState.ACTIVE

    # What must hold.

    def check(self) -> None:
        WATCH.check()
        self.check_budget()
        publication = self.publication
        sender_position = publication.sender_position
        assert sender_position <= publication.producer_position
        assert sender_position <= publication.sender_limit + TERM_LENGTH
        assert self.counters.sender_position.get() == sender_position
        assert self.counters.sender_limit.get() == publication.sender_limit
        rank = ORDER.index(publication.state)
        assert rank >= self.rank
        self.rank = rank
        if self.is_active():
            assert publication.publisher_limit <= sender_position + HALF_TERM
            assert publication.is_connected or publication.publisher_limit <= sender_position

    def check_budget(self) -> None:
        """See that NAKs have not brought more than the time and what was sent allow."""
        sent_length = self.publication.sender_position - self.first_position
        assert self.resent_length <= (
            BURST_LENGTH + BASE_LENGTH * self.now_ns // SECOND + sent_length * SHARE_PERCENT // 100
        )
        assert len(self.handler._actions) <= SLOT_LIMIT

    def check_room(self) -> None:
        """See that whatever may be offered now goes where nothing is left of before."""
        log = self.log
        start = self.publication.producer_position
        end = max(start, self.publication.publisher_limit) + 1_024
        while start < end:
            offset = start & TERM_MASK
            length = min(TERM_LENGTH - offset, end - start)
            assert is_hole(log.term_words[start // TERM_LENGTH % 3], offset, offset + length)
            start += length

    def close(self) -> None:
        self.counters.close()
        self.log.close()
