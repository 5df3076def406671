"""Pictures of pages, packed well: text on plain ground takes least room without PNG's filters."""

from __future__ import annotations

import struct
import zlib

HEAD_LENGTH = 33
"""The signature, and the chunk with width, height and depth."""
BYTES_A_PIXEL = 3
RGB_OF_8_BITS = (8, 2)


def packed(png: bytes) -> bytes:
    """Return a picture of Chromium, which is RGB without interlacing, with its rows unfiltered."""
    width, height, *depth = struct.unpack_from(">IIBB", png, 16)
    assert tuple(depth) == RGB_OF_8_BITS
    at, data = HEAD_LENGTH, b""
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    raw, stride = zlib.decompress(data), width * BYTES_A_PIXEL
    above, rows = bytes(stride), b""
    for row in range(height):
        begin = row * (stride + 1)
        above = unfiltered(raw[begin], bytearray(raw[begin + 1 : begin + 1 + stride]), above)
        rows += b"\0" + above
    body = b"IDAT" + zlib.compress(rows, 9)
    end = b"\0\0\0\0IEND\xaeB`\x82"
    crc = struct.pack(">I", zlib.crc32(body))
    return png[:HEAD_LENGTH] + struct.pack(">I", len(body) - 4) + body + crc + end


def unfiltered(kind: int, row: bytearray, above: bytes) -> bytes:
    """Return a row as it is, by the specification of PNG."""
    for place, value in enumerate(row):
        left = row[place - BYTES_A_PIXEL] if place >= BYTES_A_PIXEL else 0
        up = above[place]
        corner = above[place - BYTES_A_PIXEL] if place >= BYTES_A_PIXEL else 0
        row[place] = (value + (0, left, up, (left + up) // 2, paeth(left, up, corner))[kind]) & 0xFF
    return bytes(row)


def paeth(left: int, up: int, corner: int) -> int:
    """Return the neighbour that is nearest to what they promise together."""
    promised = left + up - corner
    return min((left, up, corner), key=lambda each: abs(promised - each))
