"""Follow collections into a sink: the steps of a follower, and the comparison of both sides.

A step of the first scan, or of a scan that begins again, covers a range of keys. Keys that the sink has in this range
and the store does not are removed; records that it has in the same version are left out. So a scan also repairs a sink,
and an interrupted one continues where it was.

Rules of this module: nothing is applied here. The caller asks the sink for its keys and passes them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import Loader
from kvmodels.core.keys import Key, decode_key, encode_key
from kvmodels.core.operations import Row, format_versionstamp
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow
from kvmodels.flows.feeds.changed_since import ChangeFeed, FeedStep
from kvmodels.flows.feeds.position import Position, versionstamp_bytes
from kvmodels.flows.feeds.sink import ChangeBatch, FollowedChange
from kvmodels.flows.hydration.loader import loader_of
from kvmodels.flows.hydration.rows import row_of_class
from kvmodels.flows.kv.watch import Watch, timeout_of
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import ModelSchema

MOST_LISTED: Final = 100
"""The maximum number of keys in each list of a report."""

STORE_POSITION_S: Final = 10.0
"""The seconds after which a position without changes is stored, so that it does not become older than the log."""


class ScannedRange(NamedTuple):
    """A range of keys of which a step has all records.

    ``after`` is the last key before the range, None at the beginning; ``end`` is the packed key of its end, None at the
    end of the scan.
    """

    after: Key | None
    end: bytes | None

    def covers(self, key: Key) -> bool:
        """Return whether a key is in the range."""
        packed = encode_key(key)
        begun = self.after is None or encode_key(self.after) < packed
        return begun and (self.end is None or packed < self.end)


class FollowStep(NamedTuple):
    """Changes for a sink, the present records of a scanned range, and the position after both."""

    changes: list[FollowedChange]
    records: list[FollowedChange]
    position: Position
    scanned: ScannedRange | None

    def batch(self, since: Position | None, held: Mapping[Key, str]) -> ChangeBatch:
        """Return what a sink must apply that holds these keys in the scanned range."""
        found = {change.key: change for change in self.changes}
        present = {one.key for one in self.records}
        for one in self.records:
            if held.get(one.key) != one.versionstamp:
                found[one.key] = one
        stamp = self.position.versionstamp
        for key in held.keys() - present - found.keys():
            found[key] = FollowedChange(key, None, stamp)
        return ChangeBatch(since, list(found.values()), self.position)


class FollowWatch(Watch[FollowStep]):
    """Delivers the steps of a follower one at a time; ``position`` is set by the caller when a step was applied.

    ``schemas``: the followed models, at most one of each collection.
    """

    def __init__(
        self,
        context: Context,
        schemas: Sequence[ModelSchema],
        monotonic: Callable[[], float],
        size: int,
        timeout: float | None,
    ) -> None:
        super().__init__(lambda limits: limits, (timeout_of(timeout), monotonic))
        self.position: Position | None = None
        self._context = context
        self._schemas = schemas
        self._size = size
        self._feed = ChangeFeed(context, schemas)
        self._store_at = inf

    @property
    def versionstamp(self) -> str | None:
        """The commit up to which every change was applied; None during a scan."""
        at = self.position
        return None if at is None or at.cursor is not None else at.versionstamp

    def _look(self, limits: Limits) -> Flow[list[FollowStep] | None]:
        """Return the next step; one without changes only to store its position from time to time."""
        while True:
            step = yield from self._feed.step(self.position, min(self._size, limits.max_read_entries))
            scanning = self.position is None or self.position.cursor is not None
            self._seen = versionstamp_bytes(step.position)
            if scanning or step.changes or self._is_due(step.position):
                self._store_at = inf
                return [(yield from self._loaded(step))]
            if not step.has_more:
                return None
            self.position = step.position

    def _is_due(self, position: Position) -> bool:
        if position == self.position:
            return False
        self._store_at = min(self._store_at, self._monotonic() + STORE_POSITION_S)
        return self._monotonic() >= self._store_at

    def _loaded(self, step: FeedStep) -> Flow[FollowStep]:
        loaders = yield from self._loaders()
        changes = [
            self._change(number, one.key, one.row, one.versionstamp, loaders[number]) for number, one in step.changes
        ]
        rows = [(number, row) for number, row in step.rows if self._own(number, row) is not None]
        records = [self._change(number, row.key, row, row.versionstamp, loaders[number]) for number, row in rows]
        return FollowStep(changes, records, step.position, self._scanned(step.position))

    def _scanned(self, reached: Position) -> ScannedRange | None:
        """Return the range between two positions of a scan; None if the step has not scanned."""
        before = self.position
        if before is not None and (before.cursor is None or before.cursor == reached.cursor):
            return None
        after = None if before is None or before.cursor is None else _key_before(bytes.fromhex(before.cursor))
        return ScannedRange(after, None if reached.cursor is None else bytes.fromhex(reached.cursor))

    def _change(self, number: int, key: bytes, row: Row | None, stamp: bytes, load: Loader) -> FollowedChange:
        own = self._own(number, row)
        version = stamp if own is None else own.versionstamp
        record = None if own is None else load(own)
        return FollowedChange(decode_key(key), record, format_versionstamp(version))

    def _own(self, number: int, row: Row | None) -> Row | None:
        return row_of_class(self._context, self._schemas[number], row)

    def _loaders(self) -> Flow[list[Loader]]:
        loaders: list[Loader] = []
        for schema in self._schemas:
            _, live = yield from live_collection(self._context, schema)
            loaders.append(loader_of(self._context, live, checks=True))
        return loaders


def _key_before(cursor: bytes) -> Key:
    """Return the last key before the cursor of a scan: a record, or the name of the collection that it begins."""
    return decode_key(cursor[:-1])  # a cursor is the successor of a key


@dataclass(frozen=True, slots=True)
class FollowReport:
    """The differences between a sink and the store; each list has at most 100 keys.

    Attributes:
        compared: the number of keys in the store.
        missing: keys that the sink lacks.
        extra: keys that only the sink has.
        different: keys that both have in different versions.
        more: whether there are further differences.
    """

    compared: int
    missing: list[Key]
    extra: list[Key]
    different: list[Key]
    more: bool = False

    @property
    def ok(self) -> bool:
        """Whether both sides are equal."""
        return not (self.missing or self.extra or self.different)


def separate(schemas: Sequence[ModelSchema]) -> Sequence[ModelSchema]:
    """Return the schemas to follow. Raises InvalidArgumentError if there are none, or two of one collection."""
    if not schemas:
        raise InvalidArgumentError("there are no models to follow", argument="models", hint="Pass at least one model.")
    if len({schema.collection for schema in schemas}) < len(schemas):
        raise InvalidArgumentError(
            "two of the models share a collection",
            argument="models",
            value=tuple(schema.name for schema in schemas),
            hint="Follow their base class, whose feed has the records of all classes.",
        )
    return schemas


class VersionDifference(NamedTuple):
    """The versions of one key in the sink and in the store; None: it does not have it."""

    held: str | None
    stored: str | None


def differences(held: Mapping[Key, str], step: FollowStep, scanned: ScannedRange) -> dict[Key, VersionDifference]:
    """Return the keys of a scanned range whose versions differ."""
    here = [one for one in (*step.records, *step.changes) if one.record is not None and scanned.covers(one.key)]
    present = {one.key: one.versionstamp for one in here}
    return {
        key: VersionDifference(held.get(key), present.get(key))
        for key in held.keys() | present.keys()
        if held.get(key) != present.get(key)
    }


def confirmed(
    first: Mapping[Key, VersionDifference], second: Mapping[Key, VersionDifference], compared: int
) -> FollowReport:
    """Return the differences of two comparisons between which the sink has caught up.

    A key of which the sink has the same version in both was not brought up to date, so it is no key that was written
    meanwhile.
    """
    keys = sorted((key for key in first if key in second and first[key].held == second[key].held), key=encode_key)
    missing = [key for key in keys if second[key].held is None]
    extra = [key for key in keys if second[key].stored is None]
    different = [key for key in keys if None not in second[key]]
    lists = (missing, extra, different)
    more = any(len(some) > MOST_LISTED for some in lists)
    shown = [some[:MOST_LISTED] for some in lists]
    return FollowReport(compared, shown[0], shown[1], shown[2], more)


show_public_path(FollowReport)
