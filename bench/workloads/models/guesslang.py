"""guesslang: the programming language of a text. Trained; TF1-style, with strings, While and If."""

from __future__ import annotations

import numpy as np

from bench.workloads.models.model import Inputs, Model, Size

LINES = [
    b"def area(r):\n    return 3.14 * r ** 2\n",
    b"#include <stdio.h>\nint main(void) { return 0; }\n",
    b"SELECT name, count(*) FROM users GROUP BY name;\n",
    b'fn main() { println!("{}", 1 + 2); }\n',
    b"const f = (x) => x.map((y) => y * 2);\n",
    b'package main\nimport "fmt"\nfunc main() { fmt.Println(1) }\n',
]


def _inputs(random: np.random.Generator, size: Size) -> Inputs:
    (batch,) = size
    texts = [b"".join(LINES[i] for i in random.integers(0, len(LINES), 3)) for _ in range(batch)]
    return {"inputs": np.array(texts)}


GUESSLANG = Model(
    name="guesslang",
    notes="byte n-grams hashed into an embedding, a linear and a deep part, a table of names",
    packages=("guesslang==2.2.1",),
    shipped="guesslang/data/model",
    sizes=((1,), (4,)),
    make_inputs=_inputs,
)
