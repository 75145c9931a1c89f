"""What the documents claim is so: commands, options, variables, files, and blocks that are generated."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import tf_stitch
from tf_stitch.cli import cli
from tf_stitch.cli.exit_codes import Exit

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def commands(group: click.Group = cli, path: str = "tf-stitch") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                found |= commands(command, f"{path} {name}")
            elif command is not None:
                found[f"{path} {name}"] = command
    return found


def options(command: click.Command) -> set[str]:
    return {o for p in command.params if isinstance(p, click.Option) for o in p.opts if o.startswith("--")}


def test_the_table_of_commands_is_complete_and_true():
    rows = re.findall(r"^\| `(tf-stitch [^`]*)` \|.*\| (.*) \|$", README, re.MULTILINE)
    listed = {re.sub(r" [A-Z]+\b.*", "", name): set(re.findall(r"`(--[\w-]+)`", told)) for name, told in rows}
    assert listed == {name: options(command) for name, command in commands().items()}


def test_every_option_is_explained_once():
    explained = re.findall(r"^\| `(--[\w-]+)", README, re.MULTILINE)
    known = set.union(*map(options, commands().values())) - {"--json"}
    assert sorted(explained) == sorted(known)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_examples_exist(document):
    for line in re.findall(r"^tf-stitch .*|`(tf-stitch [^`]+)`", document.read_text(encoding="utf-8"), re.MULTILINE):
        words = line.split()
        name = next((" ".join(words[:n]) for n in (3, 2) if " ".join(words[:n]) in commands()), None)
        if words:
            assert name is not None, line
            assert {w.partition("=")[0] for w in words if w.startswith("--")} <= options(commands()[name])


def test_exit_codes():
    sentence = README[README.index("Exit status:") :].replace("\n", " ")
    for code in Exit:
        assert f"{code.value} {code.meaning}" in sentence


def test_variables_are_read_somewhere():
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in (*(ROOT / "tf_stitch").rglob("*.py"), *(ROOT / "kernels").glob("*.cc"))
    )
    listed = set(re.findall(r"^\| `([A-Z_]+)", README, re.MULTILINE))
    read = set(re.findall(r'"(TF_STITCH\w*)"', sources)) | {"CXX"}
    assert listed == read


def test_public_names():
    for name in re.findall(r"tf_stitch\.(\w+)", README):
        assert hasattr(tf_stitch, name), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_files_exist(document):
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (document.parent / link).exists(), link
    for path in re.findall(r"`((?:tf_stitch|tests|docs|kernels|bench)/[\w./]*)`", text):
        assert (ROOT / path).exists(), path


def test_modules_of_the_house_exist():
    house = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listing = house[house.index("tf_stitch/   __init__") :].partition("```")[0]
    package = ""
    for line in listing.partition("kernels/ ")[0].splitlines()[1:]:
        words = re.sub(r"\(.*?\)|   +\S.*$", "", line[13:]).split()
        package = line[:12].strip().rstrip("/") or package
        for word in words:
            assert (ROOT / "tf_stitch" / package / f"{word}.py").exists(), f"{package}/{word}"


def test_tensorflow_is_imported_only_where_the_house_says():
    allowed = ("frontend/", "runtime/stitch_op.py", "api.py", "cli/")
    package = ROOT / "tf_stitch"
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        imports = re.search(r"^ *(import|from) tensorflow\b", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert imports is None or name.startswith(allowed), name


def test_make_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([\w-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_python_examples_compile():
    examples = re.findall(r"```python\n(.*?)```", "".join(d.read_text(encoding="utf-8") for d in DOCUMENTS), re.DOTALL)
    assert len(examples) >= 4
    for example in examples:
        compile(example, "example", "exec")


def test_the_op_table_is_current():
    from tf_stitch.ops.__main__ import markdown

    written = (ROOT / "docs" / "ops.md").read_text(encoding="utf-8")
    assert written == markdown(), "docs/ops.md is out of date; run `python -m tf_stitch.ops > docs/ops.md`"


def test_the_tour_is_current():
    from docs import build_tour

    written = build_tour.TOUR.read_text(encoding="utf-8")
    assert written == build_tour.current(written), "docs/tour.md is out of date; run `python -m docs.build_tour`"
    assert "<!-- begin source -->\n```cpp\n" in written
