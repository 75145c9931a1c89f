"""Explanation: what was stitched, how, and why the rest was not, as plain data.

    Explanation
      ExplainedGraph         one function, or a main graph
        ExplainedCluster       nodes that became one kernel
          ExplainedGroup         a loop nest of it
          ExplainedStep          a primitive of its body, with scheme and bytes
          Neighbour              a node beside it, and why it stayed outside
        Rejection              every other node, with its reason

Text, JSON, HTML and DOT are printed from this and from nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tf_stitch.ir.body import Broadcast, Constant, Elementwise, Extent, Input, Reshape
from tf_stitch.ir.printer import print_body
from tf_stitch.ir.symbols import completed
from tf_stitch.ir.types import terms_of
from tf_stitch.lower.gpu_cost import gpu_cost
from tf_stitch.lower.kernel import DerivedSymbol, SymbolSource
from tf_stitch.ops import FUNCTIONS, Cost
from tf_stitch.plan import cost
from tf_stitch.plan.pieces import stored_steps
from tf_stitch.report.neighbours import Neighbour, neighbours_of
from tf_stitch.report.sizes import known_sizes, sized, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tf_stitch.config import Config
    from tf_stitch.ir.body import Body
    from tf_stitch.ir.graph import Graph, Value
    from tf_stitch.lower.kernel import Kernel
    from tf_stitch.pipeline import Stitched, StitchedCluster
    from tf_stitch.plan.plan import Group, StitchPlan
    from tf_stitch.report.sizes import Sizes
    from tf_stitch.tuning.records import Record

Measured = Callable[["Stitched", "StitchedCluster"], "tuple[Record, ...]"]
SCHEMA = 1


@dataclass(frozen=True)
class ExplainedStep:
    """One primitive. `text` is how dumps write it; `bytes` is what its result takes up.

    kind: "input", "constant", "extent", or the name of a primitive ("reduce", "elementwise", ...).
    groups: the loop nests that compute it, most often one. role: "dominant", "sub-dominant" or "".
    scheme: where its result lives, "" where it is not computed. output: whether it leaves the cluster.
    constant: whether it is a constant, or one in another shape: not worth showing.
    """

    index: int
    text: str
    kind: str
    operands: tuple[int, ...]
    type: str
    origin: str
    groups: tuple[int, ...]
    role: str
    scheme: str
    heavy: bool
    output: bool
    constant: bool
    bytes: int
    bytes_text: str


@dataclass(frozen=True)
class ExplainedGroup:
    """One loop nest: for each of `outer`, over `inner` (none for element-wise groups)."""

    outer: tuple[str, ...]
    inner: tuple[str, ...]
    dominant: int
    sub_dominants: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def loops(self) -> str:
        rows = " × ".join(self.outer) or "1"
        return f"{rows} rows of {' × '.join(self.inner)}" if self.inner else f"{rows} elements"


@dataclass(frozen=True)
class ExplainedLaunch:
    """How a kernel runs on one GPU, and what it is estimated to cost there; see lower/gpu_cost.

    entry: the version for these sizes. blocks: of `threads` that a multiprocessor holds at a time; occupancy: of 1.
    bytes: moved, passes over memory each counted. barriers: of the grid. us: microseconds.
    """

    arch: str
    entry: str
    threads: int
    blocks: int
    occupancy: float
    bytes: int
    barriers: int
    us: float

    def __str__(self) -> str:
        held = f"{self.blocks} × {self.threads} threads on a multiprocessor ({self.occupancy:.0%})"
        return f"{self.us:.1f} µs; grid barriers: {self.barriers}; {held}"


@dataclass(frozen=True)
class ExplainedCluster:
    """What became one StitchOp.

    nodes, inputs, outputs: (name, op) and (value, type) pairs.
    symbols: what each unknown dim is, in words; unknown: those that follow from no others.
    guards: what is assumed of them, and checked at each call.
    open: dims that are known here, and that the kernel takes as they come.
    bytes_before, bytes_after: moved apart and stitched, an unknown dim counting as 1; the texts have them in.
    launches_before: nodes that move anything; stitched, all of them are one launch.
    measured: what races gave that were run on this machine, for the sizes that they were run with.
    gpus: how it runs on each of the GPUs that it is made for, an unknown dim counting as 1.
    """

    name: str
    kernel: str
    nodes: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    symbols: dict[str, str]
    unknown: tuple[str, ...]
    open: tuple[str, ...]
    guards: tuple[str, ...]
    groups: tuple[ExplainedGroup, ...]
    steps: tuple[ExplainedStep, ...]
    output_steps: tuple[int, ...]
    scratch: tuple[int, ...]
    bytes_before: int
    bytes_after: int
    bytes_before_text: str
    bytes_after_text: str
    launches_before: int
    measured: tuple[Record, ...]
    neighbours: tuple[Neighbour, ...]
    source: str
    gpus: tuple[ExplainedLaunch, ...] = ()

    @property
    def dynamic(self) -> bool:
        return bool(self.symbols)


@dataclass(frozen=True)
class ExplainedRejection:
    node: str
    op: str
    code: str
    meaning: str
    detail: str


@dataclass(frozen=True)
class ExplainedGraph:
    """name: of the function, "" for a main graph. nodes: all there are, constants and arguments included."""

    name: str
    nodes: int
    clusters: tuple[ExplainedCluster, ...]
    rejections: tuple[ExplainedRejection, ...]

    @property
    def stitched_nodes(self) -> int:
        return sum(len(c.nodes) for c in self.clusters)

    @property
    def alike(self) -> tuple[tuple[ExplainedCluster, ...], ...]:
        """The clusters, those with the same kernel together."""
        found: dict[str, list[ExplainedCluster]] = {}
        for cluster in self.clusters:
            found.setdefault(cluster.source, []).append(cluster)
        return tuple(map(tuple, found.values()))


@dataclass(frozen=True)
class StitchedAlready:
    """A StitchOp that a converted model holds."""

    name: str
    function: str
    kernel: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """See the head of this module.

    target: the path, or the name of the function. cpu: the instruction set that is generated for.
    skipped: functions that were left alone as a whole, and why.
    already: the StitchOps of a model that is converted already.
    config: what of the Config differs from the default.
    """

    target: str
    cpu: str
    graphs: tuple[ExplainedGraph, ...]
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    already: tuple[StitchedAlready, ...] = ()
    config: dict[str, object] = field(default_factory=dict[str, object])

    @property
    def clusters(self) -> tuple[ExplainedCluster, ...]:
        return tuple(c for g in self.graphs for c in g.clusters)

    @property
    def stitched_nodes(self) -> int:
        return sum(g.stitched_nodes for g in self.graphs)

    def __str__(self) -> str:
        from tf_stitch.report.text import text

        return text(self)

    def node(self, name: str) -> str:
        """What became of one node, wherever it occurs; "" where there is none of that name."""
        from tf_stitch.report.text import text_of_node

        return text_of_node(self, name)

    def to_json(self) -> dict[str, Any]:
        """Plain data, under `"schema": 1`."""
        return {
            "schema": SCHEMA,
            "target": self.target,
            "cpu": self.cpu,
            "config": self.config,
            "unknown_dims_count_as": cost.UNKNOWN_DIM,
            "graphs": [_graph_json(g) for g in self.graphs],
            "skipped": self.skipped,
            "already_stitched": [asdict(a) for a in self.already],
        }

    def to_html(self) -> str:
        """A page that stands alone, with a picture of each cluster."""
        from tf_stitch.report.html import html

        return html(self)

    def to_dot(self) -> str:
        """A digraph for Graphviz: a subgraph for each cluster."""
        from tf_stitch.report.dot import dot

        return dot(self)


def _graph_json(graph: ExplainedGraph) -> dict[str, Any]:
    clusters = [
        asdict(c)
        | {
            "dynamic": c.dynamic,
            "nodes": [{"name": name, "op": op} for name, op in c.nodes],
            "inputs": [{"value": value, "type": type_} for value, type_ in c.inputs],
            "outputs": [{"value": value, "type": type_} for value, type_ in c.outputs],
        }
        for c in graph.clusters
    ]
    counts: dict[str, int] = {}
    for rejection in graph.rejections:
        counts[rejection.code] = counts.get(rejection.code, 0) + 1
    return asdict(graph) | {"clusters": clusters, "rejection_counts": counts}


# ---- From the pipeline's data -----------------------------------------------------------------------------


def explained_graph(stitched: Stitched, config: Config, measured: Measured | None = None) -> ExplainedGraph:
    """What the pipeline made of one graph. `measured`: gives what is known of a cluster's times."""
    rejections = tuple(
        ExplainedRejection(r.node, r.op, r.reason.name, r.reason.value, r.detail) for r in stitched.rejections
    )
    clusters = tuple(
        _cluster(made, stitched, config, () if measured is None else measured(stitched, made))
        for made in stitched.clusters
    )
    return ExplainedGraph(stitched.graph.name, len(stitched.graph.nodes), clusters, rejections)


