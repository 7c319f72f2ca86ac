"""The table of what is left to `make check` names modules and tests that exist, and each of them once."""

from __future__ import annotations

import re

from tests.check_suites import LEFT_TO_CHECK, TABLES
from tests.source_tree import REPOSITORY


def test_the_modules_and_tests_that_are_left_to_check_exist():
    missing = [name for name in LEFT_TO_CHECK if not _exists(*name.partition("::")[::2])]
    assert not missing


def test_no_test_is_left_twice():
    assert sum(map(len, TABLES)) == len(LEFT_TO_CHECK)
    assert not [name for name in LEFT_TO_CHECK if "::" in name and name.partition("::")[0] in LEFT_TO_CHECK]


def _exists(module: str, test: str) -> bool:
    path = REPOSITORY / f"{module.replace('.', '/')}.py"
    return (
        path.is_file()
        and re.search(rf"^(async )?def {test or 'test_'}", path.read_text("utf-8"), re.MULTILINE) is not None
    )
