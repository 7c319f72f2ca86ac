"""The SQLite file of a Deno program, read as lines of the format ``deno``, and lines for the messages of its queue.

Entries come in the order of their versionstamps. A message is a line with ``ready_at``, which only ``load_deno`` reads.

Rules of this module: the file is never written. All rows are read in one transaction, beside programs that use it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from typing import Any, Final, Self
from urllib.parse import quote

from kvmodels.api.dump_files import CHUNK_BYTES, path_text
from kvmodels.api.opening import store_format
from kvmodels.codecs.deno_json import deno_form
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Row, to_versionstamp
from kvmodels.errors import (
    DecodeError,
    EngineError,
    ForeignFileError,
    InvalidKeyError,
    InvalidValueError,
    UnsupportedError,
)
from kvmodels.flows.kv.deno_dump import deno_line
from kvmodels.flows.kv.dump_frame import dump_line
from kvmodels.flows.kv.store_format import StoreFormat

KNOWN_VERSION: Final = 3
"""The version of the tables, since Deno 1.33."""

SQLITE_MAGIC: Final = b"SQLite format 3\0"

_VERSION: Final = "SELECT max(version) FROM migration_state"
_ENTRIES: Final = "SELECT k, v, v_encoding, version, expiration_ms FROM kv ORDER BY version, k"
_MESSAGES: Final = """
    SELECT id, ts, data, backoff_schedule, keys_if_undelivered FROM queue
    UNION ALL SELECT id, deadline, data, backoff_schedule, keys_if_undelivered FROM queue_running
"""


class DenoFileReader:
    """Reads the file of a Deno program; use it in a ``with`` statement."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._form = store_format("v8")
        self._path = os.path.abspath(path_text(path))
        if not os.path.isfile(self._path):
            raise EngineError("there is no such file", reason=self._path, hint="Give the path of Deno.openKv(path).")
        # One thread at a time uses it, but not always the same one.
        self._file = sqlite3.connect(
            f"file:{quote(self._path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            self._lines = self._begun()
        except sqlite3.Error as error:
            self._file.close()
            raise ForeignFileError(
                "this is not a file of Deno KV",
                url=self._path,
                reason=str(error),
                hint="Give the path that the program of Deno has passed to Deno.openKv().",
            ) from error
        except UnsupportedError:
            self._file.close()
            raise

    def read(self) -> list[str]:
        """Return the next lines, about 1 MiB; an empty list at the end."""
        lines: list[str] = []
        size = 0
        try:
            while size < CHUNK_BYTES and (line := next(self._lines, None)) is not None:
                lines.append(line)
                size += len(line)
        except sqlite3.Error as error:
            raise DecodeError("the file of Deno cannot be read", reason=f"{self._path}: {error}") from error
        except InvalidValueError as error:
            error.hint = _CHANGE_IT  # no other format of a dump is open to the user here
            raise
        return lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _begun(self) -> Iterator[str]:
        self._file.execute("BEGIN")
        [(version,)] = self._file.execute(_VERSION).fetchall()
        if version != KNOWN_VERSION:
            raise UnsupportedError(
                "the file has tables of another version of Deno",
                url=self._path,
                reason=f"version {version}, known is {KNOWN_VERSION}",
                hint="Open it once with a present version of Deno.",
            )
        return self._read(self._file.execute(_ENTRIES), self._file.execute(_MESSAGES))

    def _read(self, entries: sqlite3.Cursor, messages: sqlite3.Cursor) -> Iterator[str]:
        for key, value, encoding, version, deadline in entries:
            expire_at = None if deadline < 0 else deadline
            yield _entry_line(self._form, Row(key, value, encoding, to_versionstamp(version), expire_at))
        for message_id, ready_ms, data, backoff, undelivered in messages:
            content: dict[str, Any] = {
                "id": message_id,
                "ready_at": ready_ms,
                "backoff": json.loads(backoff),
                "undelivered": [bytes(key).hex() for key in json.loads(undelivered)],
                "value": deno_form(self._form.codec.decode(data, _V8, b"")),
            }
            yield dump_line(content)


_CHANGE_IT: Final = "Change or delete this value in the Deno program, then load the file again; nothing was loaded."
_V8: Final = 1
"""Deno stores every message in this encoding."""


def _entry_line(form: StoreFormat, row: Row) -> str:
    try:
        key = decode_key(row.key)
    except InvalidKeyError as error:
        raise DecodeError("a key of the file of Deno cannot be read", key=row.key, reason=str(error)) from error
    return deno_line(form, row, key, is_record=False)
