"""The error of all decoders of this package.

Rules of this module: server and client catch this error, and raise an error of their own.
"""

from __future__ import annotations


class WireError(ValueError):
    """Bytes that are not the expected message of KV Connect; the text is a fixed sentence without any of its data."""


class TooManyFieldsError(WireError):
    """A message has more fields than its reader takes."""
