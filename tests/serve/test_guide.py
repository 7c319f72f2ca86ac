"""The programs of Deno in the documentation run, with the URL of a served store as their argument."""

from __future__ import annotations

import re

from kvmodels import KvU64, open_kv
from kvmodels.ext.serve import AccessToken, KvConnectServer, ServedStore
from tests.serve.serving import TOKEN, deno, running
from tests.source_tree import REPOSITORY

PROGRAMS = {"guides/share-with-deno.md": ['[ "settings", "theme" ] { dark: true }\n']}
"""The output of the programs of each page."""


async def test_the_programs_of_the_guides_print_what_they_promise(tmp_path):
    pages = {path: path.read_text("utf-8") for path in (REPOSITORY / "docs").rglob("*.md")}
    found = {str(path.relative_to(REPOSITORY / "docs")): programs_of(page) for path, page in pages.items()}
    assert {page: len(programs) for page, programs in found.items() if programs} == {
        page: len(outputs) for page, outputs in PROGRAMS.items()
    }
    for page, outputs in PROGRAMS.items():
        for program, output in zip(found[page], outputs, strict=True):
            (tmp_path / "program.ts").write_text(program)
            with open_kv(codec="v8") as kv:
                app = KvConnectServer([ServedStore(kv, [AccessToken(TOKEN)])])
                async with running(app) as port:
                    assert await deno(tmp_path / "program.ts", tmp_path, f"http://127.0.0.1:{port}") == output
                assert kv.get(("visits",)).value == KvU64(1)


def programs_of(page: str) -> list[str]:
    # Those with models: tests/deno/test_shared_store.py.
    blocks = re.findall(r"^```ts\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [block for block in blocks if "@kvmodels/kvmodels" not in block]