def _cluster(
    made: StitchedCluster, stitched: Stitched, config: Config, measured: tuple[Record, ...]
) -> ExplainedCluster:
    graph, found, kernel = stitched.graph, made.cluster, made.kernel
    known = known_sizes(graph, kernel, found.inputs)
    before, after = cost.apart(found.body).given(known), cost.stitched(made.plan).given(known)
    plan = replace(made.plan, body=sized(made.plan.body, known))
    counted = _counted(kernel, known)
    return ExplainedCluster(
        name=found.name,
        kernel=made.kernel.name,
        nodes=tuple((n, graph.nodes[n].op) for n in found.nodes),
        inputs=tuple(
            (str(v), str(graph.type_of(v) if t is None else typed(t, known)))
            for v, t in zip(found.inputs, plan.body.inputs, strict=True)
        ),
        outputs=tuple(
            (str(v), str(plan.body.steps[s].type)) for v, s in zip(found.outputs, plan.body.outputs, strict=True)
        ),
        symbols={s.symbol: _meaning(s, found.inputs, known) for s in kernel.symbols if s.symbol not in known},
        unknown=tuple(s.symbol for s in kernel.symbols if s.symbol not in known and isinstance(s, SymbolSource)),
        open=tuple(
            f"{_meaning(s, found.inputs, {})}, {known[s.symbol]} here"
            for s in kernel.symbols
            if s.symbol in known and isinstance(s, SymbolSource)
        ),
        guards=_assumptions(graph, kernel, found.inputs, known),
        groups=tuple(_group(plan.body, g, known) for g in plan.groups),
        steps=_steps(plan, found.inputs),
        output_steps=plan.body.outputs,
        scratch=plan.scratch,
        bytes_before=before.at(counted),
        bytes_after=after.at(counted),
        bytes_before_text=str(before),
        bytes_after_text=str(after),
        launches_before=len(cost.by_node(found.body)),
        measured=measured,
        neighbours=neighbours_of(found, stitched, config),
        source=made.source.text,
        gpus=_launches(made, known),
    )


