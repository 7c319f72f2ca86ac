"""The encoding of keys: ``kvmodels.keys.encode_key`` and ``decode_key``.

Rules of this module: it only provides a stable import path; ``kvmodels.core.keys`` defines the names.
"""

from __future__ import annotations

from kvmodels.core.keys import COMMIT_VERSIONSTAMP, Key, KeyPart, decode_key, encode_key

__all__ = ["COMMIT_VERSIONSTAMP", "Key", "KeyPart", "decode_key", "encode_key"]
