"""Frames: cutting a byte stream into MessagePack maps, without I/O (docs/reference/protocol.md, "Frames").

A frame is a u32 big-endian length, 1 to 8 MiB, then that many bytes. `FrameBuffer` is fed in any pieces; a length it
cannot accept is refused from the four bytes alone, before anything is kept for it.
"""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from relayd.protocol.errors import FieldDetail, InvalidRequestError, SizeDetail, TooLargeError
from relayd.protocol.limits import FRAME_BYTES_MAX

LENGTH: Final = struct.Struct(">I")
LENGTH_BYTES: Final = LENGTH.size

_encode_into: Final = msgspec.msgpack.Encoder().encode_into


class FrameBuffer:
    """Collects received bytes and cuts them into frames.

    After an error framing is lost: the connection is answered with it under id 0, and closed.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def __len__(self) -> int:
        """Bytes kept of a frame that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Adds `data` and yields every frame that is now complete, without its length.

        Raises InvalidRequestError (a length of 0) or TooLargeError at the first length that no frame has; frames
        before it have been yielded.
        """
        buffer = self._buffer
        buffer += data
        offset, end = 0, len(buffer)
        try:
            while end - offset >= LENGTH_BYTES:
                (length,) = LENGTH.unpack_from(buffer, offset)
                check_length(length)
                start = offset + LENGTH_BYTES
                if end - start < length:
                    break
                offset = start + length
                yield bytes(memoryview(buffer)[start:offset])
        finally:
            del buffer[:offset]


def check_length(length: int) -> None:
    """Refuses a frame's length outside 1 to 8 MiB."""
    if length == 0:
        message = "a frame said its length is 0; a frame is a length of at least 1 and that many bytes of MessagePack"
        raise InvalidRequestError(message, FieldDetail("length", f"1 to {FRAME_BYTES_MAX}"))
    if length > FRAME_BYTES_MAX:
        message = (
            f"a frame said its length is {length} bytes; at most {FRAME_BYTES_MAX} are taken."
            " If this is no relayd client, it speaks to the wrong socket"
        )
        raise TooLargeError(message, SizeDetail(FRAME_BYTES_MAX, length))


def encode_frame(message: msgspec.Struct) -> bytearray:
    """The whole frame of a message, length included.

    Raises TooLargeError where the message has more bytes than a frame may.
    """
    frame = bytearray(LENGTH_BYTES)
    _encode_into(message, frame, LENGTH_BYTES)
    length = len(frame) - LENGTH_BYTES
    if length > FRAME_BYTES_MAX:
        raise TooLargeError(
            f"the message has {length} bytes; a frame carries at most {FRAME_BYTES_MAX}: send fewer events at once",
            SizeDetail(FRAME_BYTES_MAX, length),
        )
    LENGTH.pack_into(frame, 0, length)
    return frame