def _counted(kernel: Kernel, known: Sizes) -> Sizes:
    """What each symbol counts as where one number is wanted."""
    unknown = {s.symbol: cost.UNKNOWN_DIM for s in kernel.symbols if isinstance(s, SymbolSource)}
    return completed(unknown | known, kernel.derivations)


def _launches(made: StitchedCluster, known: Sizes) -> tuple[ExplainedLaunch, ...]:
    costs = [gpu_cost(schedules, target, _counted(made.kernel, known)) for target, schedules in made.gpus]
    return tuple(
        ExplainedLaunch(c.arch, c.entry, c.threads, c.blocks, c.occupancy, c.bytes, c.barriers, c.ns / 1000)
        for c in costs
    )


def _meaning(source: SymbolSource | DerivedSymbol, inputs: Sequence[Value], known: Sizes) -> str:
    if isinstance(source, DerivedSymbol):
        terms = terms_of(term.given(known) for term in source.derivation.terms)
        return str(replace(source.derivation, terms=terms))
    divisor = source.divisor.given(known)
    divided = "" if divisor.is_one else f" / {divisor}"
    return f"dim {source.axis} of {inputs[source.input].node}{divided}"


def _assumptions(graph: Graph, kernel: Kernel, inputs: Sequence[Value], known: Sizes) -> tuple[str, ...]:
    """The guards that are no more than what the graph says of its shapes left out."""
    words: list[str] = []
    for guard in kernel.guards:
        shape, dim = graph.type_of(inputs[guard.input]).shape, guard.dim.given(known)
        if not dim.is_static or shape is None or shape[guard.axis] != dim:
            words.append(f"dim {guard.axis} of {inputs[guard.input].node} is {dim}")
    for bound in kernel.bounds:
        small, large = bound.small.given(known), bound.large.given(known)
        if not (small.is_static and large.is_static and small.coefficient <= large.coefficient):
            words.append(f"{small} is at most {large}")
    return tuple(words)


