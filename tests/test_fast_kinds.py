"""The mark ``fast_kinds`` is used where it is listed, so that the run without fast kinds leaves out nothing else."""

from __future__ import annotations

from tests.general_suites import ABOUT_FAST_KINDS
from tests.source_tree import REPOSITORY, python_files

MARK = "pytest.mark." + "fast_kinds"


def test_the_tests_that_need_fast_kinds_are_listed():
    tests = REPOSITORY / "tests"
    used = {
        ".".join(("tests", *path.relative_to(tests).with_suffix("").parts)): path.read_text("utf-8").count(MARK)
        for path in python_files(tests)
    }
    assert {module: number for module, number in used.items() if number} == ABOUT_FAST_KINDS
