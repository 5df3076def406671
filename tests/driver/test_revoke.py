"""Revoking a network publication; and what a SETUP says of responses."""

from __future__ import annotations

import pytest

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.header import FrameType, StatusMessageFlags
from tests.driver.fakes import MS, SECOND, eliciting_message
from tests.driver.rigs import PublicationRig


@pytest.fixture
def rig() -> PublicationRig:
    """Return a publication with a receiver that has heard 1024 bytes."""
    rig = PublicationRig()
    rig.connect(0)
    rig.offer(bytes(992))
    rig.poll(0)
    return rig


def test_a_revoked_stream_lingers_at_once_and_tells_everybody(rig: PublicationRig) -> None:
    spy = rig.spy()
    rig.hear(1_024, 0, receiver_window=0)
    for _ in range(3):
        rig.offer(bytes(992))
    rig.publication.revoke(1)
    assert rig.state() is PublicationState.LINGER
    assert not rig.is_connected()
    assert rig.log.metadata.is_publication_revoked
    assert rig.log.metadata.is_connected == 0
    end = rig.publication.producer_position
    assert rig.log.metadata.end_of_stream_position == rig.publication.publisher_limit == end
    assert rig.counts[SystemCounterId.PUBLICATIONS_REVOKED] == 1
    assert rig.told == [("unavailable", 0)]
    assert spy.is_closed


def test_heartbeats_of_a_revoked_stream_say_so_for_as_long_as_it_lingers(
    rig: PublicationRig,
) -> None:
    rig.publication.revoke(0)
    sent = {datagram[:8] for ms in range(0, 5_000, 50) for datagram in rig.poll(ms * MS)}
    assert sent == {bytes.fromhex("00000000 00 f0 0100")}
    assert rig.state() is PublicationState.LINGER
    rig.poll(5 * SECOND)
    assert rig.state() is PublicationState.DONE
    assert rig.publication.poll(6 * SECOND) == NEVER_NS


def test_revocation_is_said_even_where_the_end_is_not() -> None:
    rig = PublicationRig(signal_eos=False)
    rig.connect(0)
    rig.publication.revoke(0)
    assert [datagram[5] for datagram in rig.poll(100 * MS)] == [0xF0]


def test_a_revoked_stream_makes_no_more_setups(rig: PublicationRig) -> None:
    rig.publication.revoke(0)
    rig.publication.on_status_message(eliciting_message(rig.log), 1)
    assert {datagram[6] for ms in (50, 150, 250) for datagram in rig.poll(ms * MS)} == {
        FrameType.DATA
    }


def test_the_goodbye_of_the_receiver_ends_the_linger_of_a_revoked_stream(
    rig: PublicationRig,
) -> None:
    rig.publication.revoke(0)
    rig.hear(1_024, 1, flags=StatusMessageFlags.END_OF_STREAM)
    rig.poll(1)
    assert rig.state() is PublicationState.DONE


def test_a_driver_that_closes_waits_for_three_heartbeats_of_a_revoked_stream(
    rig: PublicationRig,
) -> None:
    rig.publication.revoke(0)
    rig.publication.skip_linger()
    sent = [len(rig.poll(ms * MS)) for ms in (0, 100, 200, 299)]
    assert sum(sent) >= 2
    assert rig.state() is PublicationState.LINGER
    rig.poll(300 * MS)
    assert rig.state() is PublicationState.DONE


def test_revoking_twice_or_releasing_what_is_revoked_changes_nothing(rig: PublicationRig) -> None:
    rig.publication.revoke(0)
    rig.publication.revoke(1)
    rig.publication.release(1)
    assert rig.state() is PublicationState.LINGER
    assert rig.counts[SystemCounterId.PUBLICATIONS_REVOKED] == 1


# What a SETUP says of responses.


@pytest.mark.parametrize(
    ("correlation_id", "is_response", "flags"),
    [(None, False, 0), (-1, False, 0), (77, False, 0x80), (-2, False, 0x80), (77, True, 0)],
)
def test_a_setup_asks_for_a_response_where_the_channel_names_a_subscription(
    correlation_id: int | None,
    is_response: bool,  # noqa: FBT001 - a parameter of the test
    flags: int,
) -> None:
    rig = PublicationRig(response_correlation_id=correlation_id, is_response=is_response)
    (setup,) = rig.poll(0)
    assert setup[5] == flags


def test_a_group_that_is_asked_for_responses_says_both() -> None:
    rig = PublicationRig(response_correlation_id=1, is_unicast=False, has_group_semantics=True)
    assert rig.poll(0)[0][5] == 0xC0
