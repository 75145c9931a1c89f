"""The paper's tables again, its figures beside ours, with what differs said plainly.

Ours come from files of `bench models`, `kernels`, `gpu` and `ablation`: where there are several of one command, the
last counts. A table stands where there is at least one figure of ours for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from bench import paper, report_ablation
from bench import report_values as values
from bench.paper import PaperModel, SpeedUp
from bench.report_parts import Column, Entry, Run, Section, Table
from bench.report_values import number, text
from bench.results import Row, geomean

Rows = dict[str, Sequence[Row]]  # by command
_MEASURES = (("kernels", "kernels", values.count), ("bytes", "MB", values.megabytes), ("ms", "ms", values.ms))

_MACHINE = (
    f"The paper measured on {paper.MACHINE}; here it is a CPU and TensorFlow 2.21. A launch costs a GPU about 10 µs, a "
    "CPU about 1, so what is saved by launching less weighs less here."
)
_MODELS = (
    "The models are public implementations of the same architectures, with random weights, at the sizes named here."
)


def sections(runs: Sequence[Run]) -> list[Section]:
    rows: Rows = {run.command: [r for r in run.rows if not values.is_absent(r)] for run in runs}
    made = (
        _speedups(rows, training=False),
        _speedups(rows, training=True),
        _kernels(rows),
        _ablation(rows),
        _traffic(rows),
        _compile(rows),
    )
    tables = tuple(table for table in made if table is not None)
    return [Section("Beside the AStitch paper", (_MACHINE, _MODELS), tables=tables)] if tables else []


def _columns(*titles: str) -> tuple[Column, ...]:
    return (Column(titles[0], is_text=True), *map(Column, titles[1:]))


def _of(rows: Iterable[Row], model: PaperModel, *, training: bool = False) -> Row | None:
    """The first row of a model: where there are several numbers of threads, that of the most."""
    names = {f"{name}-train" if training else name for name in (model.bench, f"{model.bench}-base")}
    found = [row for row in rows if text(row, "model") in names]
    return max(found, key=lambda row: number(row, "threads") or 0.0, default=None)


def _size(row: Row | None) -> str:
    return text(row, "size") or values.NONE


# -- speed -------------------------------------------------------------------------------------------------------


def _speedups(rows: Rows, *, training: bool) -> Table | None:
    of_models = rows.get("models", ())
    entries, ours = [], list[Row]()
    for model in paper.MODELS:
        theirs: SpeedUp | None = model.training if training else model.inference
        batch = (model.training_batch or values.NONE) if training else model.batch
        row = _of(of_models, model, training=training)
        if theirs is None and row is None:
            continue
        ours += [row] if row is not None else []
        entries.append(Entry((model.name, *_theirs(theirs), *_ours(row), str(batch), _size(row))))
    if not ours:
        return None
    mean_tf, mean_xla = (
        (paper.TRAINING_OVER_TF, paper.TRAINING_OVER_XLA)
        if training
        else (paper.INFERENCE_OVER_TF, paper.INFERENCE_OVER_XLA)
    )
    means = [values.times(geomean(number(row, f"{way}_over_stitch") for row in ours)) for way in ("tf", "xla")]
    entries.append(Entry(("mean", values.times(mean_tf), values.times(mean_xla), *means, "", "")))
    title = f"Speed-up, {'training' if training else 'inference'}: AStitch's and ours"
    columns = _columns("model", "paper, TF", "paper, XLA", "ours, TF", "ours, XLA", "paper's batch", "our size")
    notes = ("over TensorFlow, over XLA; the paper's mean is arithmetic, ours geometric and of these rows alone",)
    return Table(title, columns, tuple(entries), notes)


def _theirs(found: SpeedUp | None) -> tuple[str, str]:
    return (values.times(found.astitch), values.times(found.over_xla)) if found else (values.NONE, values.NONE)


def _ours(row: Row | None) -> tuple[str, str]:
    return values.times(number(row, "tf_over_stitch")), values.times(number(row, "xla_over_stitch"))


# -- kernels -----------------------------------------------------------------------------------------------------


def _kernels(rows: Rows) -> Table | None:
    entries, ratios = [], list[float | None]()
    for model in paper.MODELS:
        row, theirs = _counted(rows, model), model.kernels
        ratio = values.over(number(row, "stitch"), number(row, "xla"))
        ratios.append(ratio or None)
        counts = (values.count(number(row, way)) for way in ("tf", "xla", "stitch"))
        entries.append(
            Entry(
                (
                    model.name,
                    str(theirs.xla),
                    str(theirs.astitch),
                    _fewer(theirs.astitch / theirs.xla),
                    *counts,
                    _fewer(ratio),
                )
            )
        )
    if not any(cell != values.NONE for entry in entries for cell in entry.cells[4:7]):
        return None
    blank = ("", "", "")
    entries.append(Entry(("mean", "", "", f"{paper.FEWER_KERNELS:.1%}", *blank, _fewer(geomean(ratios)))))
    columns = _columns("model", "paper, XLA", "AStitch", "fewer", "ours, TF", "XLA", "stitch", "fewer")
    notes = (
        "memory-intensive kernels a step; the paper's mean is arithmetic, ours geometric. XLA for CPUs calls "
        "libraries for some of what XLA for GPUs fuses; a layer here may be several times the paper's, or a fraction",
    )
    return Table("Kernels, XLA's and stitched", columns, tuple(entries), notes)


def _counted(rows: Rows, model: PaperModel) -> Row | None:
    """Of `bench kernels`, or else of `bench models`."""
    if (row := _of(rows.get("kernels", ()), model)) is not None:
        return {way: row.get(f"{way}_kernels") for way in ("tf", "xla", "stitch")}
    row = _of(rows.get("models", ()), model)
    kernels = row.get("kernels") if row else None
    return kernels if isinstance(kernels, dict) else None


def _fewer(ratio: float | None) -> str:
    return values.NONE if ratio is None else f"{1 - ratio:.1%}"


# -- ablation ----------------------------------------------------------------------------------------------------


def _ablation(rows: Rows) -> Table | None:
    of_models = [row for row in rows.get("ablation", ()) if number(row, "ways", "full", "ms")]
    if not of_models:
        return None
    entries = [_steps("CRNN in the paper", "ms", dict(paper.ABLATION_MS), _published)]
    for row in of_models:
        name = f"{text(row, 'model')} {text(row, 'size')}"
        for what, title, written in _MEASURES:
            found = {step: report_ablation.measure(row, step, what) for step in report_ablation.STEPS}
            if what == "kernels":
                found["xla"] = _xla_kernels(rows, row)
            entries.append(_steps(name if what == "kernels" else "", title, found, written))
    titles = ("XLA", *report_ablation.STEPS, "XLA/full", "fusion/full")
    columns = (Column("model", is_text=True), Column("", is_text=True), *map(Column, titles))
    notes = (
        "the paper begins with XLA itself; our first step is fusion by tf_stitch's rules that ends where XLA's does. "
        "MB: in the planner's model, of all memory-intensive kernels; no figure where it lacks many of their sizes",
    )
    return Table("Ideas taken away", columns, tuple(entries), notes)


def _steps(name: str, what: str, found: Mapping[str, float | None], written: Callable[[float | None], str]) -> Entry:
    of_steps = {step: found.get(step) for step in ("xla", *report_ablation.STEPS)}
    ratios = (values.times(values.over(of_steps[step], of_steps["full"])) for step in ("xla", "fusion"))
    return Entry((name, what, *map(written, of_steps.values()), *ratios))


def _published(ms: float | None) -> str:
    return values.NONE if ms is None else f"{ms:.2f}"


def _xla_kernels(rows: Rows, row: Row) -> float | None:
    same = ("model", "size")
    found = (r for r in rows.get("kernels", ()) if all(text(r, key) == text(row, key) for key in same))
    return next((number(r, "xla_kernels") for r in found), None)


# -- memory traffic ----------------------------------------------------------------------------------------------


def _traffic(rows: Rows) -> Table | None:
    of_gpu = [row for row in rows.get("gpu", ()) if number(row, "xla_bytes")]
    of_models = [row for row in rows.get("ablation", ()) if report_ablation.measure(row, "full", "bytes")]
    if not of_gpu and not of_models:
        return None
    entries = [
        Entry(
            (
                f"{t.what}, paper's counters",
                t.rival,
                values.times((t.rival_read + t.rival_written) / (t.read + t.written)),
            )
        )
        for t in paper.TRAFFIC
    ]
    for arch in dict.fromkeys(text(row, "arch") for row in of_gpu):
        of_arch = [row for row in of_gpu if text(row, "arch") == arch]
        ratio = geomean(values.over(number(row, "xla_bytes"), number(row, "stitch_bytes")) for row in of_arch)
        entries.append(Entry((f"{len(of_arch)} clusters for {arch.upper()}, counted", "XLA", values.times(ratio))))
    for row in of_models:
        ratio = values.over(*(report_ablation.measure(row, step, "bytes") for step in ("fusion", "full")))
        entries.append(
            Entry((f"{text(row, 'model')} {text(row, 'size')}, planner's model", "fusion alone", values.times(ratio)))
        )
    columns = (Column("what", is_text=True), Column("beside", is_text=True), Column("bytes, the other's over stitched"))
    notes = (
        "the paper's are reads and writes of DRAM as a GPU counted them. Ours are estimates: what each kernel reads "
        "and writes, whether or not it is in a cache",
    )
    return Table("Memory traffic", columns, tuple(entries), notes)


# -- compile time ------------------------------------------------------------------------------------------------


def _compile(rows: Rows) -> Table | None:
    entries = [
        Entry(
            (
                "5,000–10,000 nodes, paper",
                f"{paper.COMPILE_S['xla']:.0f}",
                f"{paper.COMPILE_S['stitch']:.0f}",
                values.times(paper.COMPILE_S["xla"] / paper.COMPILE_S["stitch"]),
            )
        )
    ]
    for model in paper.MODELS:
        row = _of(rows.get("models", ()), model)
        xla, stitch = (number(row, "compile_cpu_s", way) for way in ("xla", "stitch"))
        if stitch is not None:
            cells = values.seconds(xla), values.seconds(stitch), values.times(values.over(xla, stitch))
            entries.append(Entry((f"{text(row, 'model')} {_size(row)}", *cells)))
    if len(entries) == 1:
        return None
    columns = _columns("what", "XLA s", "stitch s", "XLA/stitch")
    notes = ("ours: CPU seconds of a first call with an empty cache, the C++ compiler's with them",)
    return Table("Compile time", columns, tuple(entries), notes)
