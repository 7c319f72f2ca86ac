"""Drawn records on boards, and the answers of a board by ``sorted()``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil, inf, nextafter
from random import Random
from typing import Any, ClassVar, NamedTuple

from kvmodels import KvModel, PrimaryKey, Q, RankIndex

START = datetime(2026, 3, 1, tzinfo=UTC)
GREATEST = datetime.max.replace(tzinfo=UTC)
LEAGUES = ("gold", "tin", None)


class Player(KvModel, collection="players"):
    """A value of each type, most of them between the bounds of their index, many of them equal."""

    id: PrimaryKey[int]
    league: str | None
    score: int | None
    speed: float
    price: Decimal
    seen: datetime | None
    born: date
    played: timedelta
    tags: list[str]

    class Meta:
        indexes: ClassVar = (
            RankIndex("-score", group="league", low=0, high=1_000, name="board"),
            RankIndex("score", low=0, high=100, levels=1, where=Q(born__gte=date(1950, 1, 1)), name="adults"),
            RankIndex("speed", group="league", low=-1, high=1, levels=2, name="speeds"),
            RankIndex("-price", low=0, high=10, levels=3, name="prices"),
            RankIndex("-seen", group="tags", low=START, high=START + timedelta(days=30), levels=6, name="seen"),
            RankIndex("born", low=date(1900, 1, 1), high=date(2026, 1, 1), levels=2, name="births"),
            RankIndex("-played", low=timedelta(0), high=timedelta(hours=1), levels=4, name="times"),
        )


class BoardSpec(NamedTuple):
    """A board of the model: its index, its ranked field, and whether the greatest is the first."""

    name: str
    field: str
    descending: bool
    draw: Callable[[Random], Any]


def _score(chance: Random) -> int:
    return chance.choice([chance.randrange(1_001), chance.randrange(480, 520), -7, 0, 1_000, 10**30, -(10**30)])


def _speed(chance: Random) -> float:
    edge = chance.randrange(257) / 128 - 1
    return chance.choice([chance.uniform(-1.2, 1.2), edge, nextafter(edge, -2), 0.0, -0.0, inf, -inf, 1e300, 5e-324])


def _price(chance: Random) -> Decimal:
    edge = Decimal(chance.randrange(4_097)) * 10 / 4_096
    below = edge - Decimal("1e-20")
    return chance.choice([Decimal(chance.randrange(1_100)) / 100, edge, below, Decimal("-1e2000"), Decimal("5.50")])


def _moment(chance: Random) -> datetime:
    return chance.choice(
        [START + timedelta(seconds=chance.randrange(2_592_000)), START, START - timedelta(days=9_000), GREATEST]
    )


def _day(chance: Random) -> date:
    return chance.choice([date(1900, 1, 1) + timedelta(days=chance.randrange(46_000)), date.min, date.max])


def _duration(chance: Random) -> timedelta:
    return chance.choice([timedelta(seconds=chance.randrange(-9, 3_700)), timedelta.min, timedelta(minutes=30)])


BOARDS = (
    BoardSpec("board", "score", True, _score),
    BoardSpec("adults", "score", False, _score),
    BoardSpec("speeds", "speed", False, _speed),
    BoardSpec("prices", "price", True, _price),
    BoardSpec("seen", "seen", True, _moment),
    BoardSpec("births", "born", False, _day),
    BoardSpec("times", "played", True, _duration),
)


def player(chance: Random, key: int) -> Player:
    """A drawn record."""
    return Player(
        id=key,
        league=chance.choice(LEAGUES),
        score=None if chance.random() < 0.1 else _score(chance),
        speed=_speed(chance),
        price=_price(chance),
        seen=None if chance.random() < 0.1 else _moment(chance),
        born=_day(chance),
        played=_duration(chance),
        tags=chance.sample(["a", "b", "c"], chance.randrange(4)),
    )


class Group(NamedTuple):
    """The arguments of a board, and the records on it."""

    spec: BoardSpec
    keywords: dict[str, Any]
    members: list[Player]

    @property
    def values(self) -> list[Any]:
        """The values of the records, ascending."""
        return sorted(getattr(one, self.spec.field) for one in self.members)


def groups(spec: BoardSpec, records: Sequence[Player]) -> list[Group]:
    """Every board of an index, its records in their order."""
    if spec.name in ("board", "speeds"):
        found = [({"league": one}, [record for record in records if record.league == one]) for one in LEAGUES]
    elif spec.name == "seen":
        found = [({"tags": one}, [record for record in records if one in record.tags]) for one in "abcz"]
    else:
        adults = spec.name == "adults"
        found = [({}, [record for record in records if not adults or record.born >= date(1950, 1, 1)])]
    return [Group(spec, keywords, in_order(spec, members)) for keywords, members in found]


def in_order(spec: BoardSpec, members: Sequence[Player]) -> list[Player]:
    """The records with a value, by ``sorted()``: ties by primary key."""
    ranked = sorted((one for one in members if getattr(one, spec.field) is not None), key=lambda one: one.id)
    return sorted(ranked, key=lambda one: getattr(one, spec.field), reverse=spec.descending)


def expected_rank(group: Group, value: Any) -> int:
    """The rank of a value by comparison."""
    if group.spec.descending:
        return 1 + sum(one > value for one in group.values)
    return 1 + sum(one < value for one in group.values)


def expected_percentile(group: Group, percent: str) -> Any:
    """The percentile of the values by nearest rank."""
    values = group.values
    return values[max(1, ceil(Fraction(percent) * len(values) / 100)) - 1] if values else None
