"""A class that was refused when it was declared leaves the others of its collection as they were."""

from __future__ import annotations

from typing import Literal

import pytest

from kvmodels import Database, KvModel, ModelDefinitionError, PrimaryKey


class Tool(KvModel, collection="tools", discriminator="kind"):
    id: PrimaryKey[int]


class Saw(Tool):
    kind: Literal["saw"] = "saw"


def test_the_collection_is_opened_while_a_refused_class_is_still_in_memory():
    with pytest.raises(ModelDefinitionError) as refused:

        class Elsewhere(Tool, collection="elsewhere"):
            kind: Literal["elsewhere"] = "elsewhere"

    # What the error keeps is not collected, as in a notebook, which keeps the last one.
    assert [cls.__name__ for cls in Tool.__subclasses__()] == ["Saw", "Elsewhere"]
    with Database("memory://", models=[Tool]) as db:
        assert db[Saw].create(id=1) == db[Tool].get(1)
    assert refused.value.model == "Elsewhere"
