"""What products of matrices read: values that lie in memory, stored by groups before.

    y = tanh(x + b) @ w        one nest for tanh(x + b), [M, K], and one for the product, [M, N] over K
    dx = dy @ transpose(w)     one nest that stores w the other way round, so that its columns are neighbours

Computed where it is read, a factor would be computed again for each of the N columns, and the loop over K would be no
longer one of multiplications alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_stitch.ir.body import Body, Broadcast, Concat, Constant, Extent, Input, Reduce, Transpose, View
from tf_stitch.ops.products import PRODUCTS
from tf_stitch.plan.drafts import Draft
from tf_stitch.plan.pieces import has_pieces


def factors(body: Body) -> set[int]:
    """The steps that are computed for products, and nothing else about them: inputs are in memory, and so is what has
    groups of its own anyway.
    """
    found: set[int] = set()
    for index in range(len(body.steps)):
        for source in _sources(body, index):
            if not isinstance(body.steps[source].op, Input | Constant | Extent | Concat | Reduce):
                found.add(source)
    return found


def computes_factors(body: Body, draft: Draft) -> bool:
    """Whether a group computes what a product of its own reads, in place of loading it."""
    sources = {source for product in draft.reductions for source in _sources(body, product)}
    computed = sources & draft.maps.keys() - draft.loaded
    return any(not isinstance(body.steps[s].op, Input | Constant | Extent) for s in computed)


def _sources(body: Body, product: int) -> Iterator[int]:
    """Where the two factors of a product come from, but for movement that leaves rows and columns what they are."""
    op = body.steps[product].op
    if not isinstance(op, Reduce) or op.function != PRODUCTS:
        return
    for operand in body.steps[body.steps[product].operands[0]].operands:
        source = operand
        in_columns = False
        while isinstance(op := body.steps[source].op, View):
            before = body.steps[source].operands[0]
            if isinstance(op, Broadcast):
                in_columns = not body.steps[before].type.dims[-1].is_one
            # Heads that are put together, say, in which k would go in leaps; or columns that lie crosswise. But what
            # only moves a concatenation is in memory anyway.
            elif isinstance(op, Transpose) and (len(op.permutation) > 2 or in_columns) and not has_pieces(body, source):
                break
            source = before
        yield source
