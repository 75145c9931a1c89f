"""A GPU kernel's host part: C++ that carries the compiled kernel, checks the shapes and says what to launch.

For a kernel of two variants, compiled for two architectures, it prints, in this order:

    shape                    as of every kernel; see `host_part`
    parameters_0, launch_0   of a Launch: the entries' parameters, and which variant to start on how many blocks
    modules                  architecture, image, parameters and launch function of each
    tf_stitch_kernel, tf_stitch_gpu_kernel   the two tables of abi.h

The images are arrays that the toolchain puts in front (`toolchain.cuda`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_stitch.lower.gpu_launch import ALIGNMENT, MOST_BLOCKS, Condition, Launch, Variant
from tf_stitch.lower.kernel import Kernel
from tf_stitch.render.c_family import formula
from tf_stitch.render.host_part import shape, table
from tf_stitch.toolchain.artifact import CudaSource, DeviceCode

# In place of the prelude, of which a host part needs nothing else.
_MATHEMATICS = """\
typedef long long i64;
i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
"""


@dataclass(frozen=True)
class DeviceText:
    """A kernel's CUDA C++ for one architecture, "sm_80", and how that is launched."""

    arch: str
    text: str
    launch: Launch


def bundle(kernel: Kernel, devices: Sequence[DeviceText]) -> CudaSource:
    """The source of a kernel for these architectures, the oldest first, and as PTX for all that come after the last."""
    kernel = replace(kernel, indices=())  # they lie in the GPU's memory: the entries look at each that they use
    newest = devices[-1]
    images = [*((d.arch, d) for d in devices), (newest.arch.replace("sm_", "compute_"), newest)]
    launches = list(dict.fromkeys(d.launch for _, d in images))
    lines = [
        f"// {kernel.name}: " + ", ".join(str(t) for t in kernel.outputs),
        '#include "abi.h"',
        "namespace {",
        "",
        *_MATHEMATICS.splitlines(),
        "",
        *shape(kernel),
        *(line for number, launch in enumerate(launches) for line in _launch(kernel, launch, number)),
        "const StitchModule modules[] = {",
        *(_module(number, code, launches.index(d.launch)) for number, (code, d) in enumerate(images)),
        "};",
        *table(kernel, run="nullptr"),
        "",
        'extern "C" __attribute__((visibility("default"))) const StitchGpuKernel tf_stitch_gpu_kernel = {',
        f"    TF_STITCH_GPU_ABI_VERSION, {ALIGNMENT}, {len(images)}, modules}};",
    ]
    codes = tuple(DeviceCode(code, d.text) for code, d in images)
    return CudaSource(kernel.name, _for_people(devices), "\n".join(lines) + "\n", codes)


def _for_people(devices: Sequence[DeviceText]) -> str:
    """All there is to read: where architectures differ, one text after the other."""
    archs: dict[str, list[str]] = {}
    for device in devices:
        archs.setdefault(device.text, []).append(device.arch)
    if len(archs) == 1:
        return devices[0].text
    return "\n".join(f"// ---- {', '.join(of)} ----\n{text}" for text, of in archs.items())


def _module(number: int, code: str, launch: int) -> str:
    is_ptx = code.startswith("compute_")
    arch = code.removeprefix("compute_").removeprefix("sm_")
    count = f"sizeof(parameters_{launch}) / sizeof(StitchParameter)"
    return (
        f"    {{{arch}, {int(is_ptx)}, image_{number}, sizeof(image_{number}) - 1, {count}, parameters_{launch}, "
        f"launch_{launch}}},"
    )


def _launch(kernel: Kernel, launch: Launch, number: int) -> list[str]:
    parameters = ", ".join(f"{{STITCH_{kind.name}, {which}}}" for kind, which in launch.parameters)
    lines = [
        f"const StitchParameter parameters_{number}[] = {{{parameters}}};",
        "",
        f"void launch_{number}(const i64* symbols, i64 multiprocessors, StitchLaunch* launch) {{",
        *(f"  [[maybe_unused]] const i64 {s.symbol} = symbols[{n}];" for n, s in enumerate(kernel.symbols)),
    ]
    for variant in launch.variants:
        conditions = [_condition(c) for c in variant.conditions]
        lines += [f"  if ({' && '.join(conditions)}) {{" if conditions else "  {", *_variant(variant), "  }"]
    return [*lines, "  (void)multiprocessors;", "}", ""]


def _condition(condition: Condition) -> str:
    return f"{formula(condition.small)} <= {formula(condition.large)}"


def _variant(variant: Variant) -> list[str]:
    limit = f"{variant.blocks} * multiprocessors" if variant.resident else str(MOST_BLOCKS)
    blocks = f"smaller({formula(variant.units)}, {limit})"
    numbers = (blocks, str(variant.threads), formula(variant.shared), formula(variant.scratch))
    return [f'    *launch = {{"{variant.entry}", {int(variant.resident)}, {", ".join(numbers)}}};', "    return;"]
