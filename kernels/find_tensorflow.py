"""Prints `directory;version` of the TensorFlow that this interpreter would import, without importing it."""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly")


def version_beside(package: Path) -> str:
    """The version of the TensorFlow distribution that is installed in the same directory as `package`."""
    for distribution in importlib.metadata.distributions(path=[str(package.parent)]):
        if distribution.metadata["Name"].lower().replace("_", "-") in DISTRIBUTIONS:
            return distribution.version
    sys.exit(f"no TensorFlow distribution is recorded beside {package}")


def main() -> None:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("no module named tensorflow")
    package = Path(next(iter(spec.submodule_search_locations)))
    print(f"{package};{version_beside(package)}", end="")


main()
