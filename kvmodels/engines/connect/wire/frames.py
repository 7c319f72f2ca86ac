"""The stream of a watch: frames that begin with their length, and pings, which are frames without content.

Rules of this module: it holds no connection; its caller passes on the bytes as they arrive.
"""

from __future__ import annotations

from typing import Final

from kvmodels.engines.connect.wire.errors import WireError

PING: Final = bytes(4)
"""The frame that a server sends while nothing changes."""

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The largest frame that Deno's client accepts."""


def encode_frame(payload: bytes) -> bytes:
    """Return a frame with this content."""
    return len(payload).to_bytes(4, "little") + payload


class FrameReader:
    """Takes the bytes of a stream as they arrive, and returns the frames that are complete.

    Examples:
        >>> reader = FrameReader()
        >>> reader.feed(encode_frame(b"one") + PING + encode_frame(b"two")[:5])
        [b'one', b'']
        >>> reader.feed(b"wo")
        [b'two']
    """

    __slots__ = ("_received",)

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the contents of the frames that these bytes complete; a ping is an empty one.

        Raises:
            WireError: a frame is larger than ``MAX_FRAME_BYTES``.
        """
        received = self._received
        received += data
        found: list[bytes] = []
        at = 0
        while len(received) - at >= 4:
            length = int.from_bytes(received[at : at + 4], "little")
            if length > MAX_FRAME_BYTES:
                raise WireError("a frame is too large")
            if len(received) - at - 4 < length:
                break
            found.append(bytes(received[at + 4 : at + 4 + length]))
            at += 4 + length
        del received[:at]
        return found
