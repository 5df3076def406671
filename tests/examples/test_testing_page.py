"""The page on `aeron_async.testing` says what the code says."""

from __future__ import annotations

import inspect
import re

from aeron_async import testing
from aeron_async.testing import pytest_plugin
from tests.examples.pages import DOCS, bare, rows, section

PAGE = DOCS / "reference" / "testing.md"
# Users do not make these themselves; their page says how they come about.
MADE_FOR_USERS = {"Host", "HostClock", "Link"}


def test_every_public_name_is_there_with_its_arguments() -> None:
    shown = {bare(row[0]): row[1] for row in rows(section(PAGE, "Names"))}
    assert sorted(shown) == sorted(testing.__all__)
    for name, arguments in shown.items():
        made = getattr(testing, name)
        expected = list(inspect.signature(made).parameters) if arguments else []
        assert re.findall(r"`(\w+)`", arguments) == expected, name


def test_names_without_arguments_need_none() -> None:
    for name, arguments, _ in rows(section(PAGE, "Names")):
        made = getattr(testing, bare(name))
        if arguments or bare(name) in MADE_FOR_USERS or not inspect.isclass(made):
            continue
        is_value = issubclass(made, Exception) or hasattr(made, "__members__")
        assert is_value or not inspect.signature(made).parameters, name


def test_every_member_exists_with_its_arguments() -> None:
    for title in ("World", "Host", "Market"):
        owner = getattr(testing, title)
        source = inspect.getsource(owner)
        for name, *_ in rows(section(PAGE, title)):
            found = re.fullmatch(rf"`{title}\.(\w+)(?:\((.*)\))?`", name)
            assert found is not None, name
            member, arguments = found.groups()
            if arguments is None:
                is_property = isinstance(getattr(owner, member, None), property)
                assert is_property or f"self.{member}" in source, name
                continue
            parameters = inspect.signature(getattr(owner, member)).parameters
            expected = [re.sub(r":.*| =.*", "", str(each)) for each in parameters.values()]
            assert [each for each in arguments.split(", ") if each] == expected[1:], name


def test_every_fixture_is_there() -> None:
    shown = {bare(row[0]) for row in rows(section(PAGE, "Fixtures"))}
    assert shown == pytest_plugin.FIXTURES
