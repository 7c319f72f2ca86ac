"""Sequences, deques, the dicts of ``collections`` and secrets are equal after a write to what a read gives."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from typing import Any

import pydantic
import pytest
from pydantic import BaseModel

from kvmodels import Database, Field, InvalidValueError, KvModel, MultiIndexed, PrimaryKey

DAY = date(2020, 1, 2)


class Cat(BaseModel):
    lives: int = 9


class Box(KvModel, collection="boxes"):
    id: PrimaryKey[int]
    seq: Sequence[Any] = ()
    days: Mapping[date, int] = Field(default_factory=dict)
    queue: deque[Cat] = Field(default_factory=deque)
    groups: defaultdict[str, list[Cat]] = Field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = Field(default_factory=Counter)
    order: OrderedDict[str, date] = Field(default_factory=OrderedDict)
    secret: pydantic.Secret[Cat] | None = None


@pytest.mark.parametrize(
    ("field", "given", "kept"),
    [
        ("seq", (1, 2), [1, 2]),
        ("seq", deque([1, 2], maxlen=2), [1, 2]),
        ("seq", range(2), [0, 1]),
        ("days", OrderedDict({DAY: 1}), {DAY: 1}),
        ("queue", [Cat()], deque([Cat()])),
        ("groups", {"a": [Cat()]}, defaultdict(list, a=[Cat()])),
        ("groups", defaultdict(lambda: [Cat()], a=[Cat()]), defaultdict(list, a=[Cat()])),
        ("counts", {"a": 1}, Counter("a")),
        ("order", OrderedDict(b=DAY, a=DAY), OrderedDict(b=DAY, a=DAY)),
        ("secret", pydantic.Secret[Cat](Cat(lives=1)), pydantic.Secret[Cat](Cat(lives=1))),
    ],
)
def test_an_object_holds_after_a_write_what_a_read_gives(field: str, given: Any, kept: Any):
    with Database("memory://", models=[Box]) as db:
        box = Box(**{"id": 1, field: given})
        db[Box].insert(box)
        for value in (getattr(box, field), getattr(db[Box].get(1), field)):
            assert (value, type(value)) == (kept, type(kept))
            if isinstance(value, defaultdict):
                assert value.default_factory is list
        assert db.check().ok


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("queue", deque([Cat()], maxlen=1), "queue"),
        ("seq", "text", "seq"),
        ("seq", b"bytes", "seq"),
    ],
)
def test_a_value_that_a_read_would_give_otherwise_is_refused(field: str, value: Any, path: str):
    with Database("memory://", models=[Box]) as db:
        with pytest.raises(InvalidValueError) as caught:
            db[Box].insert(Box.model_construct(**{**Box(id=1).__dict__, field: value}))
        assert caught.value.field == path
        assert db[Box].count() == 0


@pytest.mark.parametrize("field", ["seq_of_cats", "queue", "groups", "secret"])
def test_models_inside_of_collections_are_validated_at_every_write(field: str):
    class Cats(Box, collection="cats"):
        seq_of_cats: Sequence[Cat] = ()

    cat = Cat.model_construct(lives="many")
    wrong = {
        "seq_of_cats": (cat,),
        "queue": deque([cat]),
        "groups": defaultdict(list, a=[cat]),
        "secret": pydantic.Secret[Cat](cat),
    }
    with Database("memory://", models=[Cats]) as db, pytest.raises(pydantic.ValidationError, match="lives"):
        db[Cats].insert(Cats.model_construct(**{**Cats(id=1).__dict__, field: wrong[field]}))


def test_an_unchanged_collection_keeps_its_identity_in_a_write():
    with Database("memory://", models=[Box]) as db:
        queue, counts = deque([Cat()]), Counter("a")
        box = Box.model_construct(**{**Box(id=1).__dict__, "queue": queue, "counts": counts})
        db[Box].insert(box)
        assert box.queue is queue
        assert box.counts is counts


def test_a_sequence_and_a_set_can_be_indexed_by_their_elements():
    class Post(KvModel, collection="posts"):
        id: PrimaryKey[int]
        tags: MultiIndexed[Sequence[str]] = Field(default=())
        days: MultiIndexed[AbstractSet[date]] = Field(default_factory=frozenset)

    with Database("memory://", models=[Post]) as db:
        db[Post].create(id=1, tags=("a", "b"), days={DAY})
        db[Post].create(id=2, tags=["b"])
        assert [post.id for post in db[Post].filter(tags__contains="b")] == [1, 2]
        assert [post.id for post in db[Post].filter(tags=["a", "b"]).allow_scan()] == [1]
        assert [post.id for post in db[Post].filter(days__contains=DAY)] == [1]
        assert [post.id for post in db[Post].filter(days={DAY}).allow_scan()] == [1]
        assert db.check().ok
