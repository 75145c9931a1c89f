"""What g++ has to be told of a `.cu` text before it compiles it: where `__shared__` variables lie, and which functions
are kernels. Everything else of CUDA's dialect is declared in `kernels/emulator/device.h`.

`__shared__` cannot be a macro, because the variable's address differs from block to block. So the preprocessed text is
rewritten, declaration by declaration, each within its line: line numbers stay what they are.

    __shared__ float red[32];         float (&red)[32] = ::stitch_emulator::shared<float[32], 0>([] { return "red"; });
    extern __shared__ float row[];    float* const row = static_cast<float*>(...::stitch_emulator_dynamic_shared());
"""

from __future__ import annotations

import re

_BOUNDS = r"(?:__launch_bounds__\s*\([^)]*\)\s*)?"
_KERNEL = re.compile(rf"__global__\s+{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(")
_SHARED = re.compile(r"(?P<extern>\bextern\s+)?\b__shared__\s+(?P<rest>[^;]*);")
_ALIGNED = re.compile(r"(?:alignas|__align__|__attribute__\s*\(\s*\(\s*aligned)\s*\(\s*(\d+)\s*\)(?:\s*\)\s*\))?")
_DECLARATOR = re.compile(r"^(?P<type>.*?[\s>*])(?P<name>\w+)\s*(?P<dims>(?:\[[^]]*\]\s*)*)$", re.DOTALL)


def kernels(text: str) -> tuple[str, ...]:
    """The names of the `__global__` functions of a `.cu` text, comments aside, in order."""
    return tuple(_KERNEL.findall(without_comments(text)))


def without_comments(text: str) -> str:
    """`text` with its comments blank, line for line."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL)


def with_shared_memory(preprocessed: str) -> str:
    """`preprocessed` text with its `__shared__` declarations as references to the block's memory, line for line."""
    return _SHARED.sub(_declared, preprocessed)


def _declared(match: re.Match[str]) -> str:
    rest = match["rest"]
    alignments = [int(a) for a in _ALIGNED.findall(rest)]
    declarator = _DECLARATOR.match(_ALIGNED.sub(" ", rest).strip())
    if declarator is None or "," in re.sub(r"[\[<(].*?[\])>]", "", rest):
        raise ValueError(f"`__shared__ {rest};` is no declaration of one variable: give each its own")
    kind, name, dims = declarator["type"].strip(), declarator["name"], declarator["dims"].strip()
    lines = "\n" * match[0].count("\n")
    if match["extern"]:
        return (
            f"{kind}* const {name} = static_cast<{kind}*>(::stitch_emulator::stitch_emulator_dynamic_shared());{lines}"
        )
    alignment = max(alignments, default=0)
    where = f'::stitch_emulator::shared<{kind}{dims}, {alignment}>([] {{ return "{name}"; }})'
    return f"{kind} (&{name}){dims} = {where};{lines}"
