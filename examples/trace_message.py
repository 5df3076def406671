"""A message takes its trace along: the reader's span becomes a child of the publisher's.

Here the headers are written by hand. With OpenTelemetry, `propagate.inject(headers)` writes those
of the current span, and `propagate.extract(context.to_headers())` makes the parent of a new one.
"""

import asyncio

import aeron_async as aa
from aeron_async.trace_context import TRACEPARENT_LENGTH, TraceContext

HEADERS = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


def pack(payload: bytes, headers: dict[str, str]) -> bytes:
    """Put the trace before the payload; 26 bytes of 0 if there is none."""
    context = TraceContext.of_headers(headers)
    return (context.to_bytes() if context else bytes(TRACEPARENT_LENGTH)) + payload


def unpack(data: bytes) -> tuple[bytes, TraceContext | None]:
    """Return the payload, and the trace if there is one."""
    return data[TRACEPARENT_LENGTH:], TraceContext.of_bytes(data[:TRACEPARENT_LENGTH])


async def main() -> None:
    """Publish one message with a trace and one without, and read them."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", 1001)
        publication = await aeron.add_publication("aeron:ipc", 1001)
        await publication.offer(pack(b"order 7", HEADERS))
        await publication.offer(pack(b"order 8", {}))
        for _ in range(2):
            message = await anext(subscription)
            payload, context = unpack(message.data)
            parent = context.to_headers()["traceparent"] if context else "no trace"
            print(f"{payload.decode()}: {parent}")


if __name__ == "__main__":
    asyncio.run(main())
