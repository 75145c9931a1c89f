"""The op table. Importing this package fills it."""

from tf_stitch.ops import composite, elementwise, gathering, movement, normalization, products, reduction
from tf_stitch.ops.opdef import (
    FUNCTIONS,
    OPS,
    REDUCERS,
    Cost,
    Function,
    Kind,
    OpDef,
    Operands,
    Reducer,
    ZeroSign,
    is_heavy,
)

__all__ = [
           "FUNCTIONS",
           "OPS",
           "REDUCERS",
           "Cost",
           "Function",
           "Kind",
           "OpDef",
           "Operands",
           "Reducer",
           "ZeroSign",
           "composite",
           "elementwise",
           "gathering",
           "is_heavy",
           "movement",
           "normalization",
           "products",
           "reduction",
]  # fmt: skip
