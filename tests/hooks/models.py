"""A model with every hook, which writes down what is called with what."""

from __future__ import annotations

from typing import Any, ClassVar

from kvmodels import Field, Indexed, KvModel, PrimaryKey, Unique


class Page(KvModel, collection="pages"):
    """Hooks make the slug, and note every call in ``heard``."""

    id: PrimaryKey[int]
    title: str
    slug: Indexed[str] = Field(default="")
    path: Unique[str | None] = Field(default=None)
    tags: list[str] = Field(default_factory=list)
    _note: str = ""

    heard: ClassVar[list[tuple[Any, ...]]] = []

    def before_insert(self) -> None:
        self.slug = self.title.lower()
        self._note = "by hook"
        self.heard.append(("before_insert", self.id, self.title))

    def before_update(self, old: Any) -> None:
        self.slug = self.title.lower()
        self.heard.append(("before_update", self.id, self.title, old.title))

    def before_remove(self) -> None:
        self.heard.append(("before_remove", self.id, self.title))

    def after_insert(self) -> None:
        self.heard.append(("after_insert", self.id, self.slug, self.is_persisted))

    def after_update(self, old: Any) -> None:
        self.heard.append(("after_update", self.id, self.slug, old.slug))

    def after_remove(self) -> None:
        self.heard.append(("after_remove", self.id, self.slug, self.is_persisted))


class Plain(KvModel, collection="plain"):
    """No hook at all."""

    id: PrimaryKey[int]
    n: int = 0
