"""The auditor, on made-up drivers: each bound is broken once, and found broken."""

from __future__ import annotations

from struct import Struct
from types import SimpleNamespace
from typing import Any

import pytest

from aeron_async.errors import ClosedError
from aeron_async.protocol.header import FrameType
from aeron_async.testing.trace import Trace, Verdict
from tests.support.auditor import Auditor, data_frames

TERM_LENGTH = 64 * 1024
HEADER = Struct("<iBBHiiiiq")
PEERS = ("10.0.0.1", 1), ("10.0.0.2", 2)


class Stream:
    """A publication or an image as the auditor sees it."""

    def __init__(self, **positions: Any) -> None:
        self.session_id = 7
        self.stream_id = 1
        self.log = SimpleNamespace(
            term_length=TERM_LENGTH, mtu_length=1408, initial_term_id=5, position_bits=16
        )
        self.sender_position = self.producer_position = 0
        self.sender_limit = 32_768
        self.rebuild_position = self.hwm_position = self.consumer_position = 0
        self.consumed: list[int] = [0]
        self.set(**positions)

    def set(self, **positions: Any) -> None:
        for name, value in positions.items():
            assert hasattr(self, name)
            setattr(self, name, value)

    @property
    def subscribers(self) -> Any:
        return SimpleNamespace(consumed=lambda: list(self.consumed))


class ClosedDriver:
    @property
    def conductor(self) -> Any:
        message = "the driver is closed"
        raise ClosedError(message)


class MadeUp:
    """A world with one driver, and another that is closed."""

    def __init__(
        self,
        publications: tuple[Stream, ...] = (),
        images: tuple[Stream, ...] = (),
        ipc: tuple[Stream, ...] = (),
    ) -> None:
        conductor = SimpleNamespace(
            network_publications=publications, publication_images=images, ipc_publications=ipc
        )
        drivers = [SimpleNamespace(conductor=conductor), ClosedDriver()]
        machine = SimpleNamespace(addresses=(PEERS[0][0],))
        self.trace = Trace()
        self.auditor = Auditor(
            SimpleNamespace(
                hosts=[SimpleNamespace(drivers=drivers, machine=machine)],
                network=SimpleNamespace(trace=self.trace),
                now_ns=99,
            )  # type: ignore[arg-type]  # what the auditor looks at
        )

    def violations(self) -> list[str]:
        self.auditor.audit()
        return [str(each) for each in self.auditor.violations]

    def send(self, datagram: bytes, verdict: Verdict = Verdict.SENT) -> list[str]:
        self.trace.note(0, verdict, *PEERS, datagram)
        return [str(each) for each in self.auditor.violations]


