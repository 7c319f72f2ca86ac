"""The site's search leads from the words that people type to a recipe."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.source_tree import REPOSITORY

PAGES = ("recipes", "recipes-for-services", "recipes-for-data")
# Each recipe, and the words by which it must be found.
WANTED = {
    "recipes/#soft-delete": ("soft delete", "trash", "restore deleted"),
    "recipes/#tree": ("tree", "hierarchy", "folders parent"),
    "recipes/#tags": ("tags",),
    "recipes/#many-to-many": ("many-to-many", "many to many"),
    "recipes/#nearest": ("nearest", "distance", "geo"),
    "recipes/#search": ("full-text search", "search words"),
    "recipes/#find-a-part-of-a-name": ("search by a part", "substring", "substring contains"),
    "recipes/#no-double-booking": ("double booking", "reservation"),
    "recipes/#leaderboard": ("leaderboard", "rank", "top ten players"),
    "recipes-for-services/#idempotency-keys": ("idempotency keys", "retry request"),
    "recipes-for-services/#rate-limit": ("rate limit", "throttle"),
    "recipes-for-data/#audit-and-history": ("audit", "history", "who changed"),
    "recipes-for-data/#job-queue": ("job queue", "background tasks"),
    "recipes-for-data/#cache-with-expiry": ("cache expiry", "ttl"),
    "recipes-for-data/#import-of-csv": ("import csv", "load csv file"),
    "recipes-for-data/#export-to-a-data-frame": ("export data frame", "pandas", "dataframe"),
    "recipes-for-data/#files": ("files", "upload", "blobs"),
    "recipes-for-data/#secrets": ("secrets", "password"),
    "recipes-for-data/#similar-texts": ("embedding", "vector", "similar"),
    "recipes-for-data/#one-store-for-many-tenants": ("one store many tenants", "multi-tenant", "customers"),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> dict[str, str]:
    """Title and text of each section in the search index of a site of the recipes, by the address of the section."""
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "docs").mkdir()
    for name in PAGES:
        shutil.copy(REPOSITORY / f"docs/guides/{name}.md", folder / "docs")
    (folder / "mkdocs.yml").write_text("site_name: recipes\nplugins: [search]\ntheme: mkdocs\n")
    build(load_config(str(folder / "mkdocs.yml")))
    sections = json.loads(Path(folder / "site/search/search_index.json").read_text("utf-8"))["docs"]
    return {section["location"]: f"{section['title']} {section['text']}".casefold() for section in sections}


@pytest.mark.parametrize(
    ("address", "typed"), [(address, typed) for address, words in WANTED.items() for typed in words]
)
def test_a_recipe_is_found_by_the_words_that_people_type(index, address, typed):
    words = set(re.findall(r"\w+", index[address]))
    assert [word for word in re.findall(r"\w+", typed) if word not in words] == []


def test_a_word_that_no_recipe_has_is_not_found(index):
    assert all("blockchain" not in text for text in index.values())
