"""Refusals of a query by a name that is not that of an index of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from kvmodels import (
    Database,
    KvModel,
    NoUsableIndexError,
    PrimaryKey,
    SearchIndex,
    UnknownFieldError,
    Vector,
    VectorIndex,
)

V2: Any = Vector.__class_getitem__(2)
V3: Any = Vector.__class_getitem__(3)


class Scene(KvModel, collection="scenes"):
    """Two indexes of vectors, and one of words."""

    id: PrimaryKey[int]
    text: str = ""
    look: V3
    sound: V2
    smell: Vector | None = None
    taste: Vector | None = None

    class Meta:
        indexes: ClassVar = (
            VectorIndex("look", name="by_look"),
            VectorIndex("sound", name="by_sound"),
            VectorIndex("taste", dim=7, name="by_taste"),
            SearchIndex("text", name="by_text"),
        )


class Note(KvModel, collection="notes"):
    """A vector without an index."""

    id: PrimaryKey[int]
    look: V3


class Page(KvModel, collection="pages"):
    """A model without vectors."""

    id: PrimaryKey[int]


@pytest.mark.parametrize(
    ("model", "by", "shown"),
    [
        (
            Scene,
            "by_lok",
            ("no index of this name", "'by_look'", "similar() takes one of: by_look, by_sound, by_taste"),
        ),
        (Scene, "meaning", ("no index of this name", "by_look, by_sound")),
        (Scene, "by_text", ("does not supply this order", "by_look, by_sound")),
        (Scene, "sound", ("no index supplies", "'by_sound'", 'add VectorIndex("sound") to')),
        (Scene, "smell", ("no index supplies", 'VectorIndex("smell", dim=...)')),
        (Scene, "taste", ("no index supplies", "'by_taste'", 'VectorIndex("taste", dim=7)')),
        (Note, "by_look", ("no index of this name", 'Note has no index for similar(): add VectorIndex("look") to')),
        (Page, "by_look", ("no index of this name", "no field that can have one")),
    ],
)
def test_a_query_by_another_name_shows_the_indexes_of_vectors(model: type[KvModel], by: str, shown: Sequence[str]):
    with pytest.raises((UnknownFieldError, NoUsableIndexError)) as caught:
        Database("memory://", models=[model])[model].similar(by, [1, 2, 3])
    assert all(one in str(caught.value) for one in shown), str(caught.value)


def test_a_search_by_another_name_shows_the_indexes_of_words():
    scenes = Database("memory://", models=[Scene])[Scene]
    with pytest.raises(UnknownFieldError, match=r"no index of this name.*search\(\) takes one of: by_text"):
        scenes.search("by_txt", "word")
