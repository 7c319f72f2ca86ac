"""Dead letters: values of messages that were given up, under the keys that their senders chose.

The store would not know these keys: they are keys of the program. So before a message is given up, each of its keys is
noted in the row ``("__kvmodels__", "dead", id, position)``, with a digest of the value. A key is a dead letter as long
as it holds this value; a program that deletes or replaces it has dealt with it.

Rules of this module: a note alone means nothing, so it is written before the letter and removed at any time after it.
Each message that is given up removes some notes without a letter, from a random place, so that they do not pile up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import Key, decode_key, encode_key, encode_part, key_successor, prefix_range
from kvmodels.core.operations import AtomicWrite, Check, Delete, Entry, ReadRange, Row, Set, point
from kvmodels.errors import DecodeError
from kvmodels.flows.arguments import require_limit
from kvmodels.flows.effects import Flow, commit, read, read_all, rows_at_once
from kvmodels.flows.kv.store_format import LIBRARY_PART, StoreFormat
from kvmodels.limits import Limits

NOTES_AT_ONCE: Final = 100
"""The number of notes in one commit, and in one read of them."""

EXAMINED: Final = 8
"""The number of notes that are examined, and removed without a letter, when a message is given up."""

_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was never delivered, and is stored under keys of its sender.

    Attributes:
        id: the id that the message had in the queue.
        entries: the keys of ``keys_if_undelivered`` that still hold it, with their versionstamps.
    """

    id: str
    entries: tuple[Entry, ...]

    @property
    def value(self) -> Any:
        """The message."""
        return self.entries[0].value

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys that still hold it."""
        return tuple(entry.key for entry in self.entries)


class _Note(NamedTuple):
    row: Row
    message_id: str
    key: bytes
    digest: bytes


def note_keys(
    form: StoreFormat, message_id: str, keys: Sequence[bytes], value: tuple[bytes, int], *, owned: Check
) -> Flow[None]:
    """Note the keys of a message that is about to be given up; one commit for 100, and two reads of 8 old notes.

    ``owned``: holds as long as the caller has the message; otherwise nothing is noted.
    """
    start = _prefix(form) + encode_part(_place(message_id))
    digest = _digest(*value)
    old = yield from _without_letter(form, start)
    first: list[Delete] = [Delete(note.row.key) for note in old if not note.row.key.startswith(start)]
    notes = [
        Set(start + encode_part(position), *form.codec.encode({"key": key, "digest": digest}))
        for position, key in enumerate(keys)
    ]
    for position in range(0, len(notes), NOTES_AT_ONCE):
        yield from commit(AtomicWrite((owned,), (*first, *notes[position : position + NOTES_AT_ONCE])))
        first = []


def list_dead_letters(form: StoreFormat, limits: Limits, prefix: Key, limit: int) -> Flow[list[DeadLetter]]:
    """Return messages that were given up and whose value is still under a key below ``prefix``."""
    require_limit(limit, "Give the maximum number of messages to list.")
    wanted = form.pack_key(prefix)
    found: dict[str, list[Entry]] = {}
    start, end = prefix_range(_prefix(form))
    while True:
        notes = yield from _notes(form, limits, start, end)
        if not notes:
            break
        start = key_successor(notes[-1].row.key)
        letters = yield from _letters(limits, [note for note in notes if note.key.startswith(wanted)])
        for note, row in letters:
            found.setdefault(note.message_id, []).append(form.entry(row))
        if len(found) > limit:  # the last one may have more keys
            break
    return [DeadLetter(message_id, tuple(entries)) for message_id, entries in list(found.items())[:limit]]


def count_dead_letters(codec: ValueCodec, limits: Limits) -> Flow[int]:
    """Return the number of messages that ``list_dead_letters`` lists without a limit; two reads per 100 notes."""
    form = StoreFormat(codec, None)
    start, end = prefix_range(_prefix(form))
    number, last = 0, None
    while True:
        notes = yield from _notes(form, limits, start, end)
        if not notes:
            return number
        start = key_successor(notes[-1].row.key)
        letters = yield from _letters(limits, notes)
        for message_id, _ in groupby(note.message_id for note, _ in letters):
            number += message_id != last
            last = message_id


def noted_message(rest: Key) -> str | None:
    """Return the id in the key of a note, given its last two parts; None for another key."""
    match rest:
        case (str() as place, int()):
            return _place(place)
        case _:
            return None


def _without_letter(form: StoreFormat, start: bytes) -> Flow[list[_Note]]:
    """Return some notes from a place on, and from the beginning after the last one, whose keys hold no letter."""
    first, end = prefix_range(_prefix(form))
    found = yield from read([ReadRange(start, end, EXAMINED), ReadRange(first, start, EXAMINED)])
    rows = [row for part in found.ranges for row in part][:EXAMINED]
    notes = [_note(form, row) for row in rows]
    result = yield from read([point(note.key) for note in notes])
    return [note for note, rows in zip(notes, result.ranges, strict=True) if not _is_letter(note, rows)]


def _notes(form: StoreFormat, limits: Limits, start: bytes, end: bytes) -> Flow[list[_Note]]:
    found = yield from read([ReadRange(start, end, rows_at_once(limits, NOTES_AT_ONCE))])
    return [_note(form, row) for row in found.ranges[0]]


def _letters(limits: Limits, notes: Sequence[_Note]) -> Flow[list[tuple[_Note, Row]]]:
    """Return the notes whose keys hold the value that was noted, each with its row."""
    ranges = yield from read_all(limits, [point(note.key) for note in notes])
    assert ranges is not None, "there is no guard"
    return [(note, rows[0]) for note, rows in zip(notes, ranges, strict=True) if _is_letter(note, rows)]


def _is_letter(note: _Note, rows: Sequence[Row]) -> bool:
    return any(_digest(row.value, row.encoding) == note.digest for row in rows)


def _note(form: StoreFormat, row: Row) -> _Note:
    content: Any = form.codec.decode(row.value, row.encoding, row.key)
    message_id = noted_message(decode_key(row.key[len(_prefix(form)) :]))
    match content:
        case {"key": bytes() as key, "digest": bytes() as digest} if message_id is not None:
            return _Note(row, message_id, key, digest)
        case _:
            raise DecodeError("a row of the library notes no dead letter", key=decode_key(row.key))


def _digest(value: bytes, encoding: int) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES, salt=encoding.to_bytes(8, "big")).digest()


def _place(message_id: str) -> str:
    # Ids begin with the time. Reversed, they begin at random, so that old notes are examined in no order.
    return message_id[::-1]


def _prefix(form: StoreFormat) -> bytes:
    return form.root + encode_key((LIBRARY_PART, "dead"))


show_public_path(DeadLetter)
