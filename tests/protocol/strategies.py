"""Every legal frame, for hypothesis."""

from __future__ import annotations

from typing import Final, TypeAlias

from hypothesis import strategies as st

from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.datagram import ControlFrame, DataFrame
from aeron_async.protocol.error import ERROR_MAX_TEXT_LENGTH, ErrorFrame
from aeron_async.protocol.header import (
    DataFlags,
    ErrorFlags,
    FrameType,
    RttFlags,
    SetupFlags,
    StatusMessageFlags,
    align_frame,
)
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import ResponseSetup, Setup
from aeron_async.protocol.status_message import StatusMessage

Codec: TypeAlias = ControlFrame | DataHeader | DataFrame

INT32: Final = st.integers(min_value=-(2**31), max_value=2**31 - 1)
INT64: Final = st.integers(min_value=-(2**63), max_value=2**63 - 1)
BYTE: Final = st.integers(min_value=0, max_value=255)
TRAILING: Final = st.binary(max_size=20)
IDENTITY: Final = {"session_id": INT32, "stream_id": INT32}

setups = st.builds(
    Setup,
    **IDENTITY,
    term_offset=INT32,
    initial_term_id=INT32,
    active_term_id=INT32,
    term_length=INT32,
    mtu_length=INT32,
    ttl=INT32,
    flags=BYTE.map(SetupFlags),
    trailing=TRAILING,
)
_SM_FIELDS: Final = {
    **IDENTITY,
    "consumption_term_id": INT32,
    "consumption_term_offset": INT32,
    "receiver_window": INT32,
    "receiver_id": INT64,
    "flags": BYTE.map(StatusMessageFlags),
}
status_messages = st.builds(StatusMessage, **_SM_FIELDS, group_tag=st.none() | INT64) | st.builds(
    StatusMessage, **_SM_FIELDS, feedback=TRAILING.filter(lambda feedback: len(feedback) != 8)
)
naks = st.builds(
    Nak,
    **IDENTITY,
    term_id=INT32,
    term_offset=INT32,
    length=INT32,
    flags=BYTE,
    trailing=TRAILING,
)
rtt_measurements = st.builds(
    RttMeasurement,
    **IDENTITY,
    echo_timestamp_ns=INT64,
    reception_delta_ns=INT64,
    receiver_id=INT64,
    flags=BYTE.map(RttFlags),
    trailing=TRAILING,
)
errors = st.builds(
    ErrorFrame,
    **IDENTITY,
    receiver_id=INT64,
    group_tag=INT64,
    error_code=INT32,
    message=st.binary(max_size=100)
    | st.binary(min_size=ERROR_MAX_TEXT_LENGTH, max_size=ERROR_MAX_TEXT_LENGTH),
    flags=BYTE.map(ErrorFlags),
    trailing=TRAILING,
)
response_setups = st.builds(
    ResponseSetup, **IDENTITY, response_session_id=INT32, flags=BYTE, trailing=TRAILING
)
control_frames: st.SearchStrategy[ControlFrame] = st.one_of(
    setups, status_messages, naks, rtt_measurements, errors, response_setups
)


def data_headers(
    frame_lengths: st.SearchStrategy[int], frame_types: st.SearchStrategy[FrameType]
) -> st.SearchStrategy[DataHeader]:
    return st.builds(
        DataHeader,
        **IDENTITY,
        frame_length=frame_lengths,
        term_offset=INT32,
        term_id=INT32,
        reserved_value=INT64,
        flags=BYTE.map(DataFlags),
        frame_type=frame_types,
    )


any_data_headers = data_headers(
    st.integers(min_value=0, max_value=2**31 - 1), st.sampled_from([FrameType.PAD, FrameType.DATA])
)


@st.composite
def data_frames(draw: st.DrawFn) -> DataFrame:
    lengths = st.integers(min_value=32, max_value=200)
    header = draw(data_headers(lengths, st.just(FrameType.DATA)))
    body_length = align_frame(header.frame_length) - 32
    return DataFrame(header, draw(st.binary(min_size=body_length, max_size=body_length)))


@st.composite
def pad_frames(draw: st.DrawFn) -> DataFrame:
    lengths = st.integers(min_value=32, max_value=2**31 - 32)
    return DataFrame(draw(data_headers(lengths, st.just(FrameType.PAD))))


heartbeats = st.builds(DataFrame, data_headers(st.just(0), st.just(FrameType.DATA)))

data_datagrams: st.SearchStrategy[list[DataFrame]] = (
    st.builds(
        lambda some, pad: some + pad,
        st.lists(data_frames(), min_size=1, max_size=5),
        st.lists(pad_frames(), max_size=1),
    )
    | st.lists(pad_frames(), min_size=1, max_size=1)
    | st.lists(heartbeats, min_size=1, max_size=1)
)
