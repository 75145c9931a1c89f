"""What the library of every kernel tells its host: the `shape` function and the table of abi.h."""

from __future__ import annotations

from tf_stitch.lower.kernel import DerivedSymbol, Kernel
from tf_stitch.render.c_family import STORAGE, dim


def shape(kernel: Kernel) -> list[str]:
    lines = ["int shape(const StitchTensor* inputs, i64* symbols, i64* dims) {"]
    ranks = [
        f"inputs[{number}].rank != {len(type_.dims)}" for number, type_ in enumerate(kernel.inputs) if type_ is not None
    ]
    if ranks:
        lines.append(f"  if ({' || '.join(ranks)}) return 1;")
    for number, s in enumerate(kernel.symbols):
        if isinstance(s, DerivedSymbol):
            whole = " + ".join(map(dim, s.derivation.terms))
            by = "" if s.derivation.divisor == 1 else f" / {s.derivation.divisor}"
            lines.append(f"  const i64 {s.symbol} = symbols[{number}] = {whole} > 0 ? ({whole}){by} : 0;")
            continue
        value = f"inputs[{s.input}].dims[{s.axis}]"
        if not s.divisor.is_one:
            divisor = dim(s.divisor)
            lines.append(f"  if ({divisor} == 0 || {value} % {divisor} != 0) return 1;")
            value = f"{value} / {divisor}"
        lines += [f"  const i64 {s.symbol} = {value};", f"  symbols[{number}] = {s.symbol};"]
    for number, guard in enumerate(kernel.guards):
        lines.append(f"  if (inputs[{guard.input}].dims[{guard.axis}] != {dim(guard.dim)}) return {number + 2};")
    for number, bound in enumerate(kernel.bounds):
        lines.append(f"  if ({dim(bound.small)} > {dim(bound.large)}) return {number + 2 + len(kernel.guards)};")
    for number, i in enumerate(kernel.indices):
        type_ = kernel.inputs[i.input]
        assert type_ is not None, "indices are read"
        pointer = f"static_cast<const {STORAGE[type_.dtype]}*>(inputs[{i.input}].data)"
        arguments = f"{pointer}, {dim(type_.size)}, {i.first}, {i.step}, {dim(i.below)}"
        failed = number + 2 + len(kernel.guards) + len(kernel.bounds)
        lines.append(f"  if (!indices_within({arguments})) return {failed};")
    outputs = [d for t in kernel.outputs for d in t.dims]
    lines += [f"  dims[{n}] = {dim(d)};" for n, d in enumerate(outputs)]
    lines += ["  (void)inputs, (void)symbols, (void)dims;", "  return 0;", "}", ""]
    return lines


def table(kernel: Kernel, run: str = "run") -> list[str]:
    """Ends the anonymous namespace. run: what the table has as its `run`."""
    ranks = ", ".join(str(len(t.dims)) for t in kernel.outputs)
    forwards = ", ".join(f"{i}, {o}" for i, o in kernel.forwards)
    texts = ['"the inputs have the ranks that were planned for"'] + [
        f'"{g.text}"' for g in (*kernel.guards, *kernel.bounds)
    ]
    texts += [f'"{within}"' for within in kernel.indices]
    return [
        f"const int ranks[] = {{{ranks}}};",
        f"const int forwards[] = {{{forwards + ', ' if forwards else ''}-1}};",
        f"const char* const guards[] = {{{', '.join(texts)}}};",
        "}  // namespace",
        "",
        'extern "C" __attribute__((visibility("default"))) const StitchKernel tf_stitch_kernel = {',
        f"    TF_STITCH_ABI_VERSION, {len(kernel.inputs)}, {len(kernel.outputs)}, {len(kernel.symbols)}, {len(texts)},",
        f'    ranks, forwards, "{kernel.name}", guards, shape, {run}}};',
    ]
