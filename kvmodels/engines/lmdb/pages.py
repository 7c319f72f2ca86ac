"""Whether the data file of an LMDB folder was cut short, before LMDB maps it.

LMDB reads the file through a memory map, so a page behind the end of the file ends the process with SIGBUS. A whole
file may be a little shorter than its number of pages says, because LMDB does not write pages that were freed in the
commit that allocated them (2 of 3,000 random commits). So if a file is shorter, the pages in use are visited without
the map.

    page        number u64, pad u16, flags u16, lower u16, upper u16 (or the number of overflow pages, u32), offsets u16
    node        low u16, high u16, flags u16, size of the key u16, key, data
    tree        pad u32, flags u16, depth u16, three counts u64, entries u64, root u64

Rules of this module: it is called while this process has no environment of the folder open, because closing the file
would drop its locks. A file that changes meanwhile belongs to a process that has it open, and passes.

Source: ``mdb.c`` of LMDB 0.9, ``MDB_meta``, ``MDB_db``, ``MDB_page`` and ``MDB_node``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("=QHHHH")
_NODE: Final = struct.Struct("=HHHH")
_TREE: Final = struct.Struct("=IHHQQQQQ")
_META: Final = struct.Struct("=IIQQ" + 2 * "IHHQQQQQ" + "QQ")
_META_MAGIC: Final = 0xBEEFC0DE
_BRANCH, _LEAF, _LEAF2 = 0x01, 0x02, 0x20
_BIG_DATA, _SUB_DATA = 0x01, 0x02
_NO_PAGE: Final = 2**64 - 1
_CHANGED_AT_MOST: Final = 3


class _Meta(NamedTuple):
    """The newer of the two first pages."""

    transaction: int
    page_size: int
    last_page: int
    roots: tuple[int, int]


def is_cut_short(path: str) -> bool:
    """Return whether a page that is in use lies behind the end of the file."""
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        for _ in range(_CHANGED_AT_MOST):
            meta = _meta(descriptor)
            if meta is None or (meta.last_page + 1) * meta.page_size <= os.fstat(descriptor).st_size:
                return False  # no database, which LMDB says itself, or a whole one
            cut = _reaches_beyond(descriptor, meta)
            if _meta(descriptor) == meta:
                return cut
    return False


def _meta(descriptor: int) -> _Meta | None:
    """Return the newer of the two first pages; None if the file is no database."""
    first = _meta_at(descriptor, 0)
    second = None if first is None else _meta_at(descriptor, first.page_size)
    return first if first is None or second is None else max(first, second)


def _meta_at(descriptor: int, start: int) -> _Meta | None:
    page = os.pread(descriptor, _META.size, start + _HEADER.size)
    if len(page) < _META.size:
        return None
    magic, _, _, _, page_size, *rest, last_page, transaction = _META.unpack(page)
    if magic != _META_MAGIC or page_size == 0:
        return None
    return _Meta(transaction, page_size, last_page, (rest[6], rest[-1]))


def _reaches_beyond(descriptor: int, meta: _Meta) -> bool:
    """Return whether a page of the trees lies behind the end of the file."""
    size = os.fstat(descriptor).st_size
    waiting = [root for root in meta.roots if root != _NO_PAGE]
    while waiting:
        number = waiting.pop()
        start = number * meta.page_size
        if start + meta.page_size > size:
            return True
        page = os.pread(descriptor, meta.page_size, start)
        if len(page) < meta.page_size:
            return True
        for more, count in _named(page):
            if count is None:
                waiting.append(more)
            elif more * meta.page_size + _HEADER.size + count > size:
                return True
    return False


def _named(page: bytes) -> Iterator[tuple[int, int | None]]:
    """Yield the pages that a page names; with the size of the value for overflow pages, which name no others."""
    _, _, flags, lower, _ = _HEADER.unpack_from(page)
    if not flags & (_BRANCH | _LEAF) or flags & _LEAF2:
        return
    for place in range(_HEADER.size, lower, 2):
        (node,) = struct.unpack_from("=H", page, place)
        low, high, node_flags, key_size = _NODE.unpack_from(page, node)
        if flags & _BRANCH:
            yield low | high << 16 | node_flags << 32, None
            continue
        data = node + _NODE.size + key_size
        if node_flags & _BIG_DATA:
            yield struct.unpack_from("=Q", page, data)[0], low | high << 16
        elif node_flags & _SUB_DATA:
            root = _TREE.unpack_from(page, data)[-1]
            if root != _NO_PAGE:
                yield root, None
