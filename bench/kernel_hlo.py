"""The launches of a compiled XLA program: its optimised HLO tells what they are, a trace how often they ran."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bench.kernel_rule import Kind, Launch, kind_of_instruction

_HEADER = re.compile(r"^(?:ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) (?P<opcode>[a-z][\w\-]*)\((?P<rest>.*)$"
)
_OPERANDS = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_NUMBER = re.compile(r"\d+")
# The instructions of their computations are launched one by one.
_CONTAINERS = {"while", "conditional", "call"}
# A call that XLA compiles to a kernel of its own, loops and all.
_ONE_KERNEL = 'xla_cpu_small_call="true"'


@dataclass(frozen=True)
class Instruction:
    """called: the computations that it names. sizes: elements of each result. bytes: of all of them."""

    name: str
    opcode: str
    operands: tuple[str, ...]
    called: tuple[str, ...]
    sizes: tuple[int, ...]
    bytes: int
    one_kernel: bool


def launches(hlo: str, times: Mapping[str, int]) -> tuple[Launch, ...]:
    """A fusion is one, a loop's body counts as often as it ran.

    times: name of an instruction → how often it was launched. Those of fused computations are not asked for.

    Raises:
      ValueError: where an instruction was launched that isn't in the text.
    """
    computations = _computations(hlo)
    by_name = {i.name: i for computation in computations.values() for i in computation}
    if unknown := sorted(set(times) - set(by_name)):
        raise ValueError(f"{unknown[0]} was launched, but the HLO doesn't have it")
    found: list[Launch] = []
    for name, count in times.items():
        instruction = by_name[name]
        inside = list(_opcodes(instruction, computations))
        if instruction.opcode in _CONTAINERS and not instruction.one_kernel:
            kind = Kind.VIEW
        else:
            sizes = [s for part in (name, *instruction.operands) for s in by_name[part].sizes]
            kind = kind_of_instruction(inside, sizes)
        found.append(Launch(name, _label(instruction, inside), kind, count))
    return tuple(found)


def moved(hlo: str) -> dict[str, int]:
    """Bytes of the operands, each once, and the results of every instruction of the entry computation."""
    entry = {i.name: i for i in _computations(hlo)[_entry(hlo)]}
    return {
        name: instruction.bytes + sum(entry[operand].bytes for operand in dict.fromkeys(instruction.operands))
        for name, instruction in entry.items()
    }


def _entry(hlo: str) -> str:
    return next(
        match["name"] for line in hlo.splitlines() if line.startswith("ENTRY") and (match := _HEADER.match(line))
    )


def _bits(dtype: str) -> int:
    """Of an element: 32 of f32, 8 of pred, 8 of f8e4m3fn."""
    number = _NUMBER.search(dtype)
    return int(number[0]) if number else 8


def _opcodes(instruction: Instruction, computations: Mapping[str, tuple[Instruction, ...]]) -> Iterable[str]:
    """Of what the instruction computes: its own opcode, unless it only wraps others."""
    if instruction.opcode not in {"fusion", *_CONTAINERS}:
        yield instruction.opcode
        return
    for name in instruction.called:
        for inner in computations[name]:
            yield from _opcodes(inner, computations)


def _label(instruction: Instruction, inside: Iterable[str]) -> str:
    if instruction.opcode != "fusion":
        return instruction.opcode
    movements = {"parameter", "constant", "bitcast", "broadcast", "tuple", "get-tuple-element"}
    return f"fusion of {', '.join(sorted(set(inside) - movements)) or 'movements'}"


def _computations(hlo: str) -> dict[str, tuple[Instruction, ...]]:
    found: dict[str, list[Instruction]] = {}
    name = ""
    for line in hlo.splitlines():
        if not line.startswith((" ", "HloModule")) and (header := _HEADER.match(line)):
            name = header["name"]
            found[name] = []
        elif name and (match := _INSTRUCTION.match(line)):
            found[name].append(_instruction(match))
    return {name: tuple(lines) for name, lines in found.items()}


def _instruction(match: re.Match[str]) -> Instruction:
    operands, _, attributes = match["rest"].partition(")")
    results = [
        (dtype, math.prod(map(int, filter(None, dims.split(","))))) for dtype, dims in _ARRAY.findall(match["type"])
    ]
    branches = _BRANCHES.search(attributes)
    called = _CALLED.findall(attributes) + (_OPERANDS.findall(branches[1]) if branches else [])
    return Instruction(
        name=match["name"],
        opcode=match["opcode"],
        operands=tuple(_OPERANDS.findall(operands)),
        called=tuple(called),
        sizes=tuple(count for _, count in results),
        bytes=sum(-(-count * _bits(dtype) // 8) for dtype, count in results),
        one_kernel=_ONE_KERNEL in attributes,
    )
