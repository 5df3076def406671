"""Response channels over IPC: each client hears only what answers its own requests."""

from __future__ import annotations

import pytest

import aeron_async as aa
from tests.client.local import IPC, STREAM_ID, publications, take, until

RESPONSE = f"{IPC}?control-mode=response"


async def asked(aeron: aa.Aeron, request: bytes) -> tuple[aa.Subscription, aa.Publication]:
    """Subscribe to responses, and send a request that says where they are wanted."""
    responses = await aeron.add_subscription(RESPONSE, STREAM_ID + 1)
    requests = await aeron.add_exclusive_publication(
        f"{IPC}?response-correlation-id={responses.registration_id}", STREAM_ID
    )
    await requests.offer(request, timeout=5)
    return responses, requests


@pytest.mark.parametrize("is_said", [True, False], ids=["control-mode", "correlation id alone"])
async def test_each_client_hears_its_own_answer(aeron: aa.Aeron, is_said: bool) -> None:  # noqa: FBT001 - of a table
    server = await aeron.add_subscription(IPC, STREAM_ID)
    clients = [await asked(aeron, b"request %d" % number) for number in range(3)]
    assert all(responses.images == () for responses, _ in clients)
    query = "control-mode=response|" if is_said else ""
    for _ in clients:
        message = await anext(server)
        answers = await aeron.add_exclusive_publication(
            f"{IPC}?{query}response-correlation-id={message.image.correlation_id}", STREAM_ID + 1
        )
        await answers.offer(b"answer to " + message.data, timeout=5)
    for core in publications(aeron):
        metadata = core.log.metadata
        assert metadata.is_response == (core.stream_id == STREAM_ID + 1)
        assert metadata.response_correlation_id == core.params.response_correlation_id
    for number, (responses, _) in enumerate(clients):
        assert await take(responses, 1) == [b"answer to request %d" % number]
        assert len(responses.images) == 1


async def test_a_server_may_answer_anew(aeron: aa.Aeron) -> None:
    server = await aeron.add_subscription(IPC, STREAM_ID)
    responses, _ = await asked(aeron, b"again and again")
    message = await anext(server)
    for number in range(2):
        answers = await aeron.add_exclusive_publication(
            f"{RESPONSE}|response-correlation-id={message.image.correlation_id}", STREAM_ID + 1
        )
        await answers.offer(b"%d" % number, timeout=5)
        assert await take(responses, 1) == [b"%d" % number]
        await answers.aclose()
        await until(lambda: not responses.images)


async def test_responses_of_others_are_not_for_who_waits_for_its_own(aeron: aa.Aeron) -> None:
    responses = await aeron.add_subscription(RESPONSE, STREAM_ID)
    await aeron.add_exclusive_publication(IPC, STREAM_ID)
    assert responses.images == ()


async def test_a_prototype_answers_nobody_yet(aeron: aa.Aeron) -> None:
    prototype = await aeron.add_exclusive_publication(
        f"{RESPONSE}|response-correlation-id=prototype", STREAM_ID
    )
    assert not prototype.is_connected


@pytest.mark.parametrize("query", ["", "control-mode=response|"])
async def test_a_correlation_id_that_names_nothing_is_refused(aeron: aa.Aeron, query: str) -> None:
    with pytest.raises(aa.RegistrationError, match="matches nothing on aeron:ipc") as caught:
        await aeron.add_publication(f"{IPC}?{query}response-correlation-id=99", STREAM_ID)
    assert caught.value.code is aa.ErrorCode.INVALID_CHANNEL
    assert publications(aeron) == ()


async def test_a_stream_that_asked_for_no_answer_gets_none(aeron: aa.Aeron) -> None:
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    await aeron.add_publication(IPC, STREAM_ID)
    image_id = subscription.images[0].correlation_id
    with pytest.raises(aa.RegistrationError, match="response-correlation-id of its own"):
        await aeron.add_publication(f"{RESPONSE}|response-correlation-id={image_id}", STREAM_ID)


async def test_a_request_over_the_network_is_not_answered_over_ipc(
    aeron: aa.Aeron, channel: str
) -> None:
    responses = await aeron.add_subscription(RESPONSE, STREAM_ID)
    asking = f"response-correlation-id={responses.registration_id}"
    with pytest.raises(aa.RegistrationError, match="control-mode=response"):
        await aeron.add_publication(f"{channel}|{asking}", STREAM_ID)
    plain = await aeron.add_subscription(IPC, STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="aeron:ipc"):
        await aeron.add_publication(
            f"{IPC}?response-correlation-id={plain.registration_id}", STREAM_ID
        )


async def test_a_channel_for_responses_needs_to_say_whose(aeron: aa.Aeron) -> None:
    with pytest.raises(aa.ChannelUriError, match="response-correlation-id"):
        await aeron.add_publication(RESPONSE, STREAM_ID)


async def test_requests_with_different_answers_are_not_shared(aeron: aa.Aeron) -> None:
    ids = []
    for _ in range(2):
        responses = await aeron.add_subscription(RESPONSE, STREAM_ID + 1)
        channel = f"{IPC}?response-correlation-id={responses.registration_id}"
        one = await aeron.add_publication(channel, STREAM_ID)
        same = await aeron.add_publication(channel, STREAM_ID)
        assert one.session_id == same.session_id
        ids.append(one.session_id)
    assert len(set(ids)) == 2
