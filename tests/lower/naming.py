"""Bodies whose symbols a language can name."""

from __future__ import annotations

from tf_stitch.ir.body import Body
from tf_stitch.passes.canonical import canonical_symbols


def nameable(body: Body) -> Body:
    """The body, its symbols renamed where one says what it follows from: "(S + 2)" is no name in C++."""
    return canonical_symbols(body) if body.derivations else body
