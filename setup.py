"""Builds the compiled kernel where there is a compiler; without one all works, only slower."""

from __future__ import annotations

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"aeron_async.kernel.{name}",
                [f"aeron_async/kernel/{name}.pyx"],
                extra_compile_args=["-O3"],
                optional=True,
            )
            for name in ("_atomics", "_frames")
        ],
        build_dir="build",
    )
)
