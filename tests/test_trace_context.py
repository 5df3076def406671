"""Trace contexts as headers and as bytes, beside OpenTelemetry's own propagator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.trace_context import TRACEPARENT_LENGTH, TRACESTATE_MAX, TraceContext

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
CONTEXT = TraceContext(bytes.fromhex(TRACE), bytes.fromhex(SPAN), 1, "vendor=value")


def test_headers_and_bytes_say_the_same() -> None:
    headers = {"traceparent": PARENT, "tracestate": "vendor=value"}
    assert TraceContext.of_headers(headers) == CONTEXT
    assert CONTEXT.to_headers() == headers
    assert CONTEXT.to_bytes().hex() == f"00{TRACE}{SPAN}01"
    assert TraceContext.of_bytes(memoryview(CONTEXT.to_bytes()), "vendor=value") == CONTEXT
    assert CONTEXT.is_sampled


@given(
    st.binary(min_size=16, max_size=16).filter(any),
    st.binary(min_size=8, max_size=8).filter(any),
    st.integers(0, 255),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=TRACESTATE_MAX),
)
def test_every_context_comes_back(trace_id: bytes, span_id: bytes, flags: int, state: str) -> None:
    context = TraceContext(trace_id, span_id, flags, state)
    assert len(context.to_bytes()) == TRACEPARENT_LENGTH
    assert TraceContext.of_bytes(context.to_bytes(), state) == context
    assert TraceContext.of_headers(context.to_headers()) == context
    assert context.is_sampled == bool(flags & 1)


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "00",
        PARENT.upper(),
        PARENT[:-1],
        f"{PARENT}0",
        f"{PARENT}-more",
        f"{PARENT}\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0g",
    ],
)
def test_what_no_header_may_be_is_no_context(parent: str) -> None:
    assert TraceContext.of_headers({"traceparent": parent}) is None
    assert TraceContext.of_headers({}) is None


@given(st.binary(max_size=40))
def test_bytes_of_strangers_are_a_context_or_none(parent: bytes) -> None:
    context = TraceContext.of_bytes(parent)
    is_one = (
        len(parent) == TRACEPARENT_LENGTH
        and parent[0] != 0xFF
        and any(parent[1:17])
        and any(parent[17:25])
    )
    assert (context is not None) == is_one


def test_a_later_version_is_read_as_this_one() -> None:
    found = TraceContext.of_headers({"traceparent": f"01-{TRACE}-{SPAN}-01-more"})
    assert found == TraceContext(CONTEXT.trace_id, CONTEXT.span_id, 1)
    assert found.to_headers() == {"traceparent": PARENT}


@pytest.mark.parametrize("state", ["\x1b[2J", "a=\nb", "é=1", "x" * (TRACESTATE_MAX + 1)])
def test_a_state_that_cannot_be_one_is_left_out(state: str) -> None:
    found = TraceContext.of_headers({"traceparent": PARENT, "tracestate": state})
    assert found is not None
    assert found.state == ""


def test_a_span_of_opentelemetry_is_the_parent_on_the_other_side() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="pip install 'opentelemetry-sdk'")
    from opentelemetry import propagate, trace  # noqa: PLC0415 - an extra

    tracer = sdk.TracerProvider().get_tracer("test")
    headers: dict[str, str] = {}
    with tracer.start_as_current_span("publishes") as publishes:
        propagate.inject(headers)
    sent = TraceContext.of_headers(headers)
    assert sent is not None
    assert sent.is_sampled
    received = TraceContext.of_bytes(sent.to_bytes(), sent.state)
    assert received is not None
    parent = propagate.extract(received.to_headers())
    with tracer.start_as_current_span("reads", context=parent):
        reads = trace.get_current_span()
    assert reads.get_span_context().trace_id == publishes.get_span_context().trace_id
    assert isinstance(reads, sdk.ReadableSpan)
    assert reads.parent is not None
    assert reads.parent.span_id == publishes.get_span_context().span_id
