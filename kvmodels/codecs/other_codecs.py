"""The codec v8, which needs a package, and the codec for the encoding of a single value.

Rules of this module: pure. A codec is loaded when it is needed.
"""

from __future__ import annotations

from kvmodels.codecs.base import MSGPACK_ENCODING, V8_ENCODING
from kvmodels.codecs.msgpack import MsgpackCodec, ValueCodec
from kvmodels.codecs.v8 import codec as v8
from kvmodels.errors import UnsupportedError


def v8_codec() -> ValueCodec:
    """Return the codec v8. Raises UnsupportedError without its package."""
    try:
        return v8.V8Codec()
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "v8serialize":
            raise
        raise UnsupportedError(
            "the codec v8 needs a package that is not installed",
            reason="v8serialize",
            hint="Install it: pip install 'kvmodels[v8-codec]'.",
        ) from missing


def codec_of(encoding: int, usual: ValueCodec) -> ValueCodec:
    """Return the codec that decodes an encoding: the usual one if it can, otherwise another one."""
    if encoding == V8_ENCODING and usual.name != "v8":
        return v8_codec()
    if encoding == MSGPACK_ENCODING and usual.name != "msgpack":
        return MsgpackCodec()
    return usual
