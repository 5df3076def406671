"""Bugs to be planted in the fast ways: of batches, lanes, windows, gathered frames, and repair."""

from __future__ import annotations

from typing import Final

from aeron_async.client import arrow, batch_offer
from aeron_async.client.batch_offer import BatchOffer
from aeron_async.client.batches import Batches
from aeron_async.client.image import Image, MessageBatch
from aeron_async.client.subscription import Subscription
from aeron_async.driver import sender
from aeron_async.driver.core.congestion_control.auto_window import AutoWindowCongestionControl
from aeron_async.driver.core.data_sender import StreamSender
from aeron_async.driver.core.destination_tracker import DestinationTracker
from aeron_async.driver.core.loss_detector import LookaheadLossDetector
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.outbox import HeartbeatBatch, ReportBatch
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.retransmit_handler import RetransmitHandler
from aeron_async.driver.core.round_trip import RoundTrip
from aeron_async.driver.core.status_message_sender import StatusMessageSender
from aeron_async.driver.media.transport import BoundedTransport
from aeron_async.logbuffer.late_frames import LateFrames
from tests.sim.mutants import BY_PLAIN_LANES, Mutant, lanes

__all__ = ["FAST_MUTANTS"]

BATCHES: Final = (
    Mutant(
        "a list counts a message before it is appended",
        BatchOffer,
        "_offer_list",
        (
            (
                "data = messages[self.accepted]\n",
                "data = messages[self.accepted]\n            self.accepted += 1\n",
            ),
            ("count, position = 1, await", "count, position = 0, await"),
        ),
        features=frozenset({"lists", "exclusive", "cancellation"}),
    ),
    Mutant(
        "a column begins where its buffers do",
        arrow,
        "pieces_of",
        (("chunk.offset, chunk.offset + len(chunk) + 1", "0, len(chunk) + 1"),),
        (batch_offer,),
        features=frozenset({"lists", "exclusive", "columns"}),
    ),
    Mutant(
        "a column goes on at the message that it has appended",
        BatchOffer,
        "_offer_column",
        (("first += done\n", "first += done - (done > 1)\n"),),
        features=frozenset({"lists", "exclusive", "columns"}),
    ),
    Mutant(
        "a batch is taken when it is handed out",
        Batches,
        "__anext__",
        (
            (
                "    return lent\n",
                "    lent.image._take(lent._end_position)\n    return lent\n",
            ),
        ),
        features=frozenset({"turns"}),
    ),
    Mutant(
        "a batch that is put back is not read again",
        MessageBatch,
        "_put_back",
        (("self.image._rewind(self._count)", "pass"),),
        features=frozenset({"turns"}),
    ),
    Mutant(
        "a batch that has grown is taken as far as it was before",
        MessageBatch,
        "_extend",
        (("    self._end_position = self.image._read_position\n", ""),),
        features=frozenset({"turns"}),
    ),
    Mutant(
        "views lie in the term behind the batch",
        Image,
        "_term_at",
        (("(position - 1)", "position"),),
        features=frozenset({"turns"}),
    ),
    Mutant(
        "a batch waits for more until it is full",
        Batches,
        "_linger",
        (("asyncio.timeout(self._linger_ns / NS_PER_SECOND)", "asyncio.timeout(None)"),),
        features=frozenset({"turns"}),
    ),
    Mutant(
        "a message is forgotten whose beginning was taken when its batch is put back",
        Image,
        "_rewind",
        (("begun.position > self._position", "False"),),
        features=frozenset({"turns", "large_messages"}),
    ),
)
LANES: Final = (
    Mutant(
        "a lane takes what comes from anywhere",
        lanes.ReceiveLane,
        "take",
        (
            (
                "image.connections.find(destination, source, now_ns)",
                "next(iter(image.connections), None)",
            ),
        ),
        plain=BY_PLAIN_LANES,
        features=frozenset({"collision"}),
    ),
    Mutant(
        "an offer that is sent at once passes the limit",
        StreamSender,
        "send_data_fast",
        (("window <= log.mtu_length", "window <= 0"),),
    ),
    Mutant(
        "an offer that is sent at once leaves behind what follows it",
        StreamSender,
        "send_data_fast",
        (("return end <= self._mask and words[end >> 2] == 0", "return True"),),
        plain=((sender, "SendLane", None),),
        is_calm=True,
    ),
    Mutant(
        "a reader waits without a look at what is there",
        Subscription,
        "_begin_wait",
        (("self._turn[0]._read(MESSAGES_PER_BATCH) or NOTHING", "NOTHING"),),
    ),
    Mutant(
        "a lane calls no handler that it has said it would call",
        lanes.ReceiveLane,
        "deliver",
        (("client.deliver()", "pass"),),
        plain=BY_PLAIN_LANES,
        features=frozenset({"handlers"}),
    ),
    Mutant(
        "a new handler is not given what is there",
        Subscription,
        "on_message",
        (("        self._delivery.wake()\n", ""),),
        features=frozenset({"handlers", "slow_reader"}),
    ),
)
WINDOWS: Final = (
    Mutant(
        "a window grows however slowly it is read",
        AutoWindowCongestionControl,
        "on_track_rebuild",
        (("now_ns > self._turn_ns + TURN_NS", "False"),),
        features=frozenset({"several_terms", "window_auto"}),
        is_calm=True,
    ),
    Mutant(
        "a window grows by more than a window",
        AutoWindowCongestionControl,
        "_grow",
        (("min(2 * self._window_length, self._ceiling)", "self._ceiling"),),
        features=frozenset({"several_terms", "window_auto"}),
        is_calm=True,
    ),
)
GATHERED: Final = (
    Mutant(
        "a batch of heartbeats leaves its last one out",
        HeartbeatBatch,
        "send",
        (
            ('array("i", (length,', 'array("i", (length - DATA_HEADER_LENGTH,'),
            ("memoryview(frames), segments", "memoryview(frames)[:-DATA_HEADER_LENGTH], segments"),
        ),
    ),
    Mutant(
        "all heartbeats leave for the peer of the first",
        HeartbeatBatch,
        "add",
        (("self._frames.get(outbox)", "next(iter(self._frames.values()), None)"),),
    ),
    Mutant(
        "a heartbeat says where the stream was",
        StreamSender,
        "send_heartbeat",
        (("said = (self.position, flags)", "said = (0, flags)"),),
    ),
    Mutant(
        "a heartbeat does not say that the stream has ended",
        StreamSender,
        "send_heartbeat",
        (("said = (self.position, flags)", "said = (self.position, 0)"),),
    ),
    Mutant(
        "a heartbeat waits for a poll",
        NetworkPublication,
        "heartbeat_fast",
        (("return min(sender.heartbeat_deadline_ns, until_ns)", "return until_ns"),),
    ),
    Mutant(
        "a status message says what was said before",
        StatusMessageSender,
        "schedule",
        (("        self._same_again = None\n", ""),),
    ),
    Mutant(
        "a status message comes every other time",
        StatusMessageSender,
        "report",
        (("return self._deadline_ns", "return self._deadline_ns + self._timeout_ns"),),
    ),
    Mutant(
        "all status messages leave for the source of the first",
        ReportBatch,
        "add",
        (("self._frames.get(key)", "next(iter(self._frames.values()), None)"),),
    ),
    Mutant(
        "a heartbeat that says nothing new is no sign of life",
        PublicationImage,
        "on_heartbeat_fast",
        (
            (
                "connection.last_activity_ns = self.last_packet_ns = self.idle_ns = now_ns",
                "self.idle_ns = now_ns",
            ),
        ),
        features=frozenset({"silence"}),
    ),
    Mutant(
        "what was placed behind a gap is shown with what is before it",
        PublicationImage,
        "insert_packets_fast",
        (
            (
                "if position in (self._whole_position, self.rebuild_position):",
                "if placed:",
            ),
        ),
    ),
    Mutant(
        "an idle image does not look at what was read",
        PublicationImage,
        "_note_consumed",
        (
            (
                "position == self._feedback.next_sm_position and self._report_until_ns",
                "self._report_until_ns",
            ),
        ),
    ),
)
REPAIR: Final = (
    Mutant(
        "runs that lie apart are laid into the next term",
        LateFrames,
        "place_apart",
        (("partition_index(base, bits", "partition_index(base + log.term_length, bits"),),
        features=frozenset({"loss"}),
    ),
    Mutant(
        "a gap behind the first is asked for with what lies behind it",
        LookaheadLossDetector,
        "_scan",
        (("append((offset, gap_length))", "append((offset, gap_length + 32))"),),
        features=frozenset({"loss"}),
    ),
    Mutant(
        "a gap behind the first is asked for again though it was filled",
        LookaheadLossDetector,
        "_repeat",
        (
            (
                "if hole != offset or not length or words[offset >> 2]:",
                "length = gap.end - start\n        if False:",
            ),
        ),
        features=frozenset({"loss"}),
    ),
    Mutant(
        "a sender answers again what it has just answered",
        RetransmitHandler,
        "_is_being_answered",
        (("action.is_delayed or now_ns < action.expiry_ns", "action.is_delayed"),),
        features=frozenset({"loss"}),
    ),
    Mutant(
        "a sender waits a second until it answers again",
        RoundTrip,
        "linger_ns",
        (("min(limit_ns, overdue_ns) if overdue_ns else limit_ns", "LONGEST_ANSWER_NS"),),
        features=frozenset({"loss"}),
        is_calm=True,
    ),
)
DESTINATIONS: Final = (
    Mutant(
        "the last of several destinations is left out",
        DestinationTracker,
        "addresses",
        (("[index : index + count]", "[index : max(index + 1, index + count - 1)]"),),
        features=frozenset({"destinations"}),
    ),
    Mutant(
        "one of several destinations gets the first slice alone",
        BoundedTransport,
        "_send_to_many_from",
        (
            (
                "self._send_slice(part, segment_length, addresses, ())",
                "self._send_slice(part, segment_length, addresses[: 1 if start else None], ())",
            ),
        ),
        features=frozenset({"destinations"}),
        is_calm=True,
    ),
)
FAST_MUTANTS: Final = (*BATCHES, *LANES, *WINDOWS, *GATHERED, *REPAIR, *DESTINATIONS)
