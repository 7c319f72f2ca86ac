"""The documentation strings of Python and of all packages of this environment, for the benchmarks of search.

    python -m benchmarks.documentation FILE

The environment is that of ``make bench``, with the versions in ``constraints.txt``. Reading all modules takes longer
than most benchmarks, so the texts are kept in a file, which the other commands read.
"""

from __future__ import annotations

import ast
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path


def documentation() -> Iterator[str]:
    """Yield every documentation string once, in the order of the modules' paths."""
    seen: set[str] = set()
    paths = sysconfig.get_paths()
    packages = sorted(Path(paths["purelib"]).rglob("*.py"))
    own = sorted(path for path in Path(paths["stdlib"]).rglob("*.py") if "site-packages" not in path.parts)
    for path in (*packages, *own):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue  # a template, or a test of a parser
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node)
                if text and text not in seen:
                    seen.add(text)
                    yield text


def texts_of(path: Path) -> list[str]:
    """Return the texts in a file."""
    texts: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return texts


def titles_of(path: Path, most: int) -> list[str]:
    """Return the first lines of the texts in a file that have 20 to 80 characters, each once."""
    lines = (text.strip().split("\n", 1)[0] for text in texts_of(path))
    return list(dict.fromkeys(line for line in lines if 20 <= len(line) <= 80))[:most]


if __name__ == "__main__":
    found = list(documentation())
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
    print(f"{len(found):,} texts, {sum(map(len, found)):,} characters")
