"""Builds the compiled kernel where there is a compiler; without one all works, only slower."""

from __future__ import annotations

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNEL = [
    Extension(
        f"aeron_async.kernel.{name}",
        [f"aeron_async/kernel/{name}.pyx"],
        extra_compile_args=["-O3"],
    )
    for name in ("_atomics", "_batches", "_chains", "_frames", "_paths", "_sockets", "_writing")
]
modules = cythonize(KERNEL, build_dir="build")
for module in modules:
    # Not said above: Cython makes new ones, and forgets it.
    module.optional = True
setup(ext_modules=modules, options={"build_ext": {"parallel": os.cpu_count()}})
