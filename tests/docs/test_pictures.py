"""The pictures in the documentation are those that their tables draw."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET

from tests.source_tree import REPOSITORY

FOLDER = REPOSITORY / "docs" / "concepts"


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
