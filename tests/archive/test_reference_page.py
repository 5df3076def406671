"""The reference page of archives says what the code says."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async import archive
from aeron_async.archive.context import INT32_MAX, INT32_MIN, ArchiveContext
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.protocol.units import (
    INT64_MAX,
    format_duration,
    format_size,
    parse_duration_ns,
    parse_size,
)
from tests.examples.pages import DOCS, bare, rows, section

if TYPE_CHECKING:
    from aeron_async.archive.context import ArchiveSetting

PAGE = DOCS / "reference" / "archive.md"
INTERNAL = {"forget", "on_active", "on_ended", "on_request", "try_accept"}
"""What the sessions of a server ask of it."""
INT64_MIN = -(2**63)
OWNERS = {name: getattr(archive, name) for name in archive.__all__}


def written(setting: ArchiveSetting, value: Any) -> str:
    """Return a value as it would stand in the environment."""
    if value is None:
        return "none"
    if setting.parse is parse_size:
        return format_size(value)
    return format_duration(value) if setting.parse is parse_duration_ns else str(value)


def limits(setting: ArchiveSetting) -> str:
    """Return the limits of a number as a reader would have them."""
    least, most = setting.minimum, setting.maximum
    if not isinstance(setting.default, int):
        return ""
    if (least, most) == (INT32_MIN, INT32_MAX):
        return "any 32-bit number"
    if (least, most) == (INT64_MIN, INT64_MAX):
        return "any 64-bit number"
    if most == INT64_MAX:
        return f"at least {written(setting, least)}"
    return f"{written(setting, least)} to {written(setting, most)}"


def setting_rows() -> list[list[str]]:
    """Return the rows that the table of settings must have."""
    return [
        [
            f"`{name}`",
            f"`{setting.name}`",
            f"`{setting.env_name}`",
            written(setting, setting.default),
            limits(setting),
            setting.doc,
        ]
        for name, setting in ArchiveContext.settings().items()
    ]


def test_the_page_names_every_setting_as_the_code_has_it() -> None:
    assert rows(section(PAGE, "Settings of an archive")) == setting_rows()


def test_the_page_names_every_setting_of_serving_with_its_default() -> None:
    shown = [(bare(row[0]), row[1]) for row in rows(section(PAGE, "Settings of serving"))]
    wanted = []
    for each in attrs.fields(ControlSettings):
        default = getattr(each.default, "__name__", each.default)
        if each.name.endswith("_ns"):
            default = format_duration(int(str(default)))
        wanted.append(
            (each.name, str(default).lower() if default in (None, True) else str(default))
        )
    assert shown == wanted


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
