"""Where the native parts of the package are: the library, and the headers that generated kernels include.

A wheel has them all in ``tf_stitch/_native``. An editable install keeps the Python files in the checkout and
``_native`` in site-packages; there the headers are read from the checkout, where they are edited.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tf_stitch
from tf_stitch.errors import EnvironmentProblem

LIBRARY = "libtf_stitch.so"
BUILD_RECORD = "build.json"


def native_dir() -> Path:
    """The directory that holds the library and the record of its build.

    Raises:
      EnvironmentProblem: when the package was never built.
    """
    # An editable install lists site-packages in `__path__`. Where `tf_stitch` is imported straight from a
    # checkout, say from the working directory, an installed copy elsewhere on sys.path still has the library.
    packages = [*tf_stitch.__path__, *(str(Path(entry) / "tf_stitch") for entry in sys.path)]
    for package in packages:
        directory = Path(package) / "_native"
        if (directory / LIBRARY).is_file():
            return directory
    raise EnvironmentProblem(
        f"{LIBRARY} is not installed beside tf_stitch; run `pip install --no-build-isolation -e .` in the checkout."
    )


def library_path() -> Path:
    """The shared library with StitchOp and the Grappler hook."""
    return native_dir() / LIBRARY


def build_record_path() -> Path:
    """JSON: the TensorFlow version and the kernel ABI that the library was built for."""
    return native_dir() / BUILD_RECORD


def include_root() -> Path:
    """What generated kernels are compiled with as ``-I``: has ``abi.h`` and ``prelude/cpu``."""
    checkout = Path(__file__).resolve().parents[2] / "kernels"
    if (checkout / "abi.h").is_file():
        return checkout
    return native_dir()
