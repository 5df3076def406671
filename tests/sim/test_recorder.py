"""The checker, on made-up histories: each promise is broken once, and found broken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.testing.recorder import (
    IDENTITY_LENGTH,
    Offered,
    Recorder,
    ViolationError,
    make_payload,
)

if TYPE_CHECKING:
    from aeron_async.testing.recorder import Received

TERM_LENGTH = 64 * 1024
LENGTH = 100
FRAME = 160
"""Of a message of `LENGTH`: 32 bytes of header, and up to the next multiple of 32."""


def publication(position: int = 0, session_id: int = 7) -> Any:
    return SimpleNamespace(
        stream_id=1,
        session_id=session_id,
        term_length=TERM_LENGTH,
        mtu_length=1408,
        position=position,
    )


def image(join_position: int = 0, session_id: int = 7) -> Any:
    return SimpleNamespace(stream_id=1, session_id=session_id, join_position=join_position)


def offer(offered: Offered, *lengths: int) -> list[bytes]:
    """Append messages, and return them."""
    payloads = []
    for length in lengths:
        number, payload = offered.next_message(length)
        aligned = (length + 32 + 31) // 32 * 32
        offered.on_offered(offered.position + aligned, number, length)
        payloads.append(payload)
    return payloads


def history(
    count: int = 5, *, join_position: int = 0, is_reliable: bool = True, is_exact: bool = True
) -> tuple[Offered, Received, list[bytes]]:
    """Return a publication of some messages, an image of it, and the messages."""
    recorder = Recorder(is_exact=is_exact)
    offered = recorder.publishing(publication())
    payloads = offer(offered, *[LENGTH] * count)
    received = recorder.receiving(image(join_position), "bob", is_reliable=is_reliable)
    return offered, received, payloads


def test_an_exact_slice_is_right() -> None:
    recorder = Recorder()
    offered = recorder.publishing(publication())
    payloads = offer(offered, 0, 8, 100, 1376)
    received = recorder.receiving(image(), "bob")
    for position, payload in zip(offered.ends, payloads, strict=True):
        received.on_message(position, payload)
    assert received.offered is offered
    assert received.missing() == ""
    assert recorder.message_count == 4


def test_an_image_that_joined_late_begins_with_the_next_message() -> None:
    _, received, payloads = history(join_position=2 * FRAME)
    received.on_message(3 * FRAME, payloads[2])
    received.on_message(4 * FRAME, payloads[3])
    assert received.missing() == "bob waits for 1 messages of session 7"


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(lambda data: data[:-1] + b"?", id="changed"),
        pytest.param(lambda data: data[:-1], id="cut"),
        pytest.param(lambda data: data + b"\0", id="extended"),
    ],
)
def test_n1_a_message_that_differs_is_found(damaged: Any) -> None:
    _, received, payloads = history()
    received.on_message(FRAME, payloads[0])
    with pytest.raises(ViolationError, match=r"^N1: .* at 320 of session 7.* differs from .* 1 as"):
        received.on_message(2 * FRAME, damaged(payloads[1]))


def test_n1_a_first_message_that_nobody_offered_is_found() -> None:
    _, received, payloads = history()
    with pytest.raises(ViolationError, match=r"^N1: .* as bob reads it, was never offered"):
        received.on_message(FRAME, payloads[1])


def test_n1_a_message_beyond_the_last_is_found() -> None:
    _, received, payloads = history(1)
    received.on_message(FRAME, payloads[0])
    with pytest.raises(ViolationError, match=r"^N1: .* ends at 320 .* was never offered"):
        received.on_message(2 * FRAME, payloads[0])


def test_n2_a_message_that_comes_twice_is_found() -> None:
    _, received, payloads = history()
    received.on_message(FRAME, payloads[0])
    with pytest.raises(ViolationError, match=r"^N2: .* ends at 160 .* comes after 160"):
        received.on_message(FRAME, payloads[0])


def test_n2_a_message_from_before_the_image_joined_is_found() -> None:
    _, received, payloads = history(join_position=FRAME)
    with pytest.raises(ViolationError, match=r"^N2: .* comes after 160"):
        received.on_message(FRAME, payloads[0])


def test_n2_a_message_that_ends_where_none_does_is_found() -> None:
    _, received, payloads = history()
    received.on_message(FRAME, payloads[0])
    with pytest.raises(ViolationError, match=r"^N2: .* ends at 192 .* is not the next: .* at 320"):
        received.on_message(FRAME + 32, payloads[1])


def test_n3_a_silent_gap_is_found() -> None:
    _, received, payloads = history()
    received.on_message(FRAME, payloads[0])
    with pytest.raises(ViolationError, match=r"^N3: .* ends at 480 .* is not the next: .* at 320"):
        received.on_message(3 * FRAME, payloads[2])


def test_n3_a_gap_right_at_the_beginning_is_found() -> None:
    _, received, payloads = history()
    with pytest.raises(ViolationError, match=r"^N3"):
        received.on_message(2 * FRAME, payloads[1])


def test_gaps_are_allowed_where_nothing_is_repaired() -> None:
    _, received, payloads = history(is_reliable=False)
    received.on_message(2 * FRAME, payloads[1])
    received.on_message(5 * FRAME, payloads[4])
    assert received.missing() == ""
    assert received.count == 2


def test_order_alone_is_checked_where_frames_are_damaged() -> None:
    _, received, _ = history(is_exact=False)
    received.on_message(500, b"whatever")
    with pytest.raises(ViolationError, match=r"^N2"):
        received.on_message(499, b"whatever")


@pytest.mark.parametrize(
    "position",
    [
        pytest.param(2 * FRAME - 32, id="too early"),
        pytest.param(2 * FRAME + 32, id="with a hole before it"),
    ],
)
def test_n5_an_offer_that_returns_an_impossible_position_is_found(position: int) -> None:
    offered, *_ = history(1)
    number, _ = offered.next_message(LENGTH)
    with pytest.raises(ViolationError, match=r"^N5: an offer of 100 bytes .* stream was at 160"):
        offered.on_offered(position, number, LENGTH)


def test_padding_may_lie_between_up_to_the_end_of_a_term() -> None:
    offered, received, payloads = history(1)
    number, payload = offered.next_message(LENGTH)
    offered.on_offered(TERM_LENGTH + FRAME, number, LENGTH)
    received.on_message(FRAME, payloads[0])
    received.on_message(TERM_LENGTH + FRAME, payload)
    assert received.missing() == ""


def test_an_aborted_claim_is_padding() -> None:
    offered, received, payloads = history(1)
    offered.skip_to(offered.position + 64)
    (payload,) = offer(offered, LENGTH)
    received.on_message(FRAME, payloads[0])
    received.on_message(offered.position, payload)


def test_n5_a_message_that_no_offer_claims_is_found() -> None:
    _, received, payloads = history(1)
    received.on_message(FRAME, payloads[0])
    with pytest.raises(ViolationError, match=r"^N1: .* was never offered"):
        received.on_message(2 * FRAME, make_payload(1, 1, LENGTH))


@pytest.mark.parametrize(
    ("is_end_of_stream", "may_be_lost", "read", "complaint"),
    [
        (True, False, 5, ""),
        (True, True, 5, ""),
        (False, True, 3, ""),
        (False, False, 5, "no publisher has ended the stream"),
        (True, False, 4, "was not read before the image ended"),
    ],
)
def test_n4_an_image_ends_with_its_stream_or_with_its_source(
    is_end_of_stream: bool,  # noqa: FBT001 - a table of cases
    may_be_lost: bool,  # noqa: FBT001 - a table of cases
    read: int,
    complaint: str,
) -> None:
    _, received, payloads = history()
    for number, payload in enumerate(payloads[:read], start=1):
        received.on_message(number * FRAME, payload)
    ended: Any = received.image
    ended.is_end_of_stream, ended.position = is_end_of_stream, 5 * FRAME
    if not complaint:
        received.on_end(may_be_lost=may_be_lost)
        return
    with pytest.raises(ViolationError, match=f"N4.*{complaint}"):
        received.on_end(may_be_lost=may_be_lost)


def test_the_stream_of_a_stranger_may_end_as_it_likes() -> None:
    stranger = image(session_id=9)
    stranger.is_end_of_stream = False
    received = Recorder().receiving(stranger, "bob")
    received.on_end(may_be_lost=False)


def test_what_is_missing_is_told() -> None:
    recorder = Recorder()
    received = recorder.receiving(image(), "bob")
    assert received.missing() == ""
    offered = recorder.publishing(publication())
    assert received.missing() == ""
    offer(offered, LENGTH)
    assert received.missing() == "bob has read nothing of session 7"
    late = recorder.receiving(image(join_position=FRAME), "carol")
    assert late.missing() == ""


def test_of_several_publications_of_a_session_the_right_one_is_found() -> None:
    recorder = Recorder()
    first = recorder.publishing(publication(), "alice")
    second = recorder.publishing(publication(), "bob")
    payloads = [offer(each, LENGTH, LENGTH) for each in (first, second)]
    received = recorder.receiving(image(), "carol")
    received.on_message(FRAME, payloads[1][0])
    assert received.offered is second
    with pytest.raises(ViolationError, match=r"^N1: .* differs"):
        received.on_message(2 * FRAME, payloads[0][1])


def test_those_of_one_owner_share_a_record_and_others_do_not() -> None:
    recorder = Recorder()
    first = recorder.publishing(publication(), "alice")
    assert recorder.publishing(publication(), "alice") is first
    assert recorder.publishing(publication(), "bob") is not first
    assert recorder.publishing(publication(session_id=8), "alice") is not first


def test_every_message_has_one_right_content() -> None:
    lengths = (0, 1, IDENTITY_LENGTH - 1, IDENTITY_LENGTH, 1_000, 200_000, 70_000)
    contents = [make_payload(2, 3, length) for length in lengths]
    assert [len(each) for each in contents] == list(lengths)
    assert contents == [make_payload(2, 3, length) for length in lengths]
    for other in (make_payload(2, 4, 1_000), make_payload(3, 3, 1_000)):
        same = sum(a == b for a, b in zip(other, contents[4], strict=True))
        assert same < 50
