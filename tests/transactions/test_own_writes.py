"""A transaction answers as a database would to which the same was written: through every index, counter and raw key.

Two stores are kept: one is written to by transactions alone, the other by one commit for each verb. After every step
the open transaction and the second store are asked the same; a rollback takes the second store back to the first.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvmodels import Count, Database, F, IntegrityError, KvModelsError, Max, Min, Sum, UniqueViolationError
from kvmodels.api._sync.transaction import Transaction
from tests.drawing import of_check
from tests.transactions.models import Clock, Member, Session, opened

KEYS = st.integers(1, 6)
EMAILS = st.sampled_from([None, "a", "b", "c"])
CITIES = st.sampled_from(["x", "y", "z"])
TEAMS = st.sampled_from(["red", "blue"])
TAGS = st.lists(st.sampled_from(["p", "q", "r"]), max_size=3)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "email": EMAILS,
    "city": CITIES,
    "tags": TAGS,
    "team": TEAMS,
    "score": st.integers(-2, 3),
    "active": st.booleans(),
}
VALUES = st.fixed_dictionaries({}, optional=FIELDS)
RAW = st.integers(0, 4)

Store = Database | Transaction


def members(found: Any) -> list[dict[str, Any]]:
    return [member.model_dump() for member in found]


def pages(query: Any) -> list[Any]:
    """Forward over all pages, and one back."""
    page = query.page(size=2)
    seen = [members(page.items)]
    while page.has_more:
        page = query.page(size=2, after=page.next_cursor)
        seen.append(members(page.items))
    if page.has_previous:
        seen.append(members(query.page(size=2, before=page.previous_cursor).items))
    return seen


def answers(store: Store) -> dict[str, Any]:
    """Return the answers of a store to every kind of question."""
    repository = store[Member]
    said: dict[str, Any] = {
        "all": members(repository.all()),
        "reverse": members(repository.order_by("-id")[1:3]),
        "by key": [None if (one := repository.get_or_none(key)) is None else one.model_dump() for key in range(1, 7)],
        "in bulk": sorted(repository.in_bulk(range(1, 7))),
        "count": repository.count(),
        "ranking": members(repository.order_by("team", "-score")),
        "ranking back": members(repository.order_by("-team", "score")[:3]),
        "partial": members(repository.filter(active=True, score__gte=0)),
        "cities": list(repository.order_by("city").values_list("city", flat=True).distinct()),
        "sorted": members(repository.filter(city__in=["x", "z"]).order_by("-score", "id").sort_in_memory(limit=9)),
        "groups": list(repository.group_by("team").aggregate(Count(), Sum("score"))),
        "pages": pages(repository.order_by("team", "-score")),
        "raw": [(entry.key, entry.value) for entry in store.kv.list(("raw",))],
        "raw back": [entry.key for entry in store.kv.list(("raw",), limit=2, reverse=True)],
        "sessions": [(one.id, one.user, store[Session].expires_at(one)) for one in store[Session].all()],
    }
    for email in ("a", "b", "c"):
        found = repository.get_or_none(email=email)
        said[f"email {email}"] = None if found is None else found.model_dump()
    for city in ("x", "y", "z"):
        query = repository.filter(city=city)
        said[f"city {city}"] = (
            members(query),
            query.count(),
            query.exists(),
            sorted(query.values_list("score", flat=True)),
        )
    for tag in ("p", "q", "r"):
        said[f"tag {tag}"] = members(repository.filter(tags__contains=tag))
    for team in ("red", "blue"):
        query = repository.filter(team=team)
        said[f"team {team}"] = query.aggregate(Count(), Sum("score"), Min("score"), Max("score"))
        said[f"copies {team}"] = members(query.order_by("id"))
    return said


class OwnWrites(RuleBasedStateMachine):
    """Verbs in a transaction and outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = opened(clock=self.clock)
        self.mirror = opened(clock=self.clock)
        self.block: Any = None
        self.tx: Transaction | None = None

    def teardown(self) -> None:
        if self.block is not None:
            self.roll_back()
        assert self.store.check().ok

    @initialize(found=st.lists(st.tuples(KEYS, VALUES), max_size=4))
    def fill(self, found: list[tuple[int, dict[str, Any]]]) -> None:
        for key, values in found:
            try:
                self.store[Member].create(id=key, **values)
                self.mirror[Member].create(id=key, **values)
            except IntegrityError:
                continue
        self.begin()

    # --- the life of a transaction --------------------------------------------------------------------------------

    @precondition(lambda self: self.block is None)
    @rule()
    def begin(self) -> None:
        self.block = self.store.transaction()
        self.tx = self.block.__enter__()

    @precondition(lambda self: self.block is not None)
    @rule()
    def commit(self) -> None:
        self.block.__exit__(None, None, None)
        self.block = self.tx = None
        assert answers(self.store) == answers(self.mirror)
        report = self.store.check()
        assert report.ok, str(report)

    @precondition(lambda self: self.block is not None)
    @rule()
    def roll_back(self) -> None:
        error = KeyError()
        self.block.__exit__(KeyError, error, None)
        self.block = self.tx = None
        self.mirror = opened(clock=self.clock)
        for member in self.store[Member]:
            self.mirror[Member].create(**member.model_dump())
        for session in self.store[Session]:
            deadline = self.store[Session].expires_at(session)
            assert deadline is not None
            left = round(deadline.timestamp() * 1000) - self.clock.ms
            self.mirror[Session].create(id=session.id, user=session.user, expire_in=timedelta(milliseconds=left))
        for entry in self.store.kv.list(("raw",)):
            self.mirror.kv.set(entry.key, entry.value)
        assert answers(self.store) == answers(self.mirror)

    @precondition(lambda self: self.block is None)
    @rule(seconds=st.sampled_from([1, 30, 61]))
    def wait(self, seconds: int) -> None:
        self.clock.ms += 1000 * seconds

    # --- verbs ----------------------------------------------------------------------------------------------------

    def both(self, verb: Any) -> None:
        """The same in the transaction, if one is open, as in the second store; refused values are not tried."""
        target: Store = self.tx or self.store
        try:
            expected = verb(self.mirror)
        except UniqueViolationError:
            return
        except KvModelsError as error:
            with pytest.raises(type(error)):
                verb(target)
            return
        assert verb(target) == expected

    @rule(key=KEYS, values=VALUES)
    def create(self, key: int, values: dict[str, Any]) -> None:
        self.both(lambda store: store[Member].create(id=key, **values).model_dump())

    @rule(key=KEYS, values=VALUES)
    def patch(self, key: int, values: dict[str, Any]) -> None:
        self.both(lambda store: store[Member].patch(key, **values).model_dump())

    @rule(key=KEYS, values=VALUES)
    def load_and_save(self, key: int, values: dict[str, Any]) -> None:
        def verb(store: Store) -> dict[str, Any]:
            member = store[Member].get(key)
            changed = member.model_copy(update=values)
            return store[Member].save(changed).model_dump()

        self.both(verb)

    @rule(key=KEYS, values=VALUES)
    def save_by_force(self, key: int, values: dict[str, Any]) -> None:
        self.both(lambda store: store[Member].save(Member(id=key, **values), force=True).model_dump())

    @rule(key=KEYS)
    def remove(self, key: int) -> None:
        self.both(lambda store: store[Member].remove(key))

    @rule(key=KEYS, email=EMAILS.filter(bool), values=VALUES)
    def get_or_create(self, key: int, email: str, values: dict[str, Any]) -> None:
        defaults = {"id": key, **{name: value for name, value in values.items() if name != "email"}}

        def verb(store: Store) -> tuple[dict[str, Any], bool]:
            member, created = store[Member].get_or_create(email=email, defaults=defaults)
            return member.model_dump(), created

        self.both(verb)

    @rule(found=st.lists(st.tuples(KEYS, VALUES), max_size=3), ignore=st.booleans())
    def bulk_create(self, found: list[tuple[int, dict[str, Any]]], ignore: bool) -> None:
        def verb(store: Store) -> list[bool]:
            objects = [Member(id=key, **values) for key, values in found]
            return [
                item.created for item in store[Member].bulk_create(objects, on_conflict="ignore" if ignore else "error")
            ]

        self.both(verb)

    @rule(one=KEYS, other=KEYS)
    def exchange_scores(self, one: int, other: int) -> None:
        def verb(store: Store) -> bool:
            found = store[Member].in_bulk([one, other])
            if len(found) < 2:
                return False
            scores = {key: member.score for key, member in found.items()}
            store[Member].patch(one, score=scores[other])
            store[Member].patch(other, score=scores[one])
            return True

        self.both(verb)

    @rule(key=KEYS, new_key=KEYS)
    def rename(self, key: int, new_key: int) -> None:
        self.both(lambda store: store[Member].rename(key, new_key).model_dump())

    @rule(key=KEYS, email=EMAILS.filter(bool), score=st.integers(-2, 3))
    def update_or_create(self, key: int, email: str, score: int) -> None:
        def verb(store: Store) -> tuple[dict[str, Any], bool]:
            member, created = store[Member].update_or_create(
                email=email, defaults={"score": score}, create_defaults={"id": key, "city": "z"}
            )
            return member.model_dump(), created

        self.both(verb)

    @rule(found=st.dictionaries(KEYS, VALUES, max_size=3))
    def create_or_replace(self, found: dict[int, dict[str, Any]]) -> None:
        def verb(store: Store) -> list[bool]:
            objects = [Member(id=key, **values) for key, values in found.items()]
            return [item.created for item in store[Member].bulk_create(objects, on_conflict="update")]

        self.both(verb)

    @rule(city=CITIES, other=CITIES, by=st.integers(-2, 2))
    def update_found(self, city: str, other: str, by: int) -> None:
        self.both(
            lambda store: store[Member].filter(city=city).update(score=F("score") + by, city=other, active=True).written
        )

    @rule(team=TEAMS, many=st.integers(1, 2), back=st.booleans())
    def delete_found(self, team: str, many: int, back: bool) -> None:
        order = ("-team", "score") if back else ("team", "-score")
        self.both(lambda store: store[Member].filter(team=team).order_by(*order)[:many].delete().written)

    @rule(city=CITIES, team=TEAMS)
    def load_and_update(self, city: str, team: str) -> None:
        def verb(store: Store) -> list[dict[str, Any]]:
            found = store[Member].filter(city=city).to_list()
            for member in found:
                member.team, member.active = team, True
            store[Member].bulk_update(found, fields=["team", "active"])
            return members(store[Member].filter(team=team))

        self.both(verb)

    @rule(name=st.sampled_from("st"), user=st.sampled_from("uv"))
    def open_session(self, name: str, user: str) -> None:
        self.both(lambda store: store[Session].create(id=name, user=user).model_dump())

    @rule(name=st.sampled_from("st"))
    def close_session(self, name: str) -> None:
        self.both(lambda store: store[Session].remove(name))

    @rule(number=RAW, value=st.integers(0, 3))
    def set_raw(self, number: int, value: int) -> None:
        self.both(lambda store: store.kv.set(("raw", number), value) and None)

    @rule(kind=st.sampled_from(["sum", "min", "max"]), number=st.integers(5, 6), operand=st.integers(0, 9))
    def count_raw(self, kind: str, number: int, operand: int) -> None:
        def verb(store: Store) -> None:
            if isinstance(store, Database):
                getattr(store.kv.atomic(), kind)(("raw", number), operand).commit()
            else:
                getattr(store.kv, kind)(("raw", number), operand)

        self.both(verb)

    @rule(number=st.integers(0, 6))
    def delete_raw(self, number: int) -> None:
        self.both(lambda store: store.kv.delete(("raw", number)))

    @invariant()
    def the_answers_are_equal(self) -> None:
        if self.tx is not None:
            assert answers(self.tx) == answers(self.mirror)


def test_a_transaction_answers_as_a_database_to_which_the_same_was_written():
    run_state_machine_as_test(OwnWrites, settings=settings(max_examples=of_check(6), stateful_step_count=20))


@pytest.mark.soak
def test_a_transaction_answers_so_for_long():
    run_state_machine_as_test(OwnWrites, settings=settings(max_examples=400, stateful_step_count=40))