def frame(
    length: int,
    *,
    offset: int = 0,
    term_id: int = 5,
    kind: int = FrameType.DATA,
    session_id: int = 7,
) -> bytes:
    header = HEADER.pack(length, 0, 0xC0, kind, offset, session_id, 1, term_id, 0)
    return header + bytes((length + 31) // 32 * 32 - 32 if kind == FrameType.DATA else 0)


def test_streams_within_their_bounds_are_well() -> None:
    publication = Stream(sender_position=1_000, producer_position=30_000)
    image = Stream(rebuild_position=900, hwm_position=1_000, consumed=[800, 900])
    made_up = MadeUp((publication,), (image, Stream(consumed=[])))
    assert made_up.violations() == []
    publication.set(sender_position=2_000, producer_position=32_000)
    image.set(rebuild_position=1_800, hwm_position=2_000)
    assert made_up.violations() == []
    assert made_up.auditor.audit_count == 2


@pytest.mark.parametrize(
    ("positions", "complaint"),
    [
        ({"producer_position": 100_000}, "producer position 100000, sender position 0"),
        ({"sender_position": 64}, "sender position 64 beyond the producer's 0"),
    ],
)
def test_n7_a_publication_beyond_its_bounds_is_found(
    positions: dict[str, int], complaint: str
) -> None:
    (violation,) = MadeUp((Stream(**positions),)).violations()
    assert violation == f"N7: publication 7 of stream 1: {complaint}, at 99 ns"


@pytest.mark.parametrize(
    ("positions", "complaint"),
    [
        ({"producer_position": 100_000}, "producer position 100000, slowest reader 0"),
        ({"consumed": [64]}, "subscriber position 64 beyond 0"),
    ],
)
def test_n7_an_ipc_publication_beyond_its_bounds_is_found(
    positions: dict[str, Any], complaint: str
) -> None:
    (violation,) = MadeUp(ipc=(Stream(**positions),)).violations()
    assert violation == f"N7: IPC publication 7 of stream 1: {complaint}, at 99 ns"


def test_n7_a_spy_beyond_what_was_published_is_found() -> None:
    (violation,) = MadeUp((Stream(consumed=[32]),)).violations()
    assert "subscriber position 32 beyond 0" in violation


@pytest.mark.parametrize(
    ("positions", "complaint"),
    [
        ({"hwm_position": 32_800}, "hwm 32800 is half a term beyond 0"),
        ({"rebuild_position": 64}, "rebuild position 64 beyond hwm 0"),
        ({"consumed": [0, 64]}, "subscriber position 64 beyond 0"),
    ],
)
def test_n7_an_image_beyond_its_bounds_is_found(positions: dict[str, Any], complaint: str) -> None:
    (violation,) = MadeUp(images=(Stream(**positions),)).violations()
    assert violation == f"N7: image 7 of stream 1: {complaint}, at 99 ns"


def test_n7_positions_that_go_back_are_found() -> None:
    publication = Stream(sender_position=64, producer_position=128)
    image = Stream(rebuild_position=64, hwm_position=128)
    made_up = MadeUp((publication,), (image,))
    assert made_up.violations() == []
    publication.set(producer_position=64)
    image.set(rebuild_position=32)
    assert [each.partition(", at")[0] for each in made_up.violations()] == [
        "N7: publication 7 of stream 1: positions went back from (64, 128) to (64, 64)",
        "N7: image 7 of stream 1: positions went back from (64, 128) to (32, 128)",
    ]


def test_what_was_told_counts_though_the_slowest_reader_has_gone_back() -> None:
    image = Stream(hwm_position=40_000, rebuild_position=40_000, consumed=[10_000])
    made_up = MadeUp(images=(image,))
    image.set(consumed=[0])
    assert len(made_up.violations()) == 1
    image = Stream(hwm_position=40_000, rebuild_position=40_000, consumed=[10_000])
    made_up = MadeUp(images=(image,))
    assert made_up.violations() == []
    image.set(consumed=[0])
    assert made_up.violations() == []


def test_n7_a_datagram_longer_than_the_mtu_is_found() -> None:
    made_up = MadeUp((Stream(),))
    assert made_up.send(frame(1408)) == []
    assert made_up.send(frame(1440)) == ["N7: datagram of 1440 bytes, mtu 1408, at 99 ns"]


def test_n7_data_beyond_the_sender_limit_is_found() -> None:
    made_up = MadeUp((Stream(sender_limit=1_024),))
    assert made_up.send(frame(512, offset=512)) == []
    assert made_up.send(frame(64) + frame(512, offset=544)) == [
        "N7: publication 7 sent up to 1056, and its limit is 1024, at 99 ns"
    ]


def test_data_of_a_later_term_lies_further_on() -> None:
    made_up = MadeUp((Stream(sender_limit=TERM_LENGTH + 64),))
    assert made_up.send(frame(64, term_id=6)) == []
    assert len(made_up.send(frame(64, term_id=6, offset=32))) == 1


def test_padding_and_strangers_and_what_was_lost_are_left_alone() -> None:
    made_up = MadeUp((Stream(sender_limit=32),))
    assert made_up.send(frame(4096, kind=FrameType.PAD)) == []
    assert made_up.send(frame(4096, session_id=8)) == []
    assert made_up.send(frame(4096), Verdict.LOST) == []
    assert made_up.send(frame(40, kind=FrameType.SETUP)) == []


def test_every_eighth_delivery_is_audited() -> None:
    made_up = MadeUp((Stream(sender_position=64),))
    for _ in range(7):
        assert made_up.send(b"x", Verdict.DELIVERED) == []
    assert len(made_up.send(b"x", Verdict.DELIVERED)) == 1
    assert made_up.auditor.audit_count == 1


def test_the_first_few_violations_are_enough() -> None:
    made_up = MadeUp((Stream(sender_position=64),))
    for _ in range(10):
        made_up.auditor.audit()
    assert len(made_up.violations()) == 4


def test_frames_are_walked_up_to_the_first_that_is_none() -> None:
    two = frame(33) + frame(64, offset=64)
    assert [each[2:] for each in data_frames(two)] == [(0, 64), (64, 128)]
    assert len(list(data_frames(two + bytes(64)))) == 2
    assert len(list(data_frames(two + b"short"))) == 2
