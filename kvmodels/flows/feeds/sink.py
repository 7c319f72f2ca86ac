"""The protocol of a sink: another store that is kept equal to collections of this one, and the batches that it applies.

Rules of this module: pure. A sink stores the position of a batch in the transaction that stores its changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.keys import Key
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.feeds.position import Position


class FollowedChange(NamedTuple):
    """A record in its latest version, or its removal, for a sink.

    Attributes:
        key: the stored key, ``(collection, *primary key)``. ``kvmodels.keys.encode_key`` gives bytes in the same order.
        record: the object; None if the record was removed or has expired.
        versionstamp: the version of the record, or the commit that removed it at the latest.
    """

    key: Key
    record: Any
    versionstamp: str


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes that a sink applies in one transaction, with the position after them.

    Attributes:
        since: the position that the sink must have; None if it must have none.
        changes: each record once. A sink may have applied some of them already, in the same version.
        position: the position to store together with the changes.
    """

    since: Position | None
    changes: list[FollowedChange]
    position: Position

    def __len__(self) -> int:
        return len(self.changes)


class Sink(Protocol):
    """Another store that a follower keeps equal to the records of some models.

    With an asynchronous database its methods are called in threads, one at a time.
    """

    def load(self) -> Position | None:
        """Return the stored position; None if there is none."""
        ...

    def apply(self, batch: ChangeBatch, /) -> None:
        """Store the changes and the position of a batch in one transaction.

        Raises:
            SinkPositionError: the stored position is not ``batch.since``, because another follower has applied a batch.
                Nothing was stored.
        """
        ...

    def keys(self, after: Key | None, limit: int, /) -> list[tuple[Key, str]]:
        """Return keys after a key with their versionstamps, in the order of ``encode_key``, at most ``limit``."""
        ...


def require_sink(sink: object) -> None:
    """Refuse an object without the methods of a sink. Raises InvalidArgumentError."""
    if isinstance(sink, type) or not all(callable(getattr(sink, name, None)) for name in ("load", "apply", "keys")):
        raise InvalidArgumentError(
            "this is not a sink",
            argument="sink",
            value=short_repr(sink),
            hint='Pass an object with load(), apply() and keys(), such as FtsSink("search.db", "title").',
        )


for _one in (FollowedChange, ChangeBatch, Sink):
    show_public_path(_one)
