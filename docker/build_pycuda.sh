#!/usr/bin/env bash
# Builds a wheel of PyCUDA, without cuRAND, on any Linux machine with a C++ compiler: no GPU, no driver and no CUDA.
#
#   docker/build_pycuda.sh [DIRECTORY]     the wheel goes to DIRECTORY, build/pycuda unless given
#
# `pip install pycuda` wants a whole CUDA toolkit: cuRAND's headers and library, and a libcuda to link with. What we
# use of PyCUDA needs the headers of the driver API alone. They come in a wheel; those of CUDA 12.5, because a PyCUDA
# works with every driver that is no older than its headers, and 12.5 is the oldest that TensorFlow 2.21 goes with.
#
# PYTHON     the Python to build for (python3)
# CUDA_HOME  a toolkit whose headers to use instead
#
# About two CPU minutes. A wheel that is there already is left alone.
set -euo pipefail

version=2026.1
headers=(nvidia-cuda-runtime-cu12==12.5.82 nvidia-cuda-profiler-api-cu12==12.5.39)
python=${PYTHON:-python3}
mkdir -p "${1:-build/pycuda}"
destination=$(cd "${1:-build/pycuda}" && pwd)

tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
if compgen -G "$destination/pycuda-$version-$tag-*.whl" >/dev/null; then
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }

if [[ -n ${CUDA_HOME:-} ]]; then
  include=$CUDA_HOME/include
else
  pip install --no-deps --target "$work/cuda" "${headers[@]}"
  mkdir "$work/include"
  cp -r "$work"/cuda/nvidia/*/include/. "$work/include"
  include=$work/include
fi

# What the extension is linked with, and nothing else: at run time it is the driver's. It exports every name that the
# headers declare, because a linker that finds nothing of use in a library leaves it out of the list of those needed.
grep -oEh '\bcu[A-Z][A-Za-z0-9]*(_v[0-9]+)?\b' "$include"/cuda.h "$include"/cudaProfiler.h | sort -u |
  sed 's/.*/int &(void) { return 3; }/' >"$work/libcuda.c"
mkdir "$work/lib"
cc -shared -fPIC -w -Wl,-soname,libcuda.so.1 -o "$work/lib/libcuda.so" -x c "$work/libcuda.c"

pip download --no-deps --no-binary pycuda --dest "$work" "pycuda==$version"
tar -xf "$work/pycuda-$version.tar.gz" -C "$work"
cat >"$work/pycuda-$version/siteconf.py" <<CONFIGURATION
CUDA_ENABLE_CURAND = False
CUDA_INC_DIR = ["$include"]
CUDADRV_LIB_DIR = ["$work/lib"]
CXXFLAGS = ["-O1", "-w"]
CONFIGURATION
pip wheel --no-deps --wheel-dir "$destination" "$work/pycuda-$version"
