"""Keys of a part of a store: the prefix is added to requests, and removed from answers.

Rules of this module: a request is translated into values of the same kinds, so that an engine recognises the follow-up
reads that it can answer in one step. An answer keeps its kinds too: rows, or plain tuples. Many keys are translated in
calls of C functions, which cost a row nothing in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, cast, overload

from kvmodels.core.keys import key_parts
from kvmodels.core.operations import (
    Arithmetic,
    AtomicWrite,
    Change,
    Changes,
    Check,
    Delete,
    Follow,
    Guard,
    Guess,
    MultiRangeFollow,
    Mutation,
    PredictedFollow,
    ReadRange,
    ReadResult,
    Removal,
    Row,
    Set,
    SuffixFollow,
    after_prefix,
    as_plain_rows,
)
from kvmodels.errors import InvalidValueError, OperationTooLargeError
from kvmodels.limits import Limits

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor

_row_of: Final[Callable[[Any], Row]] = partial(_new, Row)
_set_of: Final[Callable[[Any], Set]] = partial(_new, Set)
_check_of: Final[Callable[[Any], Check]] = partial(_new, Check)
_key_of: Final[Callable[[Any], bytes]] = attrgetter("key")
_SETS: Final = {Set}

_FEWEST: Final = 3
"""The least number of rows, checks or mutations that are translated together."""

MOST_PREDICTIONS: Final = 256
"""Translated predictions that are kept; a view has one for each unique index that it looks up."""


class _LazyRows(Sequence[Any]):
    """Rows without the prefix, each made when it is asked for."""

    __slots__ = ("_inner", "_row")

    def __init__(self, rows: Sequence[Any], row: Callable[[Any], Any]) -> None:
        self._inner = rows
        self._row = row

    def __len__(self) -> int:
        return len(self._inner)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> _LazyRows: ...
    def __getitem__(self, at: int | slice) -> Any:
        found = self._inner[at]
        return _LazyRows(found, self._row) if isinstance(at, slice) else self._row(found)


class Announcements(NamedTuple):
    """Rows of the store outside of a part, one for each key of the part below a prefix.

    They are set and removed in the commits that set and remove these keys, so the owner of the store can find the keys
    of all parts in one range.

    Attributes:
        of: the prefix of the keys that are announced, as the part sees them.
        prefix, suffix: the stored key of an announcement has the rest of the announced key between them.
        value, encoding: what each announcement holds.
    """

    of: bytes
    prefix: bytes
    suffix: bytes
    value: bytes
    encoding: int

    def key(self, key: bytes) -> bytes:
        """Return the stored key of the announcement of a key, as the part sees it, that begins with ``of``."""
        return self.prefix + key[len(self.of) :] + self.suffix


NO_ANNOUNCEMENTS: Final = Announcements(b"", b"", b"", b"", 0)


class PartKeys:
    """Translates the requests and answers of one part; safe to share between threads.

    Args:
        prefix: the packed parts at the beginning of every key of the part.
        limits: those of the engine of the whole store.
        announcements: which keys of the part are announced.
    """

    def __init__(self, prefix: bytes, limits: Limits, announcements: Announcements = NO_ANNOUNCEMENTS) -> None:
        self.prefix = prefix
        self._limits = limits
        self._announcements = announcements
        self.size = len(prefix)
        self._end = after_prefix(prefix)
        self._outer: Final[Callable[[bytes], bytes]] = prefix.__add__
        self._inner: Final[Callable[[bytes], bytes]] = itemgetter(slice(len(prefix), None))
        self._guard: tuple[Guard | None, Guard | None] = (None, None)
        self._predictions: dict[int, tuple[PredictedFollow, Guess | None, PredictedFollow]] = {}

    def range(self, one: ReadRange) -> ReadRange:
        """Return a range with stored keys, of the same class; it never ends after the part."""
        start, end, limit, reverse, keys_only = one
        stored = None if end is None else min(self.prefix + end, self._end)
        return _new(type(one), (self.prefix + start, stored, limit, reverse, keys_only))

    def ranges(self, ranges: Sequence[ReadRange]) -> list[ReadRange]:
        """Return ranges with stored keys."""
        return [self.range(one) for one in ranges]

    def guard(self, guard: Guard | None) -> Guard | None:
        """Return a guard with its stored key; the same object for the same guard, which engines compare."""
        if guard is None:
            return None
        known, stored = self._guard
        if known is not guard:
            stored = _new(Guard, (self.prefix + guard[0], guard[1]))
            self._guard = guard, stored
        return stored

    def row(self, row: Any) -> Any:
        """Return a row, or a plain tuple that begins with a key, without the prefix."""
        inner = (row[0][self.size :], *row[1:])
        return _new(Row, inner) if type(row) is Row else inner

    def rows(self, rows: Sequence[Any]) -> list[Any]:
        """Return rows without the prefix; those that the engine makes when they are used are translated then."""
        kind: object = type(rows)
        if kind is not list:
            return cast("list[Any]", _LazyRows(rows, self.row))  # as the engine has given them
        if len(rows) < _FEWEST:
            return [self.row(row) for row in rows]
        keys, *others = zip(*rows, strict=True)
        inner = zip(map(self._inner, keys), *others, strict=True)
        # An engine never mixes rows and plain tuples in one list.
        return list(map(_row_of, inner) if type(rows[0]) is Row else inner)

    def result(self, found: ReadResult) -> ReadResult:
        """Return the answer to a read without the prefix."""
        ranges, followed, versionstamp = found
        rows = self.rows
        inner = [rows(one) for one in ranges]
        return _new(ReadResult, (inner, self._followed(followed) if followed else [], versionstamp))

    def _followed(self, followed: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the rows of several ranges without the prefix; those of ranges with one row each together."""
        if len(followed) < _FEWEST or set(map(len, followed)) != {1}:
            return [self.rows(one) for one in followed]
        return list(map(list, zip(self.rows([*chain.from_iterable(followed)]), strict=True)))

    def changes(self, found: Changes) -> Changes:
        """Return changes without the prefix."""
        changes = [
            Change(key[self.size :], versionstamp, None if row is None else self.row(row))
            for key, versionstamp, row in found.changes
        ]
        return Changes(changes, found.through)

    def follow(self, follow: Follow | None) -> Follow | None:
        """Return a follow-up read of the same kind for stored keys."""
        if follow is None or follow is as_plain_rows:
            return follow
        if isinstance(follow, SuffixFollow):
            return SuffixFollow(self.prefix + follow.prefix, self.size + follow.start)
        if isinstance(follow, MultiRangeFollow):
            starts = tuple([self.size + start for start in follow.starts])
            return MultiRangeFollow(self.prefix + follow.prefix, starts, follow.most)
        return self._predicted(follow) if isinstance(follow, PredictedFollow) else self._function(follow)

    def _function(self, follow: Follow) -> Callable[[list[list[Row]]], Sequence[ReadRange]]:
        def stored(found: list[list[Row]]) -> Sequence[ReadRange]:
            return self.ranges(follow([self.rows(rows) for rows in found]))

        return stored

    def _predicted(self, follow: PredictedFollow) -> PredictedFollow:
        """Return the translated prediction, always the same one: an engine keeps its statement in it."""
        known = self._predictions.get(id(follow))
        if known is None or known[0] is not follow:
            if len(self._predictions) >= MOST_PREDICTIONS:
                self._predictions.clear()
            known = follow, None, PredictedFollow(self._function(follow), follow.guess)
        stored, guess = known[2], follow.guess
        if known[1] is not guess:  # a changed guess is a new object, see ``PredictedFollow``
            stored.others = {size: self._guess(one) for size, one in follow.others.items()}
            stored.guess = self._guess(guess)
            self._predictions[id(follow)] = follow, guess, stored
        stored.misses = 1
        return stored

    def _guess(self, guess: Guess) -> Guess:
        prefix, start, suffix = guess
        return self.prefix + prefix, start, suffix

    @staticmethod
    def note_hit(follow: Follow | None, stored: Follow | None) -> None:
        """Tell a prediction that the engine has found the predicted row."""
        if isinstance(follow, PredictedFollow) and isinstance(stored, PredictedFollow) and not stored.misses:
            follow.misses = 0

    def check(self, check: Check) -> Check:
        """Return a check of the stored key."""
        return _new(Check, (self.prefix + check[0], check[1], check[2]))

    def mutation(self, mutation: Mutation) -> Mutation:
        """Return a mutation of the stored key."""
        kind = type(mutation)
        if kind is Arithmetic:
            return mutation._replace(key=self.prefix + mutation.key)
        key: Any
        key, *others = mutation
        return _new(kind, (self.prefix + key, *others))

    def write(self, write: AtomicWrite, *more: Check) -> AtomicWrite:
        """Return an operation on stored keys, with further checks after its own."""
        checks, mutations = write
        stored = self._mutations(mutations)
        announced = self._announcements[0]
        if announced and True in map(bytes.startswith, map(_key_of, mutations), repeat(announced)):
            stored += self._announced([one for one in mutations if one.key.startswith(announced)], len(mutations))
        return _new(AtomicWrite, ((*self._checks(checks), *more), stored))

    def _checks(self, checks: Sequence[Check]) -> Sequence[Check]:
        if len(checks) < _FEWEST:
            prefix = self.prefix
            return [_new(Check, (prefix + key, stamp, physical)) for key, stamp, physical in checks]
        keys, stamps, physical = zip(*checks, strict=True)
        return list(map(_check_of, zip(map(self._outer, keys), stamps, physical, strict=True)))

    def _mutations(self, mutations: Sequence[Mutation]) -> tuple[Mutation, ...]:
        if len(mutations) < _FEWEST or set(map(type, mutations)) != _SETS:
            return tuple(map(self.mutation, mutations))
        keys, *others = zip(*mutations, strict=True)
        return tuple(map(_set_of, zip(map(self._outer, keys), *others, strict=True)))

    def _announced(self, own: Sequence[Mutation], others: int) -> tuple[Mutation, ...]:
        """Return the mutations of the announcements of some keys. Raises OperationTooLargeError."""
        limits, of = self._limits, self._announcements
        if others + len(own) > limits.max_mutations:
            raise OperationTooLargeError(
                "too many mutations in one operation: each message counts twice in a tenant",
                limit="max_mutations",
                size=others + len(own),
                maximum=limits.max_mutations,
                limits=limits.whose("max_mutations"),
                hint="Enqueue fewer messages in one operation.",
            )
        return tuple(
            [
                Delete(of.key(one.key)) if type(one) is Delete else Set(of.key(one.key), of.value, of.encoding)
                for one in own
            ]
        )

    def removal(self, removal: Removal) -> Removal:
        """Return a removal of the stored key, with the stored keys of its entries."""
        prefix, size, entries = self.prefix, self.size, removal.entries

        def stored(key: bytes, value: bytes, encoding: int) -> Sequence[bytes] | None:
            found = entries(key[size:], value, encoding)
            return None if found is None else [prefix + one for one in found]

        return Removal(self.check(removal.check), prefix + removal.key, stored)

    def show_inner(self, error: InvalidValueError, write: AtomicWrite) -> None:
        """Name the key of a refused sum, min or max as the part sees it."""
        for mutation in write.mutations:
            if error.key == key_parts(self.prefix + mutation.key):
                error.key = key_parts(mutation.key)
                return
