"""Models whose relations name a class that is declared later, in a module that postpones annotations."""

from __future__ import annotations

import kvmodels
from kvmodels import KvModel, ManyToMany, PrimaryKey
from kvmodels import ManyToMany as Many


class Article(KvModel, collection="articles"):
    id: PrimaryKey[int]
    topics: ManyToMany[Topic] = ManyToMany()
    others: Many["Topic"] = ManyToMany(related_name="other")  # noqa: UP037
    third: kvmodels.ManyToMany[Topic] = ManyToMany(related_name="third")


class Topic(KvModel, collection="topics"):
    id: PrimaryKey[int]
