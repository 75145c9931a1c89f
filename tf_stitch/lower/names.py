"""Identifiers for generated code, made of the names of TensorFlow nodes."""

from __future__ import annotations

import re

from tf_stitch.ops import FUNCTIONS

# C++'s own words, then the types of the prelude, then what the printer calls things.
_RESERVED = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl concept
    const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires return short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq

    i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 boolean same vec stitch

    begin begin_row call count end end_row n row state tiles width

    above at barrier column depth e element even group height index inside k lane p piece piece_length pieces scratch
    last rows share shared thread together turn unit units wave waves whole_warp""".split()
)
_NUMBERED = re.compile(r"([ioqr]|partial)\d+")  # coordinates of loops, and accumulators
# What the printers name after a buffer or a reduction.
_ENDINGS = re.compile(r"_(at|down|end|kept|pack|part|piece|places|slots|tile|totals|value|parts\d+|tiles\d+)$")
# Functions of the prelude: a variable of the same name would hide them.
_CALLED = frozenset(name for f in FUNCTIONS.values() for name in re.findall(r"[a-z_]\w*", f.cpp + f.cuda)) | frozenset(
    """load store load_strided store_strided splat convert to_mask round_to_f16 round_to_bf16 accumulator first
    repeat iota load_constant load_fresh across leave collect collect_down behind within smaller waves_of""".split()
)
_LONGEST = 40


class Names:
    """Hands out identifiers, each once."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def fresh(self, node: str, role: str = "") -> str:
        """An identifier that recalls the last parts of a node's name ("encoder/ln/mul_1" -> "mul_1")."""
        stem = re.sub(r"_\d+$", "", identifier(node.rsplit("/", 1)[-1])) or "v"
        if _ENDINGS.search(stem) or _NUMBERED.fullmatch(stem):
            stem = f"{stem}_"
        if role:
            stem = f"{stem}_{role}"
        return self.take(stem)

    def take(self, stem: str) -> str:
        """`stem` itself if it is free, else `stem` with a number."""
        if stem not in self._taken and stem not in _RESERVED | _CALLED:
            self._taken[stem] = 1
            return stem
        while True:
            number = self._taken.get(stem, 1) + 1
            self._taken[stem] = number
            candidate = f"{stem}_{number}"
            if candidate not in self._taken:
                self._taken[candidate] = 1
                return candidate


def identifier(text: str) -> str:
    """`text` as a C identifier. Node names are untrusted: nothing but letters, digits and _ gets through."""
    cleaned = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower()[:_LONGEST].strip("_")
    if not cleaned or cleaned[0].isdigit():
        cleaned = f"v{cleaned}"
    return cleaned
