"""Question: what does a codec cost, beside the same work by hand?

`python -m benchmarks.typed` measures the quote of 100 bytes with 14 fields that other tables have:
encode and decode of each codec in nanoseconds, beside the library by hand; a stream over IPC that
is decoded one by one, beside the same loop by hand, as a ratio; and batches that become Arrow
columns, in messages a second. Each figure is the best of several rounds; the rounds of a pair take
turns.
"""

from __future__ import annotations

import argparse
import struct
from collections import namedtuple
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvloop

import aeron_async as aa
from aeron_async.codecs import JsonCodec, MsgpackCodec, SbeSchema, StructCodec, enveloped

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.codecs import Codec

SPEC: Final = (
    "<bid:d,ask:d," + ",".join(f"n{n}:q" for n in range(7)) + ",last:d,symbol:16s,a:B,b:B,c:B,d:B"
)
KINDS: Final = {"d": "double", "q": "int64", "B": "uint8", "16s": "Symbol"}
FIELDS: Final = [part.split(":") for part in SPEC[1:].split(",")]
SCHEMA: Final = f"""<messageSchema id="7" version="1"><types>
<composite name="messageHeader">
<type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
<type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/>
</composite><type name="Symbol" primitiveType="char" length="16"/></types>
<message name="Quote" id="1">{
    "".join(f'<field name="{name}" type="{KINDS[kind]}"/>' for name, kind in FIELDS)
}</message></messageSchema>"""
VALUES: Final = (100.25, 100.5, 1, 2, 3, 4, 5, 6, 2**40, 100.25, "AERN", 1, 2, 3, 4)
Quote = msgspec.defstruct(
    "Quote",
    [(name, {"d": float, "16s": str}.get(kind, int)) for name, kind in FIELDS],
    array_like=True,
    gc=False,
)
HAND: Final = struct.Struct("<2d7qd16s4B")
HEADED: Final = struct.Struct("<4H2d7qd16s4B")
Row: Any = namedtuple("Row", [name for name, _ in FIELDS])  # type: ignore[misc]  # noqa: PYI024
STREAM_ID: Final = 1001
TERM_LENGTH: Final = 64 * 1024 * 1024
CALLS: Final = 5_000


if TYPE_CHECKING:
    Contender = tuple[Codec[Any], Any, Callable[[Any], bytes], Callable[[bytes], Any]]


