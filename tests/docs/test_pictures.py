"""The pictures in the documentation are those that their tables draw."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET

from kvmodels import Database, Indexed, KvModel, PrimaryKey, Unique
from tests.source_tree import REPOSITORY
from tests.test_layering import LAYERS, PURE
from tools import draw_layers

FOLDER = REPOSITORY / "docs" / "concepts"


ASSETS = REPOSITORY / "docs" / "assets"
SVG = "{http://www.w3.org/2000/svg}"


def drawing():
    spec = importlib.util.spec_from_file_location("draw_rules", FOLDER / "draw_rules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_rule_has_its_picture_as_drawn_from_the_table():
    module = drawing()
    assert list(module.RACES) == ["r1", "r2", "r3", "r4", "r5"]
    for rule, race in module.RACES.items():
        assert (FOLDER / f"{rule}.svg").read_text("utf-8") == module.draw(rule, race)


def test_pictures_are_shown_on_the_page_and_are_valid_svg():
    page = (FOLDER / "rules.md").read_text("utf-8")
    for rule, race in drawing().RACES.items():
        assert f"({rule}.svg)" in page
        root = ET.parse(FOLDER / f"{rule}.svg").getroot()
        assert root.tag.endswith("svg")
        width = float(root.attrib["viewBox"].split()[2])
        longest = max(len(text) for text in (race.without, race.within))
        assert longest * 7.2 + 180 < width, "the last lines fit into the picture"


class User(KvModel, collection="users"):
    """The user in the picture of one write."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]


def test_the_picture_of_one_write_shows_the_rows_that_the_write_changes():
    texts = [element.text or "" for element in ET.parse(ASSETS / "write.svg").getroot().iter(f"{SVG}text")]
    with Database("memory://", models=[User]) as db:
        db[User].create(id=7, email="ada@old.org", color="red")
        before = {entry.key for entry in db.kv.list(prefix=()) if entry.key[0] != "__kvmodels__"}
        eval("".join(texts[:2]), {"users": db[User]})
        after = {entry.key for entry in db.kv.list(prefix=()) if entry.key[0] != "__kvmodels__"}
    record = {("users", 7)}
    shown = [f"+ {key}" for key in after - before | record] + [f"- {key}" for key in before - after]
    assert sorted(text.replace("'", '"') for text in shown) == sorted(text for text in texts if text[1:3] == " (")


def test_logos_and_the_picture_of_one_write_are_valid_and_shown():
    pages = "".join((REPOSITORY / name).read_text("utf-8") for name in ("README.md", "docs/index.md", "mkdocs.yml"))
    for name in ("logo.svg", "logo-light.svg", "logo-dark.svg", "favicon.svg", "write.svg"):
        assert ET.parse(ASSETS / name).getroot().tag == f"{SVG}svg"
        assert f"assets/{name}" in pages


def test_the_picture_of_the_layers_is_drawn_from_its_table_and_shows_those_that_are_enforced():
    assert draw_layers.PICTURE.read_text("utf-8") == draw_layers.draw(), "run python -m tools.draw_layers"
    assert [sorted(row) for row in draw_layers.ROWS] == [sorted(layer) for layer in reversed(LAYERS)]
    assert draw_layers.PURE == PURE
    assert "(assets/layers.svg)" in (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")


def test_the_texts_in_the_picture_of_the_layers_fit_into_their_boxes():
    for row in draw_layers.ROWS:
        width = (draw_layers.WIDTH - 2 * draw_layers.EDGE) / len(row) - draw_layers.GAP
        assert max(len(text) for text in (*row, *row.values())) * 6.9 + 24 < width + draw_layers.GAP
