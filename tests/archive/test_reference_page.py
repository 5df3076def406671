"""The reference page of archives says what the code says."""

from __future__ import annotations

import inspect
import re

import attrs
import pytest

from aeron_async import archive
from tests.examples.pages import DOCS, bare, rows, section

PAGE = DOCS / "reference" / "archive.md"
INTERNAL = {"forget", "on_active", "on_ended", "on_request", "try_accept"}
"""What the sessions of a server ask of it."""
OWNERS = {name: getattr(archive, name) for name in archive.__all__}


def test_the_page_names_every_public_name_of_archives() -> None:
    names = [bare(row[0]) for row in rows(section(PAGE, "Names"))]
    assert sorted(names) == sorted(archive.__all__)


def members() -> list[str]:
    return [bare(row[0]) for row in rows(PAGE.read_text()) if "." in bare(row[0]).split("(")[0]]


@pytest.mark.parametrize("name", [each for each in members() if each.split(".")[0] in OWNERS])
def test_every_member_on_the_page_exists(name: str) -> None:
    owner_name, _, member = name.partition(".")
    owner = OWNERS[owner_name]
    made = inspect.getsource(owner)
    is_attribute = re.search(rf"\b(self\.)?{member}\b[^=\n]*(=|: )", made)
    assert hasattr(owner, member) or is_attribute


@pytest.mark.parametrize("name", ["Archive", "Replay", "PersistentSubscription", "ControlServer"])
def test_every_public_member_is_on_the_page(name: str) -> None:
    public = {each for each in vars(OWNERS[name]) if not each.startswith("_")}
    documented = {each.partition(".")[2] for each in members() if each.startswith(f"{name}.")}
    assert public - documented - INTERNAL == set()


@pytest.mark.parametrize("name", ["RecordingDescriptor", "RecordingSignalEvent"])
def test_every_field_is_on_the_page(name: str) -> None:
    fields = {each.name for each in attrs.fields(OWNERS[name])}
    documented = {each.partition(".")[2] for each in members() if each.startswith(f"{name}.")}
    assert fields - documented == set()