def best_ns(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the least nanoseconds of each call; the rounds take turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            started_ns = perf_counter_ns()
            for _ in range(CALLS):
                call()
            found[name] = min(found[name], (perf_counter_ns() - started_ns) / CALLS)
    return found


def row_of(message: bytes) -> Any:
    """Decode a struct by hand, with a text."""
    values = list(HAND.unpack(message))
    values[10] = values[10].partition(b"\0")[0].decode()
    return Row._make(values)


def headed_row_of(message: bytes) -> Any:
    """Decode the same behind a header of SBE, which is checked."""
    length, template, schema, _, *values = HEADED.unpack(message)
    if (length, template, schema) != (100, 1, 7):
        raise ValueError
    values[10] = values[10].partition(b"\0")[0].decode()
    return Row._make(values)


def struct_of(row: Any) -> bytes:
    """Encode a struct by hand."""
    return HAND.pack(*row[:10], row[10].encode(), *row[11:])


def headed_struct_of(row: Any) -> bytes:
    """Encode the same behind a header of SBE."""
    return HEADED.pack(100, 1, 7, 1, *row[:10], row[10].encode(), *row[11:])


def contenders() -> dict[str, Contender]:
    """Return each codec with a value, and the same by hand."""
    plain, raw = StructCodec(SPEC), StructCodec(SPEC, raw_bytes=True)
    sbe = SbeSchema.from_xml(SCHEMA).codec("Quote")
    packed: Any = msgspec.msgpack
    bytes_row = (*VALUES[:10], b"AERN", *VALUES[11:])
    return {
        "struct": (plain, plain.type(*VALUES), struct_of, row_of),
        "struct, raw bytes": (
            raw, raw.type(*bytes_row), lambda row: HAND.pack(*row),
            lambda message: Row._make(HAND.unpack(message)),
        ),
        "struct, enveloped": (
            enveloped(plain, schema_id=7), plain.type(*VALUES), struct_of, row_of,
        ),
        "SBE": (sbe, sbe.type(*VALUES), headed_struct_of, headed_row_of),
        "MessagePack, array": (
            MsgpackCodec(Quote), Quote(*VALUES), packed.Encoder().encode,
            packed.Decoder(Quote).decode,
        ),
        "JSON, array": (
            JsonCodec(Quote), Quote(*VALUES), msgspec.json.Encoder().encode,
            msgspec.json.Decoder(Quote).decode,
        ),
    }  # fmt: skip


def print_codecs(rounds: int) -> None:
    """Print what encode and decode cost, beside by hand."""
    print("| codec | bytes | encode, ns | by hand | decode, ns | by hand |")
    print("|---|---|---|---|---|---|")
    for name, (codec, value, encode, decode) in contenders().items():
        message = bytes(codec.encode(value))  # type: ignore[arg-type]
        own = encode(value)
        calls: dict[str, Callable[[], object]] = {
            "encode": lambda codec=codec, value=value: codec.encode(value),  # type: ignore[misc]
            "encode by hand": lambda encode=encode, value=value: encode(value),  # type: ignore[misc]
            "decode": lambda codec=codec, message=message: codec.decode(message),  # type: ignore[misc]
            "decode by hand": lambda decode=decode, own=own: decode(own),  # type: ignore[misc]
        }
        found = " | ".join(f"{ns:.0f}" for ns in best_ns(calls, rounds).values())
        print(f"| {name} | {len(message)} | {found} |")


async def read_typed(subscription: aa.TypedSubscription[Any], count: int) -> float:
    """Return the nanoseconds a value of a typed stream takes."""
    started_ns, left = perf_counter_ns(), count
    async for _ in subscription:
        left -= 1
        if not left:
            break
    return (perf_counter_ns() - started_ns) / count


async def read_by_hand(
    subscription: aa.Subscription, decode: Callable[[bytes], Any], count: int
) -> float:
    """Return the nanoseconds a message takes that the loop decodes."""
    started_ns, left = perf_counter_ns(), count
    async for message in subscription:
        decode(message.data)
        left -= 1
        if not left:
            break
    return (perf_counter_ns() - started_ns) / count


async def read_columns(subscription: aa.TypedSubscription[Any], count: int) -> float:
    """Return the nanoseconds a message takes on its way into Arrow columns."""
    started_ns, left = perf_counter_ns(), count
    async for batch in subscription.batches(8_192, max_bytes=1024 * 1024):
        assert batch.to_arrow().num_rows == len(batch)
        left -= len(batch)
        if not left:
            break
    return (perf_counter_ns() - started_ns) / count


async def stream_costs(rounds: int, count: int) -> None:
    """Print what values of a stream cost, one by one and as columns."""
    context = aa.DriverContext(ipc_term_buffer_length=TERM_LENGTH)
    print("| codec | one by one, ns | by hand, ns | ratio | Arrow, messages/s |")
    print("|---|---|---|---|---|")
    async with aa.MediaDriver.launch(context) as driver, aa.Aeron.connect(driver) as aeron:
        subscription = await aeron.add_subscription("aeron:ipc", STREAM_ID)
        publication = await aeron.add_publication("aeron:ipc", STREAM_ID)
        for name, (codec, value, encode, decode) in contenders().items():
            typed = subscription.typed(codec)
            message = bytes(codec.encode(value))  # type: ignore[arg-type]
            found: dict[str, list[float]] = {"typed": [], "hand": [], "arrow": []}
            for _ in range(rounds):
                for way, sent in (("typed", message), ("hand", encode(value)), ("arrow", message)):
                    if way == "arrow" and not hasattr(codec, "columns"):
                        continue
                    await publication.offer_many([sent] * count)
                    if way == "typed":
                        found[way].append(await read_typed(typed, count))
                    elif way == "hand":
                        found[way].append(await read_by_hand(subscription, decode, count))
                    else:
                        found[way].append(await read_columns(typed, count))
                    # Take the last ones.
                    while subscription.poll(lambda *_: None, count):
                        pass
            one, hand = min(found["typed"]), min(found["hand"])
            rate = f"{1e9 / min(found['arrow']):,.0f}" if found["arrow"] else ""
            print(f"| {name} | {one:.0f} | {hand:.0f} | {one / hand:.2f} | {rate} |")


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--messages", type=int, default=60_000)
    arguments = parser.parse_args()
    print_codecs(arguments.rounds)
    print()
    uvloop.run(stream_costs(arguments.rounds, arguments.messages))


if __name__ == "__main__":
    main()
