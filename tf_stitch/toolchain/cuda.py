"""CudaToolchain: from CUDA C++ to a library that carries the compiled kernel for several GPUs.

    CudaSource ──► device compiler, for each image ──► cubins, PTX ─┐
               └─► host part, the images as arrays in front of it ──┴─► host compiler ──► .so

No GPU is needed. The library runs on the least CPU of its kind, for it only chooses what to launch.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tf_stitch.errors import BuildError
from tf_stitch.toolchain.artifact import Artifact, CudaSource, Source
from tf_stitch.toolchain.building import Job, build_once
from tf_stitch.toolchain.cubin import Resources, is_cubin, resources_of
from tf_stitch.toolchain.device_compilers import (
    IMAGE,
    OPTIONS,
    SOURCE,
    DeviceCompiler,
    find_device_compilers,
    no_device_compiler,
)
from tf_stitch.toolchain.failure import CompileError
from tf_stitch.toolchain.headers import Headers
from tf_stitch.toolchain.once import warn_once
from tf_stitch.toolchain.process import Runner

if TYPE_CHECKING:
    from tf_stitch.toolchain.artifact import DeviceCode
    from tf_stitch.toolchain.host import HostToolchain

_log = logging.getLogger("tf_stitch.toolchain")

_LITERAL_BYTES = 64  # in one line of a host part


@dataclass(frozen=True)
class Image:
    """Compiled device code: a cubin, or the text of PTX."""

    code: str
    content: bytes
    compile_seconds: float


class CudaToolchain:
    """Builds kernels for GPUs. Safe to use from many threads at a time."""

    def __init__(
        self,
        compilers: Iterator[DeviceCompiler],
        host: HostToolchain,
        headers: Headers,
        *,
        timeout: float,
    ) -> None:
        """`find` is the usual way to make one. Of `compilers`, the first that knows an architecture is tried first."""
        self._compilers = list(compilers)
        self._host = host
        self._headers = headers
        self._headers_digest = headers.digest()
        self.timeout = timeout

    @classmethod
    def find(cls, codes: Sequence[str], host: HostToolchain, timeout: float = 60.0) -> CudaToolchain:
        """The compilers of this machine. codes: what has to be compiled for: "sm_80", "compute_90".

        Raises:
          EnvironmentProblem: when one of them has no compiler.
        """
        toolchain = cls(find_device_compilers(), host, Headers.find("cuda"), timeout=timeout)
        for code in codes:
            if not toolchain.compilers_for(code):
                raise no_device_compiler(code)
        return toolchain

    def compilers_for(self, code: str) -> list[DeviceCompiler]:
        """Those that know the architecture, the best first."""
        return [compiler for compiler in self._compilers if compiler.compiles(code)]

    def image_key(self, device: DeviceCode, compiler: DeviceCompiler) -> str:
        """The content hash of an image: over all that can change a byte of it."""
        digest = hashlib.sha256()
        for part in (device.text, self._headers_digest, compiler.version, device.code, *OPTIONS):
            encoded = part.encode()
            digest.update(f"{len(encoded)}\n".encode())
            digest.update(encoded)
        return digest.hexdigest()

    def build(self, sources: Sequence[Source]) -> list[Artifact | BuildError]:
        """Each CudaSource's library, or why there is none, in the order of `sources`.

        Equal device code is compiled once; what the cache has is not compiled at all; the rest in parallel.
        """
        wanted: dict[DeviceCode, str] = {}
        for source in sources:
            assert isinstance(source, CudaSource), f"{source.name} is not for a GPU"
            for device in source.images:
                wanted.setdefault(device, source.name)
        images = self._compile_all(wanted)
        failures = [_first_failure(source, images) for source in sources]
        carriers = [_carrier(s, images) for s, failure in zip(sources, failures, strict=True) if failure is None]
        carried = iter(self._host.build(carriers))
        counted: set[DeviceCode] = set()
        return [
            failure or _completed(next(carried), source, images, counted)
            for source, failure in zip(sources, failures, strict=True)
        ]

    def image(self, device: DeviceCode, name: str, runner: Runner | None = None) -> Image | BuildError:
        """One image by itself. name: of the kernel, for messages."""
        first_failure: BuildError | None = None
        for compiler in self.compilers_for(device.code):
            built = self._image_by(compiler, device, name, runner or Runner())
            if isinstance(built, Image):
                return built
            first_failure = first_failure or built
            warn_once(_log, (device, compiler), "%s", built)
        return first_failure or BuildError(f"kernel {name}: {no_device_compiler(device.code)}")

    # ---- inside

    def _compile_all(self, wanted: Mapping[DeviceCode, str]) -> dict[DeviceCode, Image | BuildError]:
        runner = Runner()
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "tf_stitch-build") as pool:
            try:
                futures = {d: pool.submit(self.image, d, name, runner) for d, name in wanted.items()}
                return {device: future.result() for device, future in futures.items()}
            except BaseException:  # KeyboardInterrupt: leave no compiler behind
                runner.stop()
                pool.shutdown(cancel_futures=True)
                raise

    def _image_by(self, compiler: DeviceCompiler, device: DeviceCode, name: str, runner: Runner) -> Image | BuildError:
        job = Job(
            key=self.image_key(device, compiler),
            source=Source(f"{name} for {device.code}", device.text),
            compiler=compiler,
            commands=[compiler.build_command(device.code, self._headers.kernels)],
            source_file=SOURCE,
            product_file=IMAGE,
            requires="",
            timeout=self.timeout,
        )
        built = build_once(job, self._host.cache, runner)
        if isinstance(built, CompileError):
            return built
        return Image(device.code, built.entry.path.read_bytes(), built.compile_seconds)


def _first_failure(source: Source, images: Mapping[DeviceCode, Image | BuildError]) -> BuildError | None:
    assert isinstance(source, CudaSource)
    return next((found for d in source.images if isinstance(found := images[d], BuildError)), None)


def _carrier(source: Source, images: Mapping[DeviceCode, Image | BuildError]) -> Source:
    """The host part with its images in front, as arrays of bytes."""
    assert isinstance(source, CudaSource)
    lines: list[str] = []
    for number, device in enumerate(source.images):
        image = images[device]
        assert isinstance(image, Image)
        lines += [f"// {device.code}", f"alignas(16) static const char image_{number}[] =", *_literal(image.content)]
        lines[-1] += ";"
    return Source(source.name, "\n".join([*lines, source.host]))


# A character of a string literal that stands for each byte; in octal, of three digits, where it is none of its own.
_SPELLED = [chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in range(256)]


def _literal(content: bytes) -> list[str]:
    """Bytes as a C string, which a compiler reads much faster than a list of numbers. A zero byte ends it besides."""
    starts = range(0, max(len(content), 1), _LITERAL_BYTES)
    return [f'"{"".join(_SPELLED[b] for b in content[n : n + _LITERAL_BYTES])}"' for n in starts]


def _completed(
    artifact: Artifact | BuildError,
    source: Source,
    images: Mapping[DeviceCode, Image | BuildError],
    counted: set[DeviceCode],
) -> Artifact | BuildError:
    """With what compiling its images has taken, as far as it is not counted yet, and with what their entries need."""
    if isinstance(artifact, BuildError):
        return artifact
    assert isinstance(source, CudaSource)
    seconds = artifact.compile_seconds
    resources: dict[str, Mapping[str, Resources]] = {}
    for device in source.images:
        image = images[device]
        assert isinstance(image, Image)
        if device not in counted:
            counted.add(device)
            seconds += image.compile_seconds
        if is_cubin(image.content):
            resources[device.code] = resources_of(image.content)
    return replace(artifact, compile_seconds=seconds, resources=resources)
