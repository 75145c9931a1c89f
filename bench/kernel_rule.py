"""What counts as a launch of a memory-intensive kernel: one rule for ops of TensorFlow and instructions of HLO.

    what runs         TensorFlow: an op that its executor runs      XLA: an instruction of the optimised HLO
    not a kernel      names, views, bookkeeping, control flow       the same
    not ours          products, convolutions, FFTs, sorts,          the same, custom calls, and fusions
                      with what is fused into them                  that hold one of them
    too small         no operand and no result has more than SMALL elements: arithmetic on shapes, loop counters
    counts            all the rest, each time that it runs

A size that isn't known is taken for large. Nothing is read of what an op costs, or of who made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

# The most dims that a tensor of TensorFlow has: a shape fits, and so do the numbers that are computed from it.
SMALL = 8


class Kind(Enum):
    VIEW = "name, view or bookkeeping"
    COMPUTE = "compute-intensive"
    SMALL = "small"
    MEMORY = "memory-intensive"


@dataclass(frozen=True)
class Launch:
    """One op or instruction, and how often it ran in a step. `op`: its type, as TensorFlow or HLO calls it."""

    name: str
    op: str
    kind: Kind
    times: int


def kernels(launches: Iterable[Launch]) -> int:
    return sum(launch.times for launch in launches if launch.kind is Kind.MEMORY)


def kind_of_op(op: str, sizes: Iterable[int | None]) -> Kind:
    """`sizes`: elements of each operand and result, None where it isn't known."""
    plain = _KERNEL_PREFIX.sub("", op)
    if plain in _VIEW_OPS or plain.startswith(_VIEW_PREFIXES):
        return Kind.VIEW
    if _COMPUTE_OP.search(plain):
        return Kind.COMPUTE
    return _by_size(sizes)


def kind_of_instruction(opcodes: Iterable[str], sizes: Iterable[int | None]) -> Kind:
    """`opcodes`: of the instruction and, where it is a fusion, of all that is fused in it."""
    opcodes = set(opcodes)
    if opcodes <= _VIEW_OPCODES:
        return Kind.VIEW
    if opcodes & _COMPUTE_OPCODES:
        return Kind.COMPUTE
    return _by_size(sizes)


def _by_size(sizes: Iterable[int | None]) -> Kind:
    return Kind.SMALL if all(size is not None and size <= SMALL for size in sizes) else Kind.MEMORY


# oneDNN's kernels, and the fused ones of Grappler, go by the name of what they replace.
_KERNEL_PREFIX = re.compile(r"^_?(MklNative|Mkl)?_?(?=[A-Z])")
_COMPUTE_OP = re.compile(
    r"MatMul|Einsum|Conv(?!ert)|FFT|LSTMBlock|BlockLSTM|GRUBlock|BlockGRU|CudnnRNN|Cholesky|Triangular|Svd|Qr$"
    r"|TopK|Sort|Unique"
)
# The elements of a TensorList are tensors that it refers to: none is copied until it is stacked.
_VIEW_PREFIXES = ("Placeholder", "Ref")
_VIEW_OPS = frozenset(
    """
    Arg Retval Const Identity IdentityN Reshape ExpandDims Squeeze Bitcast StopGradient PreventGradient
    Shape ShapeN Rank Size EnsureShape BroadcastGradientArgs
    NoOp Assert Print PrintV2 CheckNumerics Send Recv HostSend HostRecv ControlTrigger
    VarHandleOp ReadVariableOp VarIsInitializedOp TemporaryVariable DestroyTemporaryVariable
    Switch Merge Enter Exit NextIteration LoopCond If StatelessIf Case StatelessCase While StatelessWhile
    PartitionedCall StatefulPartitionedCall SymbolicGradient
    TensorListReserve TensorListGetItem TensorListSetItem TensorListLength TensorListElementShape TensorListResize
    TensorListPushBack TensorListPopBack EmptyTensorList
    TensorArrayV3 TensorArrayReadV3 TensorArrayWriteV3 TensorArraySizeV3 TensorArrayCloseV3
    """.split()
)

_VIEW_OPCODES = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all add-dependency opt-barrier domain".split()
)
_COMPUTE_OPCODES = frozenset("dot convolution custom-call fft sort topk cholesky triangular-solve scaled-dot".split())
