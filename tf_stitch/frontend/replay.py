"""What repro scripts are written in: ops by name, random inputs, and the comparison of a kernel with them."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library, op_def_registry

from tf_stitch.errors import BuildError, StitchError
from tf_stitch.plan.target import Target
from tf_stitch.report.difference import Difference, difference
from tf_stitch.runtime import stitch_op
from tf_stitch.toolchain.artifact import Source
from tf_stitch.toolchain.failure import CompileError
from tf_stitch.toolchain.host import HostToolchain

_DIFFERS = 4  # exit status


@dataclass(frozen=True)
class tensor:  # noqa: N801  reads as a call in scripts
    """An input of random elements. A dim is a number, a symbol, or a product ("64*d0"); so is the end of indices."""

    dtype: str
    dims: tuple[int | str, ...]
    below: int | str

    def __init__(self, dtype: str, *dims: int | str, below: int | str = 8) -> None:
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "below", below)

    def value(self, sizes: Mapping[str, int], rng: np.random.Generator) -> tf.Tensor:
        shape = tuple(_size(d, sizes) for d in self.dims)
        dtype = tf.as_dtype(self.dtype)
        if dtype.is_bool:
            return tf.constant(rng.random(shape) < 0.5)
        end = max(1, _size(self.below, sizes))
        made = rng.integers(0, end, shape) if dtype.is_integer else rng.standard_normal(shape)
        return tf.constant(made.astype(dtype.as_numpy_dtype))


@dataclass(frozen=True)
class extents:  # noqa: N801
    """An input that holds dims: the shape operand of a reshape, say."""

    dtype: str
    dims: tuple[int | str, ...]

    def __init__(self, dtype: str, *dims: int | str) -> None:
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "dims", dims)

    def value(self, sizes: Mapping[str, int], rng: np.random.Generator) -> tf.Tensor:
        del rng
        return tf.constant([_size(d, sizes) for d in self.dims], self.dtype)


def constant(dtype: str, value: Any, content: str = "") -> tf.Tensor:
    """A tensor of these elements, or of the shape `value` from bytes in hex."""
    numpy_dtype = tf.as_dtype(dtype).as_numpy_dtype
    if content:
        return tf.constant(np.frombuffer(bytes.fromhex(content), numpy_dtype).reshape(value))
    return tf.constant(np.asarray(value, dtype=object).astype(np.float64 if "float" in dtype else object), dtype)


def op(name: str, *inputs: Any, **attributes: Any) -> Any:
    """What TensorFlow computes for a node: a tensor, or a list where the op has several outputs.

    Only inside a tf.function.
    """
    arguments: dict[str, Any] = {}
    rest = list(inputs)
    definition: Any = op_def_registry.get(name)
    for argument in definition.input_arg:
        if argument.number_attr:
            count = attributes[argument.number_attr]
            arguments[argument.name], rest = rest[:count], rest[count:]
        else:
            arguments[argument.name] = rest.pop(0)
    inferred = {a.type_attr for a in definition.input_arg} | {a.number_attr for a in definition.input_arg}
    known = {a.name for a in definition.attr} - inferred
    arguments |= {k: v for k, v in attributes.items() if k in known}
    result = op_def_library.apply_op(name, **arguments)
    return list(result) if isinstance(result, tuple | list) else result


def main(
    cluster: Callable[..., list[tf.Tensor]],
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    *,
    source: Path,
    name: str,
    cpu: str,
) -> None:
    """Compares and prints; ends the process with status 4 where kernel and ops differ."""
    parser = argparse.ArgumentParser(description=f"kernel {name} against TensorFlow's ops")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs")
    seed = parser.parse_args().seed
    rng = np.random.default_rng(seed)
    values = [i if isinstance(i, tf.Tensor) else i.value(sizes, rng) for i in inputs.values()]
    for parameter, value in zip(inputs, values, strict=True):
        print(f"{parameter}: {value.dtype.name}{list(value.shape)}")
    try:
        key = build(source, name, cpu)
    except CompileError as error:
        sys.exit(error.report())
    except StitchError as error:
        sys.exit(str(error))
    found = compare(cluster, values, key)
    for d in found:
        verdict = d.problem or ("equal" if not d.unequal else "agrees" if d.agrees else "DIFFERS")
        ulps = "" if d.max_ulps is None else f"{d.max_ulps} ulps, "
        far = f"{ulps}{d.max_abs:.3g} absolute, {d.relative:.3g} relative"
        print(f"{d.name}: {d.dtype}{list(d.shape)} {far}: {verdict}")
    if not all(d.agrees for d in found):
        sys.exit(_DIFFERS)


def build(source: Path, name: str, cpu: str) -> str:
    """Compiles a kernel and loads it; the key to call it by.

    Raises:
      BuildError: where it does not compile or load.
      EnvironmentProblem: where there is no compiler.
    """
    toolchain = HostToolchain.find(Target.baseline(cpu))
    (artifact,) = toolchain.build([Source(name, source.read_text(encoding="utf-8"))])
    if isinstance(artifact, BuildError):
        raise artifact
    stitch_op.register_kernel(artifact.key, str(artifact.path))
    return artifact.key


def compare(cluster: Callable[..., list[tf.Tensor]], values: list[tf.Tensor], key: str) -> list[Difference]:
    """The kernel's outputs against those of the ops.

    Raises:
      SystemExit: where the kernel refuses these inputs, as a guard does.
    """
    fallback = tf.function(cluster, autograph=False)
    concrete = fallback.get_concrete_function(*(tf.TensorSpec(v.shape, v.dtype) for v in values))
    with _without_grappler():
        expected = [t.numpy() for t in concrete(*values)]
    before = stitch_op.fallbacks_of(key)
    results = stitch_op.ops().stitch_op(inputs=values, Tout=[e.dtype for e in expected], key=key, fallback=concrete)
    if stitch_op.fallbacks_of(key) != before:
        sys.exit("a guard of the kernel does not hold for these inputs: change SIZES")
    return [difference(f"output {n}", e, r.numpy()) for n, (e, r) in enumerate(zip(expected, results, strict=True))]


@contextmanager
def _without_grappler() -> Generator[None]:
    """Each op as it is: Grappler would change what is to be the measure."""
    name = "disable_meta_optimizer"
    before = tf.config.optimizer.get_experimental_options().get(name, False)
    tf.config.optimizer.set_experimental_options({name: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({name: before})


def _size(dim: int | str, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    return math.prod(int(f) if f.lstrip("-").isdecimal() else sizes[f] for f in dim.split("*"))
