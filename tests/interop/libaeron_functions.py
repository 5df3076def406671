"""The functions of the official C client that the tests call: where they are, what they take.

Source: `aeronc.h` of Aeron 1.53.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import CDLL, CFUNCTYPE, POINTER, Structure
from ctypes import c_bool as boolean
from ctypes import c_char_p as text
from ctypes import c_int as result
from ctypes import c_int16 as int16
from ctypes import c_int32 as int32
from ctypes import c_int64 as int64
from ctypes import c_size_t as size
from ctypes import c_uint8 as uint8
from ctypes import c_uint16 as uint16
from ctypes import c_uint64 as uint64
from ctypes import c_void_p as pointer
from ctypes.util import find_library
from functools import cache
from pathlib import Path
from typing import Final

import pytest

LIBRARY: Final = "libaeron.so"

ErrorHandler = CFUNCTYPE(None, pointer, result, text)
ErrorFrameHandler = CFUNCTYPE(None, pointer, pointer)
ImageHandler = CFUNCTYPE(None, pointer, pointer, pointer)
FragmentHandler = CFUNCTYPE(None, pointer, pointer, size, pointer)
CounterHandler = CFUNCTYPE(None, int64, int32, int32, pointer, size, pointer, size, pointer)


class PublicationConstants(Structure):
    """`aeron_publication_constants_t`."""

    _fields_ = (
        ("channel", text),
        ("original_registration_id", int64),
        ("registration_id", int64),
        ("max_possible_position", int64),
        ("position_bits_to_shift", size),
        ("term_buffer_length", size),
        ("max_message_length", size),
        ("max_payload_length", size),
        ("stream_id", int32),
        ("session_id", int32),
        ("initial_term_id", int32),
        ("publication_limit_counter_id", int32),
        ("channel_status_indicator_id", int32),
    )


class SubscriptionConstants(Structure):
    """`aeron_subscription_constants_t`."""

    _fields_ = (
        ("channel", text),
        ("on_available_image", pointer),
        ("on_unavailable_image", pointer),
        ("registration_id", int64),
        ("stream_id", int32),
        ("channel_status_indicator_id", int32),
    )


class ImageConstants(Structure):
    """`aeron_image_constants_t`."""

    _fields_ = (
        ("subscription", pointer),
        ("source_identity", text),
        ("correlation_id", int64),
        ("join_position", int64),
        ("position_bits_to_shift", size),
        ("term_buffer_length", size),
        ("mtu_length", size),
        ("session_id", int32),
        ("initial_term_id", int32),
        ("subscriber_position_id", int32),
    )


class ErrorFrameValues(Structure):
    """`aeron_publication_error_values_t`, but for the text that follows."""

    _pack_ = 4
    _fields_ = (
        ("registration_id", int64),
        ("destination_registration_id", int64),
        ("session_id", int32),
        ("stream_id", int32),
        ("receiver_id", int64),
        ("group_tag", int64),
        ("address_type", int16),
        ("source_port", uint16),
        ("source_address", uint8 * 16),
        ("error_code", int32),
        ("error_message_length", int32),
    )


_OUT: Final = POINTER(pointer)
_ADD: Final = (result, (_OUT, pointer, text, int32))
_POLL: Final = (result, (_OUT, pointer))
_CLOSE: Final = (result, (pointer, pointer, pointer))
_DESTINATION: Final = (result, (_OUT, pointer, pointer, text))
_PUBLICATION: Final = {
    "offer": (int64, (pointer, text, size, pointer, pointer)),
    "is_connected": (boolean, (pointer,)),
    "position": (int64, (pointer,)),
    "position_limit": (int64, (pointer,)),
    "constants": (result, (pointer, POINTER(PublicationConstants))),
    "async_add_destination": _DESTINATION,
    "async_remove_destination": _DESTINATION,
    "async_destination_poll": (result, (pointer,)),
    "close": _CLOSE,
}
_FUNCTIONS: Final = {
    "errmsg": (text, ()),
    "context_init": (result, (_OUT,)),
    "context_set_dir": (result, (pointer, text)),
    "context_set_error_handler": (result, (pointer, ErrorHandler, pointer)),
    "context_set_publication_error_frame_handler": (result, (pointer, ErrorFrameHandler, pointer)),
    "context_set_idle_sleep_duration_ns": (result, (pointer, uint64)),
    "context_close": (result, (pointer,)),
    "init": (result, (_OUT, pointer)),
    "start": (result, (pointer,)),
    "close": (result, (pointer,)),
    "counters_reader": (pointer, (pointer,)),
    "counters_reader_foreach_counter": (None, (pointer, CounterHandler, pointer)),
    "async_add_publication": _ADD,
    "async_add_publication_poll": _POLL,
    "async_add_exclusive_publication": _ADD,
    "async_add_exclusive_publication_poll": _POLL,
    **{f"publication_{name}": types for name, types in _PUBLICATION.items()},
    **{f"exclusive_publication_{name}": types for name, types in _PUBLICATION.items()},
    "exclusive_publication_revoke": _CLOSE,
    "async_add_subscription": (
        result,
        (_OUT, pointer, text, int32, ImageHandler, pointer, ImageHandler, pointer),
    ),
    "async_add_subscription_poll": _POLL,
    "subscription_poll": (result, (pointer, pointer, pointer, size)),
    "subscription_constants": (result, (pointer, POINTER(SubscriptionConstants))),
    "subscription_is_connected": (boolean, (pointer,)),
    "subscription_image_count": (result, (pointer,)),
    "subscription_image_at_index": (pointer, (pointer, size)),
    "subscription_async_add_destination": _DESTINATION,
    "subscription_async_remove_destination": _DESTINATION,
    "subscription_async_destination_poll": (result, (pointer,)),
    "subscription_close": _CLOSE,
    "image_constants": (result, (pointer, POINTER(ImageConstants))),
    "image_position": (int64, (pointer,)),
    "image_is_end_of_stream": (boolean, (pointer,)),
    "image_is_publication_revoked": (boolean, (pointer,)),
    "image_active_transport_count": (result, (pointer,)),
    "image_reject": (result, (pointer, text)),
    "image_release": (result, (pointer,)),
    "fragment_assembler_create": (result, (_OUT, FragmentHandler, pointer)),
    "fragment_assembler_delete": (result, (pointer,)),
}


def find() -> str | None:
    """The library beside the programs, in the `lib` folder beside theirs, or the system's."""
    folders = (os.environ.get("AERON_BIN", ""), os.environ.get("PATH", ""))
    for folder in os.pathsep.join(folders).split(os.pathsep):
        for path in (Path(folder, LIBRARY), Path(folder, "..", "lib", LIBRARY)):
            if folder and path.is_file():
                return str(path.resolve())
    return find_library("aeron")


@cache
def load(path: str) -> CDLL:
    """Load the library and tell ctypes what its functions take."""
    library = ctypes.CDLL(path)
    for name, (answer, arguments) in _FUNCTIONS.items():
        function = getattr(library, f"aeron_{name}")
        function.restype = answer
        function.argtypes = arguments
    return library


def require_library() -> CDLL:
    """Load the library; skip when it is not to be found."""
    path = find()
    if path is None:
        pytest.skip(f"{LIBRARY} not found in or beside AERON_BIN or PATH, nor by the loader")
    return load(path)
