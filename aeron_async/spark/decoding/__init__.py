"""Decoders that turn message payloads into typed columns.

A text names a decoder: `struct:<price:q,symbol:8s`, `sbe:schema.xml#Quote`, `json:price
double,symbol string`, `msgpack:price double`, or `package.module:callable` for a callable that
takes no arguments and returns a `Decoder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.codecs.columns import WIDENED, Decoded
from aeron_async.codecs.sbe_columns import SbeColumns
from aeron_async.codecs.sbe_schema import SbeSchema
from aeron_async.errors import ConfigurationError
from aeron_async.spark.decoding.decoder import (
    ERROR_COLUMN,
    CodecDecoder,
    Decoder,
    decode_batch,
    decoded_schema,
)
from aeron_async.spark.decoding.field_decoders import json_decoder, msgpack_decoder, struct_decoder

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ERROR_COLUMN",
    "CodecDecoder",
    "Decoded",
    "Decoder",
    "decode_batch",
    "decoded_schema",
    "decoder_of",
]


def _sbe_decoder(spec: str) -> Decoder:
    path, _, name = spec.partition("#")
    message = SbeSchema.from_file(path).message(name or None)
    columns = SbeColumns(message, WIDENED)
    if not message.block.is_flat:
        return CodecDecoder(columns)
    ends = [field.end for field in message.block.fields]
    return CodecDecoder(columns, reach=message.header.width + max(ends, default=0))


KINDS: Final[dict[str, Callable[[str], Decoder]]] = {
    "struct": struct_decoder,
    "sbe": _sbe_decoder,
    "json": json_decoder,
    "msgpack": msgpack_decoder,
}


def decoder_of(spec: str) -> Decoder:
    """Return the decoder that a text names; see the module.

    Raises:
        ConfigurationError: The text names no decoder, or its field list or schema is invalid.
    """
    kind, _, rest = spec.partition(":")
    if kind not in KINDS:
        message = (
            f"decoder {spec!r} is none: write struct:, sbe:, json: or msgpack:, and how messages "
            "are made, for example struct:<price:q,symbol:8s"
        )
        raise ConfigurationError(message)
    return KINDS[kind](rest)
