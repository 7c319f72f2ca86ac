"""Namespaces: str keys and values in a confined part of the store.

A namespace is the part of the store below ``("__kvmodels__", "ns", name)``; a nested namespace is below the same three
parts once more. The key ``text`` is the key ``(text,)`` of that part, so the complete key-value API can use it too.

Rules of this module: a confined ``StoreFormat`` packs every key, so no name or key can leave the namespace. None is
refused as a value, so that it always means absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, cast

from kvmodels.core.keys import decode_key, encode_key, encode_part, escape, key_successor, prefix_range, skip_parts
from kvmodels.core.operations import AtomicWrite, Check, Delete, ReadRange, Set
from kvmodels.errors import DecodeError, InvalidArgumentError, InvalidKeyError, InvalidValueError, RetriesExhaustedError
from kvmodels.flows.arguments import lifetime_ms, require_text
from kvmodels.flows.effects import Flow, commit, read, read_row
from kvmodels.flows.kv.operations import PendingWrite, ValueUpdate, commit_operation, get_entry
from kvmodels.flows.kv.operations import update_value as updating
from kvmodels.flows.kv.store_format import LIBRARY_PART, StoreFormat
from kvmodels.flows.writing.changes import Keep
from kvmodels.limits import Limits

ATTEMPTS: Final = 50
"""How often a comparison is repeated because the same value was rewritten meanwhile."""

AT_ONCE: Final = 1_000
"""Keys that are listed or removed with one request."""


def namespace_form(form: StoreFormat, name: str, limits: Limits | None) -> StoreFormat:
    """Return the format of the namespace with this name. Raises InvalidArgumentError."""
    require_text("name", name, "Give a str that is not empty, without lone surrogates.")
    if limits is not None and not isinstance(cast("object", limits), Limits):
        raise InvalidArgumentError(
            "limits must be a Limits object",
            argument="limits",
            value=limits,
            hint="Pass Limits.MATTERMOST, or other Limits.",
        )
    reserved: dict[str, str] | None = None if form.reserved is None else {}
    return form.confined((LIBRARY_PART, "ns", name), reserved, limits)


def get_value(form: StoreFormat, limits: Limits, key: str) -> Flow[Any]:
    """Return the value of a key, None when it is absent; one request."""
    _require_key(key)
    return (yield from get_entry(form, limits, (key,))).value


def set_value(form: StoreFormat, limits: Limits, key: str, value: Any, expire_in: object) -> Flow[None]:
    """Store a value; one commit."""
    yield from commit_operation(form, limits, _setting(form, key, value, expire_in))


def delete_value(form: StoreFormat, limits: Limits, key: str) -> Flow[None]:
    """Remove a key if it is there; one commit."""
    yield from commit_operation(form, limits, PendingWrite(mutations=(Delete(_pack(form, key)),)))


def compare_and_set(
    form: StoreFormat, limits: Limits, key: str, old: Any, new: Any, *, expire_in: float | timedelta | Keep | None
) -> Flow[bool]:
    """Store ``new`` if the key holds ``old``, or is absent and ``old`` is None; return whether it was stored."""
    keep = isinstance(expire_in, Keep)
    pending = _setting(form, key, new, None if keep else expire_in)
    return (yield from _compare_and_commit(form, limits, old, pending, keep_deadline=keep))


def compare_and_delete(form: StoreFormat, limits: Limits, key: str, old: Any) -> Flow[bool]:
    """Remove a key if it holds ``old``, which is never true for None; return whether it was removed."""
    mutation = Delete(_pack(form, key))
    if old is None:
        return False
    return (yield from _compare_and_commit(form, limits, old, PendingWrite(mutations=(mutation,))))


def update_value(
    form: StoreFormat,
    limits: Limits,
    key: str,
    function: Callable[[Any], Any],
    *,
    expire_in: float | timedelta | Keep | None,
) -> Flow[Any]:
    """Replace a value by what a function makes of it, None for an absent one, and return the new one."""
    return (yield from updating(form, limits, _pack(form, key), ValueUpdate(function, None, True, expire_in)))


def _compare_and_commit(
    form: StoreFormat, limits: Limits, old: Any, pending: PendingWrite, *, keep_deadline: bool = False
) -> Flow[bool]:
    mutation = pending.mutations[0]
    key = mutation.key
    expected = None if old is None else form.codec.encode(old)
    for _ in range(ATTEMPTS):
        row = yield from read_row(key)
        if (None if row is None else (row.value, row.encoding)) != expected:
            return False
        check = Check(key, None if row is None else row.versionstamp)
        if keep_deadline and isinstance(mutation, Set):
            # In each attempt: another writer may have stored the same value with another deadline.
            mutation = mutation._replace(expire_at=None if row is None else row.expire_at)
        result = yield from commit_operation(form, limits, pending._replace(checks=(check,), mutations=(mutation,)))
        if result.ok:
            return True
        # Rewritten meanwhile, possibly with the same value: only another read can tell.
    raise RetriesExhaustedError(
        "the value was written again and again while it was compared",
        attempts=ATTEMPTS,
        failed_checks=(form.unpack_key(key),),
        hint="Try again later, or write less often.",
    )


def list_keys(form: StoreFormat, limits: Limits, page: int, per_page: int, prefix: str) -> Flow[list[str]]:
    """Return one page of the text keys that begin with ``prefix``, in order; a request for each thousand skipped."""
    _require_count("page", page, 0)
    _require_count("per_page", per_page, 1)
    start = _text_prefix(form, prefix)
    end = start + b"\xff"  # not a byte of UTF-8, and above the end of a str part and the escape of a NUL
    to_skip, keys = page * per_page, list[str]()
    while len(keys) < per_page and start < end:
        wanted = min(AT_ONCE, to_skip + per_page - len(keys), limits.max_read_entries)
        found = yield from read([ReadRange(start, end, wanted, keys_only=True)])
        rows = found.ranges[0]
        last: bytes | None = None
        for row in rows:
            last = row.key
            text_end = len(form.root) + skip_parts(row.key[len(form.root) :], 1)
            if text_end < len(row.key):
                # Keys with more parts, written through ``ns.kv``: the next str key is after all of them.
                last = row.key[:text_end] + b"\xff"
                break
            if to_skip:
                to_skip -= 1
            else:
                keys.append(str(decode_key(row.key[len(form.root) :])[0]))
        if last is None:
            break
        start = key_successor(last)
    return keys


def delete_all(form: StoreFormat, limits: Limits) -> Flow[int]:
    """Remove every key of the namespace except those of the library; return their number."""
    low, high = prefix_range(form.root)
    library = form.root + encode_part(LIBRARY_PART)
    fitting = limits.max_operation_bytes // limits.max_key_bytes
    wanted = max(1, min(AT_ONCE, limits.max_mutations, limits.max_read_entries, fitting))
    removed = 0
    for start, end in ((low, library), (library + b"\xff", high)):
        while True:
            found = yield from read([ReadRange(start, end, wanted, keys_only=True)])
            rows = found.ranges[0]
            if rows:
                yield from commit(AtomicWrite(mutations=tuple(Delete(row.key) for row in rows)))
                removed += len(rows)
                start = key_successor(rows[-1].key)
            if len(rows) < wanted:
                break
    return removed


def pack_json(value: Any) -> bytes:
    """Return a value as JSON bytes with sorted keys, so equal values have equal bytes. Raises InvalidValueError."""
    _require_value(value)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(
            "this value cannot be written as JSON",
            type=type(value).__name__,
            hint="Give None, bool, int, float, str, and lists and dicts with str keys of them; NaN is none of these.",
        ) from error


def unpack_json(key: str, value: Any) -> Any:
    """Return the value of JSON text or bytes, None for None. Raises DecodeError if it is not JSON."""
    if value is None:
        return None
    try:
        if not isinstance(value, (bytes, str)):
            raise TypeError("neither bytes nor text")
        return json.loads(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise DecodeError(
            "a value is not JSON",
            key=(key,),
            reason=str(error),
            hint="It was stored by set, not by set_json: read it with get.",
        ) from error


def _setting(form: StoreFormat, key: str, value: Any, expire_in: object) -> PendingWrite:
    packed = _pack(form, key)
    _require_value(value)
    lifetimes = {} if expire_in is None else {0: lifetime_ms(expire_in)}
    return PendingWrite((), (Set(packed, *form.codec.encode(value)),), lifetimes)


def _pack(form: StoreFormat, key: str) -> bytes:
    _require_key(key)
    return form.pack_written_key((key,))


def _require_key(key: object) -> None:
    # A lone surrogate would be stored as U+FFFD, and two keys would become one.
    if not isinstance(key, str) or not key or any("\ud800" <= character <= "\udfff" for character in key):
        raise InvalidKeyError(
            "a key of a namespace must be a str that is not empty",
            type=type(key).__name__,
            hint="Give a str without lone surrogates; keys of several parts are written through namespace.kv.",
        )


def _require_value(value: object) -> None:
    if value is None:
        raise InvalidValueError(
            "a namespace cannot store None, which means that a key is absent",
            type="NoneType",
            hint="Use delete or compare_and_delete, or store an empty value.",
        )


def _require_count(argument: str, value: object, smallest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
        raise InvalidArgumentError(
            "page and per_page must be whole numbers",
            argument=argument,
            value=value,
            hint="page is 0 or more, per_page 1 or more.",
        )


def _text_prefix(form: StoreFormat, prefix: object) -> bytes:
    if not isinstance(prefix, str) or any("\ud800" <= character <= "\udfff" for character in prefix):
        raise InvalidArgumentError(
            "a prefix of keys must be a str", argument="prefix", value=prefix, hint="Give a str."
        )
    return form.root + encode_key(("",))[:-1] + escape(prefix.encode())


def namespace_path(form: StoreFormat) -> tuple[str, ...]:
    """Return the names of a namespace and of all that contain it, outermost first."""
    return tuple(str(part) for part in decode_key(form.root)[2::3])
