"""The crowd over partial, computed, folded, nested, multi-valued, covering and special indexes and counters.

python -m tests.interleaving.crowd_of_members SEED
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from kvmodels.query.aggregates import Sum
from kvmodels.schema.geometry.circle import Circle
from kvmodels.schema.geometry.point import GeoPoint
from tests.interleaving.crowd import COUNTERS, KEYS, Crowd, Matches, observed, replay
from tests.interleaving.members import LATE, Home, Member, OldMember
from tests.oracle import spec_of
from tests.oracle_intervals import contains, is_found

EMAILS = (None, None, "e1", "E1", "e2", "e3", "E4")
BADGES = ("b1", "b2", "b3", "b4", "b5")
NOTES = ("", "", "p", "q", "p", "q", "p q", "p q", "q p q", "q p q", "p q r s")
"""The last one has more parts than two of the late indexes take."""

HERE, THERE = GeoPoint(lat=0, lon=180), GeoPoint(lat=0, lon=-179.999)
NEAR, FAR = Circle(HERE, 50), Circle(HERE, 150)
"""The two places are 111 metres apart, on both sides of the antimeridian."""


def is_on(value: dict[str, Any], index: str, group: dict[str, str]) -> bool:
    """Whether a stored member is on the board of a group, if it has a value."""
    if index == "board":
        return bool(value["city"] == group["city"])
    return value["zone"] == "n" and group["tags"] in value["tags"]


def expected_on_board(places: list[tuple[int, str]], question: str, key: str, start: int, *, descending: bool) -> Any:
    """The answer of a board to a question, from its sorted places: values of which the least is the best, and keys."""
    values = [value for value, _ in places]
    position = next((at for at, (_, one) in enumerate(places) if one == key), None)
    if question == "slice":
        return [one for _, one in places[start : start + 2]]
    if question == "position_of":
        return position
    if question == "rank_of":
        return None if position is None else 1 + sum(value < values[position] for value in values)
    if question == "rank":
        return 1 + sum(value < (-1 if descending else 1) for value in values)
    ascending = sorted(-value if descending else value for value in values)
    if question == "percentile":
        return ascending[max(1, -(-len(ascending) // 2)) - 1] if ascending else None
    return sum(value >= 1 for value in ascending)


class MemberCrowd(Crowd):
    """Eight writers, two builders of the late indexes, one that drops an index and builds it, readers, a check."""

    old_model = OldMember
    model = Member
    spec = spec_of(Member)
    builds = (
        (*LATE[:4], "ever"),
        ("northern_board", "per_part", "per_zone", "by_tag", "floor", "northern", "northern_pieces", "northern_text"),
    )
    dropped = ("zone", "per_city", "per_tag", "badges", "label", "north", "spots", "terms", "pieces", "board", "text")
    first_lifetimes = (None,)
    lifetimes = (None,)
    swapped = ("badges", "badges", "email", "city", "tags")
    asked = (
        "city", "zone", "tags", "badges", "north", "label", "email", "street", "part", "tag pages", "pages", "count",
        "total", "late total", "shift", "near", "near pages", "far", "term", "late term",
        "piece", "late piece", "phrase", "word", "best", "board", "late board", "street",
    )  # fmt: skip
    verbs_drawn = (
        "create",
        "create",
        "bulk",
        "patch",
        "patch",
        "patch",
        "hit",
        "save",
        "remove",
        "find",
        "swap",
        "visit",
    )

    def _values(self, chance: random.Random, model: type[Any] | None = None) -> dict[str, Any]:
        home = chance.choice((None, Home(street="high"), Home(street="low", floor=chance.randint(1, 3))))
        values = {
            "email": chance.choice(EMAILS),
            "city": chance.choice("xyz"),
            "zone": chance.choice("ns"),
            "team": chance.choice(("red", "blue")),
            "tags": chance.choices("abc", k=chance.randint(0, 3)),
            "badges": chance.sample(BADGES, chance.choice((0, 0, 1, 2))),
            "home": home,
            "note": chance.choice(NOTES),
            "shift": chance.choice((None, 1, 3)),
            "spot": chance.choice((None, HERE, THERE)),
            "since": chance.choice((None, 1, 2)),
            "until": chance.choice((None, 3, 5)),
        }
        return values | ({} if model is self.old_model else {"rank": chance.choice((None, -1, 2, 2**40))})

    def _give_way(self, person: Any) -> None:
        person.email = None
        person.badges = []

    async def _ask(self, name: str, people: Any, field: str, chance: random.Random) -> None:
        values = self._values(chance)
        letter = chance.choice("abc")
        asked: dict[str, tuple[dict[str, Any], Matches]] = {
            "tags": ({"tags__contains": letter}, lambda one: letter in one["tags"]),
            "badges": ({"badges__contains": "b1"}, lambda one: "b1" in one["badges"]),
            "north": (
                {"zone": "n", "team": values["team"]},
                lambda one: (one["zone"], one["team"]) == ("n", values["team"]),
            ),
            "label": ({"label": "n/red"}, lambda one: (one["zone"], one["team"]) == ("n", "red")),
            "email": ({"email": "E1"}, lambda one: (one["email"] or "").lower() == "e1"),
            "street": ({"home__street": "low"}, lambda one: (one["home"] or {}).get("street") == "low"),
            "part": ({"part__contains": "q"}, lambda one: "q" in one["note"]),
            "shift": (
                {"city": values["city"], "shift__on": 1},
                lambda one: one["city"] == values["city"] and one["shift"] == 3,
            ),
            "near": (
                {"city": values["city"], "spot__within": NEAR},
                lambda one: one["city"] == values["city"] and one["spot"] == HERE.model_dump(),
            ),
            "far": ({"zone": "n", "spot__within": FAR}, lambda one: one["zone"] == "n" and one["spot"] is not None),
            "term": (
                {"tags__contains": letter, "terms__overlaps": (3, 4)},
                lambda one: letter in one["tags"] and is_found(one["since"], one["until"], 3, 4),
            ),
            "piece": (
                {"city": values["city"], "note__icontains": "P Q"},
                lambda one: one["city"] == values["city"] and "p q" in one["note"],
            ),
            "late piece": (
                {"zone": "n", "note__endswith": "p q"},
                lambda one: one["zone"] == "n" and one["note"].endswith("p q"),
            ),
            "phrase": (
                {"city": values["city"], "text__search": '"p q" -b1'},
                lambda one: one["city"] == values["city"] and "p q" in one["note"] and "b1" not in one["badges"],
            ),
            "word": (
                {"city": values["city"], "text__search": "q OR b*"},
                lambda one: one["city"] == values["city"] and ("q" in one["note"] or bool(one["badges"])),
            ),
            "best": ({"city": values["city"]}, lambda one: one["city"] == values["city"] and "q" in one["note"]),
            "late term": ({"ever__contains": 1}, lambda one: contains(one["since"], one["until"], 1)),
        }
        if field == "best":
            await self._rank(name, people, *asked[field], "text", "q")
        elif field in asked:
            wanted, matches = asked[field]
            await self._query(name, people, wanted, matches=matches)
        elif field == "tag pages":
            await self._walk(name, people, *asked["tags"])
        elif field == "near pages":
            await self._walk(name, people, *asked["near"])
        elif field == "board":
            await self._board(name, people, "board", ("hits", True), {"city": values["city"]}, chance)
        elif field == "late board":
            await self._board(name, people, "northern_board", ("rank", False), {"tags": letter}, chance)
        elif field == "count":
            await self._number(name, people, {"city": values["city"]}, None)
        elif field == "total":
            await self._number(name, people, {"city": values["city"]}, "hits")
        elif field == "late total":
            await self._number(name, people, {"zone": values["zone"], "city__in": ["x", "y"]}, "rank")
        elif field == "pages":
            await self._walk(name, people, {"city": values["city"]})
        else:
            await self._query(name, people, {field: values[field]})

    async def _board(
        self, name: str, people: Any, index: str, ranked: tuple[str, bool], group: dict[str, str], chance: random.Random
    ) -> None:
        """A place on a board, or records by place, against ``sorted`` over the records of that moment."""
        seen: list[dict[str, tuple[dict[str, Any], str]]] = []
        board, key, start = people.rank(index, **group), chance.choice(KEYS + COUNTERS), chance.randrange(3)
        question = chance.choice(("rank", "rank_of", "position_of", "slice", "percentile", "count"))
        field, descending = ranked
        asked: dict[str, Callable[[], Any]] = {
            "rank": lambda: board.rank(**{field: 1}),
            "rank_of": lambda: board.rank_of(key),
            "position_of": lambda: board.position_of(key),
            "slice": lambda: board[start : start + 2],
            "percentile": lambda: board.percentile(50),
            "count": lambda: board.count(**{f"{field}__gte": 1}),
        }
        found: Any = await observed(asked[question](), lambda: seen.append(self._look()))
        found = [one.id for one in found] if question == "slice" else found
        places = sorted(
            (-value[field] if descending else value[field], one)
            for one, (value, _) in seen[-1].items()
            if is_on(value, index, group) and value.get(field) is not None
        )
        exact = expected_on_board(places, question, key, start, descending=descending)
        if found != exact:
            self.faults.append(f"{name} asked {index} of {group} for {question} and got {found} instead of {exact}")

    async def _rank(
        self, name: str, people: Any, wanted: dict[str, Any], matches: Matches, index: str, words: str
    ) -> None:
        """The ranked records of a search: those of no change meanwhile, each once, the best first."""
        seen: list[dict[str, tuple[dict[str, Any], str]]] = [self._look()]
        query = people.filter(**wanted).search(index, words)
        hits = await observed(query.to_list(), lambda: seen.append(self._look()))
        found = [hit.record.id for hit in hits]
        for key, (value, stamp) in seen[0].items():
            untouched = all(look.get(key, (None, ""))[1] == stamp for look in seen)
            if untouched and found.count(key) != matches(value):
                self.faults.append(f"{name} searched {words!r} and met {key!r} {found.count(key)} times: {found}")
        if [(-hit.score, hit.record.id) for hit in hits] != sorted((-hit.score, hit.record.id) for hit in hits):
            self.faults.append(f"{name} searched {words!r} and got a wrong order: {hits}")

    async def _number(self, name: str, people: Any, wanted: dict[str, Any], summed: str | None) -> None:
        """A count or a sum, which counters answer where there are some, against the records of that moment."""
        seen: list[dict[str, tuple[dict[str, Any], str]]] = []
        query = people.filter(**wanted).allow_scan()
        asked = query.count() if summed is None else query.aggregate(total=Sum(summed))
        found = await observed(asked, lambda: seen.append(self._look()))
        looks = [
            [
                value
                for value, _ in look.values()
                if all(value[field.removesuffix("__in")] in content for field, content in wanted.items())
            ]
            for look in seen
        ]
        matching = looks[-1]
        values: list[Any] = [
            value[summed] for value in matching if summed is not None and value.get(summed) is not None
        ]
        exact = len(matching) if summed is None else {"total": sum(values) if values else None}
        # Without counters two cities are read one after the other, and between the two a record may come or go.
        excused = len(wanted) > 1 and any(look != matching for look in looks)
        if found != exact and not excused:
            self.faults.append(f"{name} asked for {summed or 'the number'} of {wanted} and got {found} of {matching}")


if __name__ == "__main__":
    replay(int(sys.argv[1]), MemberCrowd)
