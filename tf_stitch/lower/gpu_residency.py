"""Whether what the compiler made of a kernel's entries can be launched as the Launch says."""

from __future__ import annotations

from collections.abc import Mapping

from tf_stitch.ir.types import Dim
from tf_stitch.lower.gpu_launch import Launch, Variant
from tf_stitch.plan.gpu_target import GpuTarget
from tf_stitch.toolchain.cubin import Resources

_PARAMETER_BYTES = 8


def residency_problem(launch: Launch, entries: Mapping[str, Resources], target: GpuTarget) -> str | None:
    """What is wrong, for people; None where nothing is.

    Every entry has the parameters that it will be given, and a multiprocessor holds as many of its blocks as it was
    planned for, where they wait for each other, else at least one. Shared memory that depends on the shape is left to
    the conditions of the variant, and looked at once more at the launch.
    """
    for variant in launch.variants:
        entry = entries.get(variant.entry)
        if entry is None:
            return f"there is no entry {variant.entry}"
        given = _PARAMETER_BYTES * len(launch.parameters)
        if entry.parameter_bytes != given:
            return f"{variant.entry} takes {entry.parameter_bytes} bytes of parameters, and is given {given}"
        held = target.blocks_together(variant.threads, entry.registers, entry.shared_bytes + _known_bytes(variant))
        wanted = variant.blocks if variant.resident else 1
        if held < wanted:
            return (
                f"{variant.entry} needs {entry.registers} registers a thread and {entry.shared_bytes} bytes of shared "
                f"memory, so that {held} of its blocks fit on a multiprocessor instead of {wanted}"
            )
    return None


def _known_bytes(variant: Variant) -> int:
    shared = variant.shared
    return shared.coefficient if isinstance(shared, Dim) and shared.is_static else 0
