"""An LMDB file that was cut short is refused when it is opened, and a whole one that is short is not."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from kvmodels import DecodeError, open_kv
from kvmodels.engines.lmdb.pages import is_cut_short

READ = "import sys; from kvmodels import open_kv; print(open_kv('lmdb:///' + sys.argv[1], readonly=True).count(()))"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "store"
    with open_kv(f"lmdb:///{path}") as kv:
        for n in range(300):
            kv.set(("a", n), "x" * (n * 30))
    return path


@pytest.fixture
def folder(stored: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stored, tmp_path / "store")


def cut(folder: Path, size: int) -> Path:
    copy = folder.with_name(f"cut-{size}")
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    os.truncate(copy / "data.mdb", size)
    return copy


@pytest.mark.parametrize("part", [0.01, 0.1, 0.5, 0.9, 0.97])
@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_that_lacks_pages_is_refused(folder: Path, part: float, readonly: bool):
    copy = cut(folder, int((folder / "data.mdb").stat().st_size * part))
    for name in ("lock.mdb", "writer.lock") if part == 0.5 else ():  # as a copy of the data alone
        (copy / name).unlink()
    with pytest.raises(DecodeError) as caught:
        open_kv(f"lmdb:///{copy}", readonly=readonly)
    assert "cut short" in str(caught.value.reason)


def test_a_file_that_lacks_only_free_pages_is_read(folder: Path):
    with open_kv(f"lmdb:///{folder}") as kv:
        for n in range(10, 300):
            kv.delete(("a", n))
    size = (folder / "data.mdb").stat().st_size
    copy = cut(folder, size) / "data.mdb"
    shortest = size
    while not is_cut_short(str(copy)):
        shortest = copy.stat().st_size
        os.truncate(copy, shortest - 4_096)
    assert shortest < size
    done = subprocess.run(
        [sys.executable, "-c", READ, str(cut(folder, shortest))], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr


def test_a_file_is_never_refused_after_a_commit(tmp_path: Path):
    draw = random.Random(1)
    environment = lmdb.open(str(tmp_path), map_size=1 << 28, max_dbs=2, sync=False)
    plain, sorted_ = environment.open_db(b"plain"), environment.open_db(b"sorted", dupsort=True)
    for _ in range(300):
        with environment.begin(write=True) as transaction:
            for _ in range(draw.randint(1, 60)):
                key = b"%d" % draw.randint(0, 900)
                transaction.put(key, b"x" * draw.choice([10, 200, 9_000]), db=plain)
                transaction.put(b"%d" % draw.randint(0, 3), key * 9, db=sorted_)
            for _ in range(draw.randint(0, 60)):
                transaction.delete(b"%d" % draw.randint(0, 900), db=plain)
        assert not is_cut_short(str(tmp_path / "data.mdb"))
    environment.close()
