"""torch.compile on a case: its graph, op by op, as torch functions; inductor makes C++ of them.

Runs in the environment of `make venv-peers`. A graph becomes a torch.fx.GraphModule first, so what is called has no
more guards than a function that is written by hand. Where torch has a function of its own for an op (softmax,
variance), that is its form; gradient ops are spelled as the formulas that torch derives.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from bench.peers_case import Exported, read_arrays, write_arrays
from bench.peers_protocol import Calls, Refused

Attributes = Mapping[str, Any]
Form = Callable[..., Any]


def prepared(directory: Path) -> Calls:
    """Calls of a chain, and of all of it but the copies; what it computes goes to torch.npz, as right.npz is."""
    case = Exported.read(directory)
    if case.whole:
        raise Refused("whole models are not mapped to torch")
    arguments = [torch.from_numpy(a) for a in read_arrays(directory / "arguments.npz")]
    step = torch.compile(function_of(directory), dynamic=False)
    nothing = torch.compile(lambda x, *_: (x.reshape(-1)[:1] + 1.0,), dynamic=False)
    rests = [case.rest_of_copy(n, arguments) for n in range(case.copies)]

    def chain(function: Callable[..., Any], handing_on: bool) -> list[Any]:
        x = arguments[0]
        emitted: list[Any] = []
        for rest in rests:
            result, *more = function(x, *rest)
            x = result if handing_on else x
            emitted += more
        return [x, *emitted]

    one = step(arguments[0], *rests[0])
    last = [chain(step, True)[0]] if case.copies > 1 else []
    write_arrays(directory / "torch.npz", [t.numpy() for t in (*one, *last)])
    chain(nothing, False)
    return {"torch": lambda: chain(step, True), "torch empty": lambda: chain(nothing, False)}


def use(threads: int) -> None:
    torch.set_grad_enabled(False)
    torch.set_num_threads(threads)


def function_of(directory: Path) -> Any:
    """The graph in a directory as a GraphModule from its inputs to a tuple of its outputs.

    Raises:
      Refused: for an op that has no form here.
    """
    graph = json.loads((directory / "graph.json").read_text())
    missing = sorted({node["op"] for node in graph["nodes"]} - FORMS.keys())
    if missing:
        raise Refused(f"no torch form of {', '.join(missing)}")

    traced = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(traced)
    values = {name: torch.fx.Proxy(traced.placeholder(f"input_{n}"), tracer) for n, name in enumerate(graph["inputs"])}
    for name, array in zip(graph["constants"], read_arrays(directory / "constants.npz"), strict=True):
        values[name] = _constant(array, traced, tracer)
    for node in graph["nodes"]:
        results = FORMS[node["op"]](node["attributes"], *(values[name] for name in node["inputs"]))
        results = results if isinstance(results, tuple) else (results,)
        values.update({f"{node['name']}:{n}": result for n, result in enumerate(results)})
    traced.output(tuple(values[name].node for name in graph["outputs"]))
    return torch.fx.GraphModule({}, traced)


def _constant(array: np.ndarray, traced: Any, tracer: Any) -> Any:
    """A number where it is one, so that inductor prints it; an array where it is axes or a shape, which forms ask for
    when the graph is made; else a tensor of the graph."""
    if array.ndim == 0:
        return array.item()
    if array.dtype.kind != "f":
        return array
    return torch.fx.Proxy(traced.call_function(torch.tensor, (array.tolist(),)), tracer)


_BATCH = [0, 1, 2]  # the axes of an image but its channels

# ---- forms: attributes, operands -> result or results --------------------------------------------


def _axes(axes: Any) -> list[int]:
    return [int(axis) for axis in np.ravel(axes)]


def _plain(function: Form) -> Form:
    return lambda _, *operands: function(*operands)


def _bounded(both: Form, clamp: Form) -> Form:
    """both: of two tensors. clamp: of a tensor and a number."""

    def bounded(_: Attributes, a: Any, b: Any) -> Any:
        if isinstance(a, float | int):
            a, b = b, a
        return clamp(a, b) if isinstance(b, float | int) else both(a, b)

    return bounded


def _reduced(function: Form) -> Form:
    return lambda attributes, x, axes: function(x, dim=_axes(axes), keepdim=attributes["keep_dims"])


def _bias(attributes: Attributes, x: Any, bias: Any) -> Any:
    _channels_last(attributes)
    return x + bias


def _bias_gradient(attributes: Attributes, dy: Any) -> Any:
    _channels_last(attributes)
    return dy.flatten(0, -2).sum(0)


def _batchnorm(attributes: Attributes, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    _channels_last(attributes)
    if not attributes["is_training"]:
        y = (x - mean) * (scale * torch.rsqrt(variance + attributes["epsilon"])) + offset
        return y, mean, variance, mean, variance, variance
    if attributes["exponential_avg_factor"] != 1.0:
        raise Refused("no torch form of FusedBatchNormV3 with a moving average")
    variance, mean = torch.var_mean(x, _BATCH, correction=0)
    of_sample = torch.var(x, _BATCH, correction=1)
    y = (x - mean) * (scale * torch.rsqrt(variance + attributes["epsilon"])) + offset
    return y, mean, of_sample, mean, variance, variance


def _batchnorm_gradient(attributes: Attributes, dy: Any, x: Any, scale: Any, mean: Any, variance: Any, _: Any) -> Any:
    _channels_last(attributes)
    if not attributes["is_training"]:
        raise Refused("no torch form of FusedBatchNormGradV3 outside of training")
    inverse = torch.rsqrt(variance + attributes["epsilon"])
    normal = (x - mean) * inverse
    doffset, dscale = dy.sum(_BATCH), (dy * normal).sum(_BATCH)
    shares = dy.mean(_BATCH), (dy * normal).mean(_BATCH)
    return scale * inverse * (dy - shares[0] - normal * shares[1]), dscale, doffset, mean, mean


def _cross_entropy(_: Attributes, logits: Any, labels: Any) -> Any:
    logs = torch.log_softmax(logits, -1)
    return -(labels * logs).sum(-1), torch.exp(logs) - labels


def _sparse_cross_entropy(_: Attributes, logits: Any, labels: Any) -> Any:
    logs = torch.log_softmax(logits, -1)
    labels = labels.long()
    losses = -logs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    hot = torch.zeros_like(logs).scatter(-1, labels.unsqueeze(-1), 1.0)
    return losses, torch.exp(logs) - hot


def _strided_slice(attributes: Attributes, x: Any, begin: Any, end: Any, strides: Any) -> Any:
    def masked(name: str, axis: int) -> int:
        return attributes[f"{name}_mask"] >> axis & 1

    index: list[Any] = []
    for axis, (b, e, s) in enumerate(zip(*map(_axes, (begin, end, strides)), strict=True)):
        if masked("ellipsis", axis):
            index.append(...)
        elif masked("new_axis", axis):
            index.append(None)
        elif masked("shrink_axis", axis):
            index.append(b)
        else:
            index.append(slice(None if masked("begin", axis) else b, None if masked("end", axis) else e, s))
    return x[tuple(index)]


def _split(attributes: Attributes, axis: Any, x: Any) -> Any:
    parts = torch.chunk(x, attributes["num_split"], int(axis))
    return tuple(parts[n] for n in range(attributes["num_split"]))


def _squeezed(attributes: Attributes, x: Any) -> Any:
    return torch.squeeze(x, tuple(attributes["squeeze_dims"])) if attributes["squeeze_dims"] else torch.squeeze(x)


def _channels_last(attributes: Attributes) -> None:
    if attributes["data_format"] != "NHWC":
        raise Refused(f"no torch form for {attributes['data_format']}")


_ELEMENTWISE: dict[str, Form] = {
    "Add": operator.add,
    "AddV2": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "RealDiv": operator.truediv,
    "Pow": operator.pow,
    "SquaredDifference": lambda a, b: torch.square(a - b),
    "Abs": torch.abs,
    "Neg": torch.neg,
    "Square": torch.square,
    "Sqrt": torch.sqrt,
    "Rsqrt": torch.rsqrt,
    "Reciprocal": torch.reciprocal,
    "Exp": torch.exp,
    "Log": torch.log,
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "Erf": torch.erf,
    "Erfc": torch.erfc,
    "Relu": torch.relu,
    "ReluGrad": lambda dy, y: torch.where(y > 0, dy, 0.0),
    "RsqrtGrad": lambda y, dy: -0.5 * dy * (y * y * y),
    "AddN": lambda *addends: sum(addends[1:], start=addends[0]),
    "Identity": lambda x: x,
    "StopGradient": lambda x: x,
}

FORMS: dict[str, Form] = {
    **{op: _plain(function) for op, function in _ELEMENTWISE.items()},
    "Maximum": _bounded(torch.maximum, torch.clamp_min),
    "Minimum": _bounded(torch.minimum, torch.clamp_max),
    "L2Loss": lambda _, x: torch.square(x).sum() * 0.5,
    "Mean": _reduced(torch.mean),
    "Sum": _reduced(torch.sum),
    "Max": _reduced(torch.amax),
    "Softmax": lambda _, x: torch.softmax(x, -1),
    "LogSoftmax": lambda _, x: torch.log_softmax(x, -1),
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
    "BiasAdd": _bias,
    "BiasAddGrad": _bias_gradient,
    "FusedBatchNormV3": _batchnorm,
    "FusedBatchNormGradV3": _batchnorm_gradient,
    "Reshape": lambda _, x, shape: torch.reshape(x, _axes(shape)),
    "Squeeze": _squeezed,
    "ExpandDims": lambda _, x, axis: torch.unsqueeze(x, int(axis)),
    "Tile": lambda _, x, times: x.repeat(_axes(times)),
    "Pack": lambda a, *parts: torch.stack(parts, a["axis"]),
    "Split": _split,
    "StridedSlice": _strided_slice,
}
