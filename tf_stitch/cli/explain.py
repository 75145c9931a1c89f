"""`tf-stitch explain`: what would be stitched of a SavedModel, and why the rest would not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tf_stitch.cli import output
from tf_stitch.cli.convert import BASELINES
from tf_stitch.cli.exit_codes import Exit
from tf_stitch.config import ABLATIONS, default_config
from tf_stitch.errors import UsageError


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--html",
    "html_path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page with a picture of each cluster.",
)
@click.option("--dot", "as_dot", is_flag=True, help="Print the clusters as a digraph for Graphviz.")
@click.option("--node", metavar="NAME", help="Tell what becomes of this node alone.")
@click.option("--target", metavar="TARGET", default="cpu", show_default=True, help="As for convert.")
@click.option(
    "--cpu-baseline",
    type=click.Choice(BASELINES),
    default="native",
    show_default=True,
    help="As for convert.",
)
@click.option("--ablate", metavar="SWITCH", type=click.Choice(ABLATIONS), multiple=True, help="As for convert.")
@output.json_option
@click.pass_context
def explain(
    ctx: click.Context,
    path: Path,
    *,
    html_path: Path | None,
    as_dot: bool,
    node: str | None,
    target: str,
    cpu_baseline: str,
    ablate: tuple[str, ...],
    as_json: bool,
) -> None:
    """Tells what would be stitched of the SavedModel in PATH, how, and why the rest would not.

    Nothing is compiled, and PATH is not touched. The exit status is 3 where nothing would be stitched.
    """
    if sum((as_json, as_dot, node is not None)) > 1:
        raise click.UsageError("--json, --dot and --node exclude one another")
    if not path.is_dir():
        raise UsageError(f"{path} does not exist; give the directory of a SavedModel.")
    output.import_tensorflow()
    from tf_stitch.report.explain import explain as explain_model

    config = replace(default_config().without(ablate), target=target, cpu_baseline=cpu_baseline)
    with output.quietly("planning"):
        explanation = explain_model(path, config=config)
    if html_path is not None:
        try:
            html_path.write_text(explanation.to_html(), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{html_path} cannot be written: {error}.") from error
        output.log(f"written to {html_path}")
    if as_json:
        output.print_json(explanation.to_json())
    elif as_dot:
        click.echo(explanation.to_dot(), nl=False)
    elif node is not None:
        found = explanation.node(node)
        if not found:
            raise UsageError(f"{path} has no node {node!r} with anything to explain.")
        click.echo(found, nl=False)
    elif html_path is None:
        click.echo(str(explanation), nl=False)
    if not explanation.clusters:
        ctx.exit(Exit.NOTHING)
