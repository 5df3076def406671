"""Every number of the command line is bounded before anything is opened or waits."""

from __future__ import annotations

import importlib
import inspect
import typing
from typing import Annotated, Any, get_args, get_origin

import attrs
import pytest
from cyclopts import Parameter

from aeron_async.cli.main import (
    ARCHIVE_COMMANDS,
    COMMANDS,
    DRIVER_COMMANDS,
    PIPELINE_COMMANDS,
    main,
)

FUNCTIONS = [
    *((f"aeron_async.cli.{name}", name) for name, _ in COMMANDS),
    *((f"aeron_async.cli.archive_{module}", name) for name, module, _ in ARCHIVE_COMMANDS),
    *((f"aeron_async.cli.driver_{module}", name) for name, module, _ in DRIVER_COMMANDS),
    *((f"aeron_async.cli.pipeline_{module}", name) for name, module, _ in PIPELINE_COMMANDS),
]


def unbounded(annotation: Any) -> bool:
    """Return whether a number can be given there that nothing looks at."""
    if annotation in {int, float}:
        return True
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        has_validator = any(isinstance(each, Parameter) and each.validator for each in metadata)
        return not has_validator and unbounded(inner)
    if attrs.has(annotation):
        hints = typing.get_type_hints(annotation, include_extras=True)
        return any(unbounded(each) for each in hints.values())
    return any(unbounded(each) for each in get_args(annotation))


@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_every_number_has_bounds(module: str, name: str) -> None:
    function = getattr(importlib.import_module(module), name)
    hints = typing.get_type_hints(function, include_extras=True)
    names = inspect.signature(function).parameters
    assert [each for each in names if unbounded(hints[each])] == []


@pytest.mark.parametrize(
    "command",
    [
        "pub aeron:ipc -s 1 --size 99999999999",
        "pub aeron:ipc -s 1 --count 99999999999999999999",
        "pub aeron:ipc -s 99999999999",
        "pub aeron:ipc -s 1 --rate 1e300",
        "sub aeron:ipc -s 1 --timeout 1e300",
        "sub aeron:ipc -s 1 --count 99999999999999999999",
        "ping --size 99999999999",
        "ping --warmup 99999999999",
        "ping --ping-stream 99999999999",
        "pong --pong-stream 99999999999",
        "bench --size 99999999999",
        "demo --duration 1e300",
        "doctor --seconds 1e300",
        "decode /dev/null --port 65536",
        "stat --type 99999999999",
        "stat --id 99999999999999999999",
        "streams --watch --interval 1e300",
        "backlog --watch --count 0",
        "driver ping --timeout -1",
        "archive replay nowhere 0 --begin 99999999999999999999",
        "archive truncate nowhere 0 99999999999999999999 --yes",
        "archive purge nowhere 99999999999999999999 --yes",
    ],
)
def test_a_number_that_cannot_be_meant_is_one_line_at_once(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_a_message_too_long_for_its_channel_is_refused_before_a_subscriber_is_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    channel = "aeron:udp?endpoint=127.0.0.1:9|term-length=64k"
    for more in (["--size", "100000"], ["--message", "x" * 100_000]):
        assert main(["pub", channel, "-s", "1", *more]) in {1, 2}
        err = capsys.readouterr().err
        assert "waiting for a subscriber" not in err
        assert "raise term-length" in err
    assert main(["ping", "--ping-channel", channel, "--size", "100000"]) == 2
    assert "raise term-length" in capsys.readouterr().err
