"""Random steps on models with a history, and an oracle: the documents of each key at each time.

The clock of the store stands still within a step and moves before it, so every version has a time of its own, and the
state at any time is the state after the last step up to it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated, Any

from kvmodels import (
    CASCADE,
    SET_NULL,
    Database,
    Field,
    ForeignKey,
    History,
    Indexed,
    IntegrityError,
    KvModel,
    PrimaryKey,
    Unique,
)
from tests.kv.stores import Clock


class Team(KvModel, collection="teams"):
    id: PrimaryKey[int]
    name: str = ""

    class Meta:
        history = History()


class Card(KvModel, collection="cards"):
    id: PrimaryKey[int]
    title: Unique[str | None] = Field(default=None)
    rank: Indexed[int] = Field(default=0)
    note: str = ""
    team: Annotated[ForeignKey[int | None, Team], CASCADE] = Field(default=None)
    lead: Annotated[ForeignKey[int | None, Team], SET_NULL] = Field(default=None)

    class Meta:
        history = History(exclude=("note",))


Known = dict[str, Any]
"""The values of a record without its excluded fields."""


class Machine:
    """Makes random steps and keeps the state after each of them."""

    refusals: tuple[type[Exception], ...] = (IntegrityError, LookupError)

    def __init__(self, db: Database, clock: Clock, seed: int, kind: Any = Card) -> None:
        self.db, self.clock, self.chance = db, clock, random.Random(seed)
        self.kind = kind
        self.cards, self.teams = db[kind], db[Team]
        self.states: list[tuple[int, dict[tuple[type[KvModel], int], Known]]] = []
        self.versions: dict[tuple[type[KvModel], int], list[tuple[Known | None, str | None]]] = {}
        self.last: dict[tuple[type[KvModel], int], Known] = {}
        self.removed_by: dict[int, list[Card]] = {}
        self.done: Counter[str] = Counter()
        self.held: list[Any] = []

    # --- the oracle -----------------------------------------------------------------------------------------------

    def present(self) -> dict[tuple[type[KvModel], int], Known]:
        """Return the stored records."""
        found: dict[tuple[type[KvModel], int], Known] = {}
        for model in (Card, Team):
            for one in self.db[model].all().allow_scan():
                found[model, one.pk] = known(one)
        return found

    def note(self, actor: str | None) -> None:
        """Add the present state, and the versions that the step has begun and ended."""
        now = self.present()
        for key in {*now, *self.last}:
            if now.get(key) != self.last.get(key):
                self.versions.setdefault(key, []).append((now.get(key), actor))
        self.states.append((self.clock.ms, now))
        self.last = now

    # --- the steps ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Make one random step."""
        self.clock.ms += self.chance.randrange(1, 50)
        name = self.chance.choice(STEPS)
        actor = self.chance.choice([None, "ada", "bob"])
        with nullcontext() if actor is None else self.db.acting(actor, reason=name):
            try:
                getattr(self, name)()
                self.done[name] += 1
            except self.refusals as error:
                self.done[type(error).__name__] += 1
        self.note(actor)

    def card(self) -> int:
        """Return a key of a card."""
        return self.chance.randrange(1, 8)

    def values(self) -> dict[str, Any]:
        """Return values of a card, with references to stored teams or to none."""
        teams = [one.id for one in self.teams.all().allow_scan()]
        return {
            "title": self.chance.choice([None, *"abcdef"]),
            "rank": self.chance.randrange(3),
            "note": self.chance.choice("xy"),
            "team": self.chance.choice([None, *teams]),
            "lead": self.chance.choice([None, *teams]),
        }

    def create(self) -> None:
        self.held.append(self.cards.create(id=self.card(), **self.values()))

    def create_team(self) -> None:
        self.teams.create(id=self.chance.randrange(1, 4), name=self.chance.choice("pq"))

    def patch(self) -> None:
        values = self.values()
        name = self.chance.choice([name for name in values if name != "team"])
        self.cards.patch(self.card(), **{name: values[name]})

    def mutate(self) -> None:
        def change(card: Any) -> None:
            card.rank += 1

        self.cards.mutate(self.card(), change)

    def save_loaded(self) -> None:
        card = self.cards.get(self.card())
        card.rank = self.chance.randrange(3)
        self.cards.save(card)

    def save_held(self) -> None:
        if held := [one for one in self.held if type(one) is self.kind]:
            card = self.chance.choice(held)
            card.rank = self.chance.randrange(3)
            try:
                self.cards.save(card)
            except Exception:  # noqa: BLE001 - it is stale, or its values are taken
                self.held.remove(card)

    def save_forced(self) -> None:
        self.cards.save(self.kind(id=self.card(), **self.values()), force=True)

    def save_unchanged(self) -> None:
        self.cards.save(self.cards.get(self.card()))

    def remove(self) -> None:
        self.cards.remove(self.card())

    def remove_loaded(self) -> None:
        self.cards.remove(self.cards.get(self.card()))

    def remove_team(self) -> None:
        self.teams.remove(self.chance.randrange(1, 4))

    def remove_cascade(self) -> None:
        team = self.chance.randrange(1, 4)
        cards = self.cards.all().allow_scan()
        if not any(one.team == one.lead == team for one in cards):  # which would be changed, and then removed
            self.teams.remove_cascade(team, resume_id=f"team-{self.clock.ms}")

    def rename(self) -> None:
        self.cards.rename(self.card(), self.card())

    def upsert(self) -> None:
        self.cards.bulk_create(
            [self.kind(id=key, rank=self.chance.randrange(3)) for key in {self.card(), self.card()}],
            on_conflict="update",
        )

    def bulk_create(self) -> None:
        self.cards.bulk_create([self.kind(id=key) for key in {self.card(), self.card()}], on_conflict="ignore")

    def bulk_update(self) -> None:
        cards = list(self.cards.all().allow_scan())
        for one in cards:
            one.rank = self.chance.randrange(3)
        self.cards.bulk_update(cards)

    def update_query(self) -> None:
        self.cards.filter(rank=self.chance.randrange(3)).update(rank=self.chance.randrange(3))

    def delete_query(self) -> None:
        if self.chance.random() < 0.3:
            self.cards.filter(rank=self.chance.randrange(3)).delete()

    def transaction(self) -> None:
        with self.db.transaction() as tx:
            cards = tx[self.kind]
            for _ in range(self.chance.randrange(1, 5)):
                key = self.card()
                match self.chance.randrange(5):
                    case 0 if cards.get_or_none(key) is None:
                        self.held.append(cards.create(id=key))
                    case 1:
                        cards.remove(key)
                    case 2 if (card := cards.get_or_none(key)) is not None:
                        card.rank = self.chance.randrange(3)
                        cards.save(card)
                        self.held.append(cards.get(key))
                    case 3 if cards.get_or_none(key) is not None:
                        cards.patch(key, note=self.chance.choice("xy"))
                    case 4 if self.chance.random() < 0.3:
                        tx[Team].remove(self.chance.randrange(1, 4))
                    case _:
                        pass

    def restore(self) -> None:
        key = self.card()
        card = self.cards.restore(key, {"title": None, "team": None, "lead": None})
        assert known(card) == {**self.former(key), "title": None, "team": None, "lead": None}

    def former(self, key: int) -> Known:
        """Return the last version of a card that is removed."""
        return next(one for one, _ in reversed(self.versions[Card, key]) if one is not None)

    def restore_team(self) -> None:
        self.teams.restore(self.chance.randrange(1, 4), also=True)

    def revert(self) -> None:
        key = self.card()
        revisions = list(self.cards.history(key))
        if revisions and self.cards.get_or_none(key) is not None:
            chosen = self.chance.choice(revisions)
            before = self.cards.get(key)
            assert chosen.record is not None
            values = {"title", "team", "lead"}
            if all(getattr(chosen.record, name) is None for name in values):
                after = self.cards.revert(key, chosen)
                assert known(after) == known(chosen.record)
                assert after.note == before.note

    # --- the comparison -------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Compare histories, the past and the removed records with the oracle."""
        for (model, key), versions in self.versions.items():
            self._compare_history(model, key, versions)
        for time, state in self.chance.sample(self.states, min(len(self.states), 20)):
            moment = datetime.fromtimestamp(time / 1_000, UTC)
            for model in (Card, Team):
                past = self.db[model].as_of(moment)
                expected = {key: one for (of, key), one in state.items() if of is model}
                found = {one.pk: known(one) for one in past.filter().allow_scan()}
                assert found == expected, (moment, model)
                for key in range(1, 8):
                    one = past.get_or_none(key)
                    assert (None if one is None else known(one)) == expected.get(key), (model, key, time)
                    at = self.db[model].history(key).at(moment)
                    record = None if at is None else at.record
                    assert (None if record is None else known(record)) == expected.get(key)
        for model in (Card, Team):
            trash = {one.key for one in self.db[model].trash()}
            assert trash.isdisjoint(key for of, key in self.last if of is model)

    def _compare_history(self, model: type[KvModel], key: int, versions: list[tuple[Known | None, str | None]]) -> None:
        revisions = list(self.db[model].history(key))[::-1]
        found = [known(one.record) for one in revisions if one.record is not None]
        expected = [(one, actor) for one, actor in versions if one is not None]
        assert found == [one for one, _ in expected], (model, key)
        assert [one.actor for one in revisions] == [actor for _, actor in expected], (model, key)
        ends = [None if one.ended is None else one.ended.versionstamp for one in revisions]
        for begin, end in zip(revisions[1:], ends, strict=False):
            assert end is not None
            assert end <= begin.versionstamp, (model, key)
        self._compare_changes(revisions, versions)

    def _compare_changes(self, revisions: list[Any], versions: list[tuple[Known | None, str | None]]) -> None:
        before: Known | None = None
        shown = iter(revisions)
        one: Any = None
        for known_now, actor in versions:
            if known_now is not None:
                one = next(shown)
                assert {name: after for name, (_, after) in one.changes.items()} == {
                    name: value for name, value in known_now.items() if before is None or before[name] != value
                }
            elif before is not None:
                assert revised(revisions, one).actor == actor
            before = known_now


def revised(_: list[Any], revision: Any) -> Any:
    """Return how a revision ended."""
    assert revision.ended is not None
    return revision.ended


def known(one: KvModel) -> Known:
    """Return the values of an object that the history holds."""
    return {name: value for name, value in one.model_dump().items() if name != "note"}


STEPS: list[str] = [
    name
    for name, value in vars(Machine).items()
    if isinstance(value, Callable)  # type: ignore[arg-type]
    and not name.startswith("_")
    and name not in ("present", "note", "step", "card", "values", "former", "compare")
]
