"""What others make of the same messages: pyzmq by blocking and on asyncio, Zenoh, NATS, iceoryx2.

Each is a pair of PUSH and PULL over TCP on loopback, or a subject, or two Zenoh peers that know
each other, with their own defaults; each message is compared with the one that is due, as ours are.
A publisher of Zenoh waits where it would drop, and its subscriber is a callback, in a thread of
Zenoh. iceoryx2 shares memory and has nothing to wait with beside a queue that is full or empty:
both ends poll, and its messages are counted, as ours are over shared memory.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from itertools import cycle
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from aeron_async.cli.bench_child import StreamPlan, offer_parts, ready, take_parts
from aeron_async.cli.bench_processes import check_mark, make_mark, make_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aeron_async.cli.bench_child import Role

__all__ = ["ROLES"]

LINGER_MS = 20_000
SUBJECT = "bench"
LOOK_INTERVAL_S = 0.001
ICEORYX_QUEUE_LENGTH = 4_096
"""Messages on their way; the window of ours takes more than that of 100 bytes."""


def zmq_publish(plan: dict[str, Any]) -> dict[str, float]:
    """Push with blocking sockets."""
    import zmq  # noqa: PLC0415 - it is optional

    stream = StreamPlan(**plan)
    messages = make_messages(stream.length)
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.linger = LINGER_MS
    socket.connect(stream.channel)
    send = socket.send
    for seconds in (stream.warm_up_s, stream.seconds):
        count, end_s = 0, time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            for message in messages:
                send(message)
            count += len(messages)
        send(make_mark(count))
    socket.close()
    context.term()
    return {}


def zmq_subscribe(plan: dict[str, Any]) -> dict[str, float]:
    """Pull with blocking sockets."""
    import zmq  # noqa: PLC0415 - it is optional

    stream = StreamPlan(**plan)
    messages = make_messages(stream.length)
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.bind(stream.channel)
    ready()
    count, elapsed_s, receive = 0, 0.0, socket.recv
    for _ in range(2):
        due, count, started_s = cycle(messages).__next__, 0, time.perf_counter()
        while (data := receive()) == due():
            count += 1
        check_mark(data, count)
        elapsed_s = time.perf_counter() - started_s
    socket.close()
    context.term()
    return {
        "messages_per_s": count / elapsed_s,
        "mb_per_s": count * stream.length / elapsed_s / 1e6,
    }


async def zmq_publish_asyncio(plan: dict[str, Any]) -> dict[str, float]:
    """Push with sockets on the event loop."""
    import zmq.asyncio  # noqa: PLC0415 - it is optional

    stream = StreamPlan(**plan)
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.PUSH)
    socket.linger = LINGER_MS
    socket.connect(stream.channel)
    figures = await offer_parts(socket.send, stream)
    socket.close()
    context.term()
    return figures


async def zmq_subscribe_asyncio(plan: dict[str, Any]) -> dict[str, float]:
    """Pull with sockets on the event loop."""
    import zmq.asyncio  # noqa: PLC0415 - it is optional

    stream = StreamPlan(**plan)
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.PULL)
    socket.bind(stream.channel)
    ready()

    async def receive(wanted: Iterator[bytes]) -> int:
        count, due = 0, wanted.__next__
        while (data := await socket.recv()) == due():
            count += 1
        check_mark(data, count)
        return count

    figures = await take_parts(receive, stream)
    socket.close()
    context.term()
    return figures


async def nats_publish(plan: dict[str, Any]) -> dict[str, float]:
    """Publish to a subject of a server."""
    import nats  # noqa: PLC0415 - it is optional

    stream = StreamPlan(**plan)
    client = await nats.connect(stream.channel)

    async def offer(data: bytes) -> None:
        await client.publish(SUBJECT, data)

    figures = await offer_parts(offer, stream)
    await client.drain()
    return figures


async def nats_subscribe(plan: dict[str, Any]) -> dict[str, float]:
    """Take the messages of a subject, without a limit on those that wait."""
    import nats  # noqa: PLC0415 - it is optional

    stream = StreamPlan(**plan)
    client = await nats.connect(stream.channel)
    subscription = await client.subscribe(SUBJECT, pending_msgs_limit=-1, pending_bytes_limit=-1)
    await client.flush()
    ready()

    async def receive(wanted: Iterator[bytes]) -> int:
        count, due = 0, wanted.__next__
        async for message in subscription.messages:
            if message.data != due():
                check_mark(message.data, count)
                break
            count += 1
        return count

    figures = await take_parts(receive, stream)
    await client.close()
    return figures


def zenoh_session(key: str, channel: str) -> Any:
    """Return a peer that listens or connects on loopback, and looks for no others."""
    import zenoh  # noqa: PLC0415 - it is optional

    config = zenoh.Config()
    for each, value in {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        # Long messages would go through shared memory, and on a busy machine some were lost there.
        "transport/shared_memory/enabled": False,
        "listen/endpoints": [],
        f"{key}/endpoints": [channel.replace("://", "/")],
    }.items():
        config.insert_json5(each, json.dumps(value))
    return zenoh.open(config)


def zenoh_publish(plan: dict[str, Any]) -> dict[str, float]:
    """Put messages, and wait where a queue is full; leave when the subscriber has left."""
    import zenoh  # noqa: PLC0415 - it is optional

    stream = StreamPlan(**plan)
    messages = make_messages(stream.length)
    with zenoh_session("connect", stream.channel) as session:
        publisher = session.declare_publisher(
            SUBJECT,
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
        )
        while not publisher.matching_status.matching:
            time.sleep(LOOK_INTERVAL_S)
        put = publisher.put
        for seconds in (stream.warm_up_s, stream.seconds):
            count, end_s = 0, time.perf_counter() + seconds
            while time.perf_counter() < end_s:
                for message in messages:
                    put(message)
                count += len(messages)
            put(make_mark(count))
        # What is still on its way might be dropped with the session.
        while publisher.matching_status.matching:
            time.sleep(LOOK_INTERVAL_S)
    return {}


def zenoh_subscribe(plan: dict[str, Any]) -> dict[str, float]:
    """Take messages by a callback, and tell the main thread of those that are not due."""
    stream = StreamPlan(**plan)
    messages = make_messages(stream.length)
    ended: SimpleQueue[tuple[bytes, int, float]] = SimpleQueue()
    due, count = cycle(messages).__next__, 0

    def take(sample: Any) -> None:
        nonlocal due, count
        data = sample.payload.to_bytes()
        if data == due():
            count += 1
            return
        ended.put((data, count, time.perf_counter()))
        due, count = cycle(messages).__next__, 0

    with zenoh_session("listen", stream.channel) as session:
        subscriber = session.declare_subscriber(SUBJECT, take)
        ready()
        data, taken, started_s = ended.get()
        check_mark(data, taken)
        data, taken, ended_s = ended.get()
        check_mark(data, taken)
        subscriber.undeclare()
    return {
        "messages": taken,
        "messages_per_s": taken / (ended_s - started_s),
        "mb_per_s": taken * stream.length / (ended_s - started_s) / 1e6,
    }


def iceoryx_service(name: str) -> Any:
    """Return a service of iceoryx2 whose publisher waits while a queue is full."""
    import iceoryx2  # noqa: PLC0415 - it is optional

    node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
    builder = node.service_builder(iceoryx2.ServiceName.new(name))
    builder = builder.publish_subscribe(iceoryx2.Slice[ctypes.c_uint8])
    builder = builder.enable_safe_overflow(False).subscriber_max_buffer_size(ICEORYX_QUEUE_LENGTH)
    return builder.open_or_create()


def iceoryx_publish(plan: dict[str, Any]) -> dict[str, float]:
    """Copy each message into a sample and send it."""
    stream = StreamPlan(**plan)
    messages = make_messages(stream.length)
    service = iceoryx_service(stream.channel)
    publisher = service.publisher_builder().initial_max_slice_len(stream.length).create()
    loan, copy = publisher.loan_slice_uninit, ctypes.memmove

    def send(data: bytes) -> None:
        sample = loan(len(data))
        copy(sample.payload_ptr, data, len(data))
        sample.assume_init().send()

    figures: dict[str, float] = {}
    for seconds in (stream.warm_up_s, stream.seconds):
        count, started_s, started_cpu_s = 0, time.perf_counter(), time.process_time()
        end_s = started_s + seconds
        while time.perf_counter() < end_s:
            for message in messages:
                send(message)
            count += len(messages)
        send(make_mark(count))
        share = (time.process_time() - started_cpu_s) / (time.perf_counter() - started_s)
        figures = {"offered": count, "publisher_share": share}
    return figures


def iceoryx_subscribe(plan: dict[str, Any]) -> dict[str, float]:
    """Take the bytes of samples as they come, and yield the processor while there is none."""
    stream = StreamPlan(**plan)
    subscriber = iceoryx_service(stream.channel).subscriber_builder().create()
    ready()
    receive, take = subscriber.receive, ctypes.string_at
    figures: dict[str, float] = {}
    for _ in range(2):
        count, started_s, started_cpu_s = 0, time.perf_counter(), time.process_time()
        while True:
            sample = receive()
            if sample is None:
                os.sched_yield()
                continue
            payload = sample.payload()
            data = take(payload.data_ptr, payload.number_of_elements)
            if len(data) != stream.length:
                break
            count += 1
        check_mark(data, count)
        elapsed_s = time.perf_counter() - started_s
        figures = {
            "messages": count,
            "messages_per_s": count / elapsed_s,
            "mb_per_s": count * stream.length / elapsed_s / 1e6,
            "subscriber_share": (time.process_time() - started_cpu_s) / elapsed_s,
        }
    return figures


ROLES: Final[Mapping[str, Role]] = {
    "iceoryx_publish": iceoryx_publish,
    "iceoryx_subscribe": iceoryx_subscribe,
    "zmq_publish": zmq_publish,
    "zmq_subscribe": zmq_subscribe,
    "zmq_publish_asyncio": zmq_publish_asyncio,
    "zmq_subscribe_asyncio": zmq_subscribe_asyncio,
    "zenoh_publish": zenoh_publish,
    "zenoh_subscribe": zenoh_subscribe,
    "nats_publish": nats_publish,
    "nats_subscribe": nats_subscribe,
}
