"""The trace context of a message: which trace it belongs to, and which span has sent it.

It is what W3C's headers `traceparent` and `tracestate` say, as a propagator of OpenTelemetry or of
another library writes and reads them, in a form that is short enough to travel in a payload: 26
bytes, and a text that is empty most of the time. Where in the payload is for the application to
say, or for its envelope: the protocol of Aeron has no field for it, and without one nothing is
sent.

What comes from a peer is foreign: what no header may be is no context, as W3C demands of those who
receive it, and never an error.

Source: W3C Trace Context, https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Self

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TRACEPARENT_LENGTH", "TRACESTATE_MAX", "TraceContext"]

TRACEPARENT_LENGTH: Final = 26
"""Bytes of a parent: one of the version, 16 of the trace id, 8 of the span id, one of flags."""
TRACESTATE_MAX: Final = 255
"""Most bytes of the state: a longer one is left out, whole, as W3C allows."""
# A later version may append fields, which those that know this one leave out.
PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
STATE: Final = re.compile(rf"[\x20-\x7e]{{0,{TRACESTATE_MAX}}}")
NO_VERSION: Final = 0xFF
SAMPLED: Final = 0x01


@attrs.frozen
class TraceContext:
    """One span of one trace, as its child gets to know it.

    Attributes:
        trace_id: 16 bytes, not all of them 0.
        span_id: 8 bytes, not all of them 0: the span that has sent the message.
        flags: Eight bits; the lowest says that the sender records the trace.
        state: What vendors add, as the header `tracestate` has it.
    """

    trace_id: bytes
    span_id: bytes
    flags: int = 0
    state: str = ""

    @property
    def is_sampled(self) -> bool:
        """Return whether the sender records the trace."""
        return bool(self.flags & SAMPLED)

    @classmethod
    def of_headers(cls, headers: Mapping[str, str]) -> Self | None:
        """Return the context that headers hold; None if they hold none.

        Args:
            headers: What a propagator has written, such as `opentelemetry.propagate.inject`.
        """
        found = PARENT.fullmatch(headers.get("traceparent", ""))
        if found is None:
            return None
        version, trace_id, span_id, flags, more = found.groups()
        if more and version == "00":
            return None
        parent = bytes.fromhex(version + trace_id + span_id + flags)
        return cls.of_bytes(parent, headers.get("tracestate", ""))

    @classmethod
    def of_bytes(cls, parent: bytes | memoryview, state: str = "") -> Self | None:
        """Return the context that a message holds; None if that is none.

        Args:
            parent: What `to_bytes` has returned.
            state: The state beside it, of up to 255 characters; what cannot be one is left out.
        """
        parent = bytes(parent)
        trace_id, span_id = parent[1:17], parent[17:25]
        if len(parent) != TRACEPARENT_LENGTH or parent[0] == NO_VERSION:
            return None
        if not any(trace_id) or not any(span_id):
            return None
        return cls(trace_id, span_id, parent[25], state if STATE.fullmatch(state) else "")

    def to_bytes(self) -> bytes:
        """Return the 26 bytes of the parent, of version 0."""
        return bytes(1) + self.trace_id + self.span_id + bytes((self.flags,))

    def to_headers(self) -> dict[str, str]:
        """Return the headers, for a propagator such as `opentelemetry.propagate.extract`."""
        parent = f"00-{self.trace_id.hex()}-{self.span_id.hex()}-{self.flags:02x}"
        return {"traceparent": parent, **({"tracestate": self.state} if self.state else {})}
