"""The op table. Importing this package fills it."""

from tf_stitch.ops import (
    composite,
    convolution,
    elementwise,
    gathering,
    movement,
    normalization,
    padding,
    products,
    reduction,
)
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
           "convolution",
           "elementwise",
           "gathering",
           "is_heavy",
           "movement",
           "normalization",
           "padding",
           "products",
           "reduction",
]  # fmt: skip
