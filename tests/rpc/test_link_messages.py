"""What both ends say of a link: versions, refusals, deadlines of the server, and draining."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async import rpc
from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.rpc.envelope import HEAD, Extension, Template, head, pack_extensions
from aeron_async.testing import simulate
from tests.rpc.test_calls import MDC, SERVICE, UDP, make_server, pair

if TYPE_CHECKING:
    from aeron_async.testing import World


def test_a_deadline_that_passes_at_the_server_is_a_timeout() -> None:
    async def story(world: World) -> None:
        async with pair(world, timeout=None) as (serving, client):
            await client.wait_connected(5)
            call = asyncio.ensure_future(client.call("never"))
            await world.sleep(0.1)
            session = next(iter(serving._sessions.values()))
            serving._on_deadline(next(iter(session.calls.values())))
            with pytest.raises(rpc.CallTimeoutError) as caught:
                await call
            assert caught.value.was_sent
            assert (client.counts.timed_out, client.counts.failed) == (1, 0)
            assert client.counts.under_way == serving.counts.under_way == 0

    simulate(story, seed=1)


def test_a_client_of_no_version_is_refused_and_told_the_highest() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            await client.wait_connected(5)
            session = next(iter(serving._sessions.values()))
            sent: list[bytes] = []
            outbox, session.outbox = session.outbox, SimpleNamespace(control=sent.append)  # type: ignore[assignment]
            serving._on_any(session, head(Template.HELLO, 0, number=0))
            session.outbox = outbox
            fields = HEAD.unpack_from(sent[0])
            assert fields[1] == Template.ERROR
            assert (fields[5], fields[6]) == (1, rpc.Status.UNIMPLEMENTED)

    simulate(story, seed=1)


def test_a_server_of_another_version_is_no_server() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (_, client):
            await client.wait_connected(5)
            link: Any = client._links[0]
            welcome = bytearray(
                head(
                    Template.WELCOME,
                    0,
                    number=9,
                    extensions=pack_extensions([(Extension.INSTANCE, link._server_instance)]),
                )
            )
            welcome[6] = 2
            link._on_any(bytes(welcome), 0)
            assert not client.is_connected
            assert "version 2" in link._lost_reason

    simulate(story, seed=1)


@pytest.mark.parametrize("channel", [UDP, MDC], ids=["response", "mdc"])
def test_a_client_of_another_service_is_told_so(channel: str) -> None:
    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            world.host("alice").aeron() as alice,
            make_server().serve(bob, channel),
            rpc.Client(alice, channel, "letters") as client,
            rpc.Client(alice, channel, SERVICE) as other,
        ):
            await other.wait_connected(5)
            await world.sleep(2)
            assert not client.is_connected
            assert f"this is {SERVICE!r}" in client._links[0]._lost_reason
            assert other.counts.links_lost == 0
            assert await other.call("echo", b"x") == b"x"

    simulate(story, seed=1)


def test_an_answer_to_all_clients_that_says_not_whose_it_is_is_nobodys() -> None:
    async def story(world: World) -> None:
        async with pair(world, MDC) as (serving, client):
            await client.wait_connected(5)
            call = asyncio.ensure_future(client.call("never"))
            await world.sleep(0.1)
            session = next(iter(serving._sessions.values()))
            session.post(head(Template.REPLY, next(iter(session.calls)), flags=1) + b"another's")
            await world.sleep(0.1)
            assert not call.done()
            call.cancel()

    simulate(story, seed=1)


def test_what_a_later_version_sends_is_answered_with_unimplemented() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            await client.wait_connected(5)
            link: Any = client._links[0]
            link._post(head(99, 0))
            for _ in range(2):
                call = asyncio.ensure_future(client.call("never"))
                await world.sleep(0.1)
                link._post(head(99, max(link.calls)))
                with pytest.raises(rpc.CallFailedError, match="no template 99") as caught:
                    await call
                assert caught.value.status is rpc.Status.UNIMPLEMENTED
            link._post(head(99, 1_000))
            await world.sleep(0.1)
            assert serving.counts.failed == {"UNIMPLEMENTED": 3}
            assert (serving.counts.under_way, client.counts.late) == (0, 1)
            assert await client.call("echo", b"x") == b"x"

    simulate(story, seed=1)


def test_all_attempts_of_a_call_have_one_key() -> None:
    keys: list[bytes] = []
    server = rpc.Server(SERVICE)

    @server.unary
    async def slow(_: bytes, call: rpc.ServerCall) -> bytes:
        keys.append(call.key)
        await asyncio.sleep(0.5)
        return b""

    async def story(world: World) -> None:
        async with (
            world.host("bob").aeron() as bob,
            world.host("alice").aeron() as alice,
            server.serve(bob, UDP),
            rpc.Client(alice, UDP, SERVICE) as client,
        ):
            await client.wait_connected(5)
            call = asyncio.ensure_future(client.call("slow", idempotent=True))
            await world.sleep(0.1)
            link: Any = client._links[0]
            link._break("the test says so")
            await call
            await client.call("slow")
            assert [len(each) for each in keys] == [24] * 3
            assert keys[0] == keys[1] != keys[2]

    simulate(story, seed=1)


def test_calls_that_stream_or_come_in_pieces_are_counted() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            assert len(await client.call("echo", bytes(200_000))) == 200_000
            async with client.stream("count", b"3") as numbers:
                assert [each async for each in numbers] == [b"0", b"1", b"2"]
            with pytest.raises(rpc.CallFailedError):
                async with client.stream("count", b"x") as numbers:
                    await anext(numbers)
            async with client.stream("count", b"1000000") as numbers:
                await anext(numbers)
            await world.sleep(0.5)
            counts = client.counts
            assert (counts.answered, counts.failed, counts.cancelled) == (2, 1, 1)
            assert (serving.counts.answered, serving.counts.cancelled) == (2, 1)

    simulate(story, seed=1)


def test_a_stream_that_was_left_has_no_answer_and_cancels_nobody() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (_, client):
            await client.wait_connected(5)
            async with client.stream("never", b"") as stream:
                asking = asyncio.ensure_future(stream.reply())
                await world.sleep(0.1)
            for reply in (asking, stream.reply()):
                with pytest.raises(rpc.CallFailedError, match="was left") as caught:
                    await reply
                assert caught.value.status is rpc.Status.CANCELLED

    simulate(story, seed=1)


def test_a_stream_of_a_client_that_was_closed_is_told_so() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (_, client):
            await client.wait_connected(5)
            stream = client.stream("count", b"3")
            await client.aclose()
            with pytest.raises(ClosedError, match="the client was closed"):
                await stream.__aenter__()

    simulate(story, seed=1)


def test_a_second_drain_waits_with_the_first() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            await client.wait_connected(5)
            call = asyncio.ensure_future(client.call("later", b"x"))
            await world.sleep(0.005)
            first = asyncio.ensure_future(serving.drain(5))
            await asyncio.sleep(0)
            await serving.drain(5)
            assert serving.counts.under_way == 0
            await first
            assert await call == b"x"

    simulate(story, seed=1)


def test_while_a_server_drains_its_clients_stay_and_say_why_they_wait() -> None:
    async def story(world: World) -> None:
        async with pair(world, connect_timeout=60) as (serving, client):
            await client.wait_connected(5)
            call = asyncio.ensure_future(client.call("never", timeout=20))
            await world.sleep(0.005)
            draining = asyncio.ensure_future(serving.drain(15))
            await world.sleep(0.1)
            async with (
                world.host("carol").aeron() as carol,
                rpc.Client(carol, UDP, SERVICE) as late,
            ):
                for each in (client, late):
                    with pytest.raises(rpc.NoServerError, match=r"within 5 s; the server there en"):
                        await each.wait_connected(5)
                    with pytest.raises(rpc.NoServerError, match="takes no new calls"):
                        await each.call("echo")
                    assert each.counts.links_lost == 0
            call.cancel()
            await draining

    simulate(story, seed=1)


def test_a_client_that_was_sent_away_comes_back_when_the_server_stays() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            await client.wait_connected(5)
            session = next(iter(serving._sessions.values()))
            session.post(session.frame(Template.GOAWAY, 0, number=500))
            await world.sleep(0.1)
            assert not client.is_connected
            await client.wait_connected(10)
            assert await client.call("echo", b"x") == b"x"

    simulate(story, seed=1)


def test_a_client_whose_aeron_was_closed_says_so() -> None:
    async def story(world: World) -> None:
        alice = world.host("alice").aeron()
        async with world.host("bob").aeron() as bob, make_server().serve(bob, UDP):
            await alice.__aenter__()
            async with rpc.Client(alice, UDP, SERVICE, connect_timeout=60) as client:
                await client.wait_connected(5)
                assert await client.call("echo", b"x") == b"x"
                await alice.__aexit__(None, None, None)
                for _ in range(2):
                    with pytest.raises(
                        rpc.NoServerError, match=r"its Aeron is closed \(.*this program closed it"
                    ):
                        await client.call("echo", timeout=None)
                with pytest.raises(ClosedError, match="the Aeron of the client of 'numbers' is"):
                    await client.wait_connected()

    simulate(story, seed=1)


def test_who_waits_for_a_server_learns_that_the_aeron_was_closed() -> None:
    async def story(world: World) -> None:
        alice = world.host("alice").aeron()
        await alice.__aenter__()
        async with rpc.Client(alice, UDP, SERVICE, connect_timeout=60) as client:
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(client.wait_connected())]
            waits.append(asyncio.ensure_future(client.call("echo", timeout=None)))
            await world.sleep(3)
            await alice.__aexit__(None, None, None)
            for each in waits:
                with pytest.raises(
                    rpc.NoServerError, match=r"its Aeron is closed \(.*this program closed it"
                ):
                    await each

    simulate(story, seed=1)


@pytest.mark.parametrize("name", ["grace", "patience", "cancel_grace"])
@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", None, True])
def test_seconds_that_are_none_are_refused(name: str, seconds: Any) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob:
            with pytest.raises(ConfigurationError, match=f"{name}="):
                await make_server().serve(bob, UDP, **{name: seconds}).__aenter__()

    simulate(story, seed=1)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("calls_limit", 2**32 - 1),
        ("calls_at_once", 2**32 - 1),
        ("payload_max", 2**63 - 1),
        ("window_items", 2**63 - 1),
        ("window_bytes", 2**40),
    ],
)
def test_a_limit_is_refused_that_no_message_can_say(name: str, most: int) -> None:
    async def story(world: World) -> None:
        async with world.host("bob").aeron() as bob:
            server, both = make_server(), name != "calls_limit"
            refused: list[dict[str, Any]] = [{name: 0}, {name: most + 1}]
            for wrong in refused:
                with pytest.raises(ConfigurationError, match=f"{name}="):
                    async with server.serve(bob, UDP, **wrong):
                        raise AssertionError
                if both:
                    with pytest.raises(ConfigurationError, match=f"{name}="):
                        rpc.Client(bob, UDP, SERVICE, **wrong)
            options: dict[str, Any] = {name: most}
            async with (
                server.serve(bob, UDP, **options),
                rpc.Client(bob, UDP, SERVICE, **(options if both else {})) as client,
            ):
                await client.wait_connected(5)
                assert await client.call("echo", b"x" * 200_000) == b"x" * 200_000

    simulate(story, seed=1)


@pytest.mark.parametrize(
    ("lowest", "highest", "said"),
    [(2, 3, "version 2 to 3"), (2, 2, "version 2"), (1, 0, "version 0")],
)
def test_both_ends_say_why_a_client_of_other_versions_is_refused(
    lowest: int, highest: int, said: str
) -> None:
    async def story(world: World) -> None:
        async with pair(world, name="hal") as (serving, client):
            await client.wait_connected(5)
            link: Any = client._links[0]
            hello = bytearray(head(Template.HELLO, 0, number=highest))
            hello[6] = lowest
            with capture_logs() as lines:
                for _ in range(3):
                    link._post(bytes(hello))
                await world.sleep(0.02)
            reason = f"the client speaks {said} of calls; this server 1"
            assert [
                (each["log_level"], each["reason"])
                for each in lines
                if each["event"] in {"call_client_refused", "call_link_refused"}
            ] == [("warning", reason)] * 2
            assert reason in link._lost_reason
            assert serving.counts.malformed == 0

    simulate(story, seed=1)


def test_a_client_tells_a_server_of_another_version_why_it_leaves() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            await client.wait_connected(5)
            session = next(iter(serving._sessions.values()))
            welcome = bytearray(head(Template.WELCOME, 0, number=9))
            welcome[6] = 2
            with capture_logs() as lines:
                session.post(bytes(welcome))
                await world.sleep(0.02)
            reason = "the server speaks version 2 of calls; this client 1"
            refused = [each for each in lines if each["event"] == "call_client_refused"]
            assert [(each["service"], each["reason"]) for each in refused] == [(SERVICE, reason)]
            refused = [each for each in lines if each["event"] == "call_link_refused"]
            assert [each["reason"] for each in refused] == [reason]

    simulate(story, seed=1)


def test_a_message_of_a_later_version_makes_no_sense() -> None:
    async def story(world: World) -> None:
        async with pair(world) as (serving, client):
            await client.wait_connected(5)
            link: Any = client._links[0]
            session = next(iter(serving._sessions.values()))
            call = asyncio.ensure_future(client.call("never"))
            await world.sleep(0.1)
            later = bytearray(head(Template.CREDIT, max(link.calls), amount=9, number=9))
            later[6] = 2
            link._post(bytes(later))
            with pytest.raises(rpc.CallFailedError, match="version 2 of calls") as caught:
                await call
            assert caught.value.status is rpc.Status.INVALID_ARGUMENT
            assert serving.counts.malformed == 1
            call = asyncio.ensure_future(client.call("never"))
            await world.sleep(0.1)
            later = bytearray(head(Template.REPLY, max(link.calls), flags=1))
            later[6] = 2
            session.post(bytes(later))
            with pytest.raises(rpc.CallFailedError, match="version 2 of calls"):
                await call
            assert client.counts.malformed == 1
            # Why a link is refused is understood from any version.
            refusal = bytearray(head(Template.ERROR, 0, number=12) + b"of another time")
            refusal[6] = 2
            session.post(bytes(refusal))
            await world.sleep(0.02)
            assert link._lost_reason == "of another time"

    simulate(story, seed=1)


@pytest.mark.parametrize("kind", ["call", "large", "elements", "reply"])
def test_a_caller_gets_one_class_of_error_whichever_timer_was_first(kind: str) -> None:
    async def story(world: World) -> None:
        async with pair(world, timeout=None) as (serving, client):
            await client.wait_connected(5)

            async def ask(timeout: float | None) -> None:
                if kind in {"call", "large"}:
                    await client.call("never", bytes(200_000 * (kind == "large")), timeout=timeout)
                elif kind == "elements":
                    async with client.stream("never", b"", timeout=timeout) as stream:
                        await anext(stream)
                else:
                    async with client.stream("never", timeout=timeout) as stream:
                        await stream.send(b"x")
                        await stream.reply()

            asking = asyncio.ensure_future(ask(None))
            await world.sleep(0.5)
            session = next(iter(serving._sessions.values()))
            serving._on_deadline(next(iter(session.calls.values())))
            for each in (asking, ask(0.5)):
                with pytest.raises(rpc.CallTimeoutError) as caught:
                    await each
                assert (caught.value.was_sent, caught.value.status) == (
                    True,
                    rpc.Status.DEADLINE_EXCEEDED,
                )
            assert (client.counts.timed_out, client.counts.failed) == (2, 0)

    simulate(story, seed=1)