def _group(body: Body, group: Group, known: Sizes) -> ExplainedGroup:
    computed = dict.fromkeys(
        i.step for i in group.instances if not i.loaded and not isinstance(body.steps[i.step].op, Constant | Extent)
    )
    return ExplainedGroup(
        tuple(str(a.extent.given(known)) for a in group.outer),
        tuple(str(a.extent.given(known)) for a in group.inner),
        group.dominant,
        group.sub_dominants,
        tuple(computed),
    )


def _steps(plan: StitchPlan, inputs: Sequence[Value]) -> tuple[ExplainedStep, ...]:
    body = plan.body
    lines = print_body(body).splitlines()
    groups: dict[int, list[int]] = {}
    roles: dict[int, str] = {}
    for number, group in enumerate(plan.groups):
        for step in _group(body, group, {}).steps:
            groups.setdefault(step, []).append(number)
        roles |= {s: roles.get(s) or "sub-dominant" for s in group.sub_dominants}
        roles[group.dominant] = "dominant"
    for whole in (*body.outputs, *plan.scratch):  # a concatenation is where its pieces are
        if whole not in groups:
            groups[whole] = sorted({n for piece in stored_steps(body, [whole]) for n in groups.get(piece, ())})
    constants: set[int] = set()
    found: list[ExplainedStep] = []
    for index, step in enumerate(body.steps):
        moved = isinstance(step.op, Reshape | Broadcast) and step.operands[0] in constants
        if moved or isinstance(step.op, Constant | Extent):
            constants.add(index)
        size = cost.Bytes.of((cost.size(step.type),))
        scheme = plan.schemes.get(index)
        heavy = isinstance(step.op, Elementwise) and _is_heavy(step.op.function)
        found.append(
            ExplainedStep(
                index=index,
                text=lines[index].partition(" = ")[2].rpartition(" : ")[0].rstrip(),
                kind=type(step.op).__name__.lower(),
                operands=step.operands,
                type=str(step.type),
                origin=inputs[step.op.index].node if isinstance(step.op, Input) else step.origin,
                groups=tuple(groups.get(index, ())),
                role=roles.get(index, ""),
                scheme="" if scheme is None or isinstance(step.op, Input) else scheme.name,
                heavy=heavy,
                output=index in body.outputs,
                constant=index in constants,
                bytes=size.at(),
                bytes_text=str(size),
            )
        )
    return tuple(found)


def _is_heavy(function: str) -> bool:
    return function in FUNCTIONS and FUNCTIONS[function].cost is Cost.HEAVY
