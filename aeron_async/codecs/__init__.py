"""Codecs: messages as values of Python, one by one, and as columns.

A codec has two methods, `encode` and `decode`; `publication.typed(codec)` and
`subscription.typed(codec)` use it. Each name is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.codecs.base import Codec, Columnar, Encoded, PairCodec, Payload, codec
    from aeron_async.codecs.envelope import EnvelopeCodec, Traced, TracedEnvelopeCodec, enveloped
    from aeron_async.codecs.sbe import SbeCodec, SbeUnionCodec
    from aeron_async.codecs.sbe_schema import SbeSchema
    from aeron_async.codecs.struct_codec import StructCodec
    from aeron_async.codecs.values import JsonCodec, MsgpackCodec, ProtobufCodec

__all__ = [
    "Codec",
    "Columnar",
    "Encoded",
    "EnvelopeCodec",
    "JsonCodec",
    "MsgpackCodec",
    "PairCodec",
    "Payload",
    "ProtobufCodec",
    "SbeCodec",
    "SbeSchema",
    "SbeUnionCodec",
    "StructCodec",
    "Traced",
    "TracedEnvelopeCodec",
    "codec",
    "enveloped",
]

MODULES: Final = {
    "EnvelopeCodec": "envelope",
    "JsonCodec": "values",
    "MsgpackCodec": "values",
    "ProtobufCodec": "values",
    "SbeCodec": "sbe",
    "SbeSchema": "sbe_schema",
    "SbeUnionCodec": "sbe",
    "StructCodec": "struct_codec",
    "Traced": "envelope",
    "TracedEnvelopeCodec": "envelope",
    "enveloped": "envelope",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module = import_module(f"{__name__}.{MODULES.get(name, 'base')}")
    found: object = getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
