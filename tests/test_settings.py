"""Declarations of settings: every kind of value, every bound, and every way to give a value."""

from __future__ import annotations

import pickle
import re
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core.context import DriverContext
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import INT32_MAX, INT64_MAX, INT64_MIN
from aeron_async.settings import (
    Duration,
    EnvironmentSettings,
    Integer,
    Kind,
    OptionSettings,
    Setting,
    Settings,
    Size,
    choice,
    duration,
    flag,
    inferable,
    integer,
    port_range,
    size,
    text,
)
from aeron_async.spark.options import ArchiveOptions
from docs.tables import CLASSES

MS, SECOND = 1_000_000, 1_000_000_000
KIB, MIB = 1 << 10, 1 << 20


@attrs.frozen(kw_only=True)
class Sample(EnvironmentSettings):
    """One setting of every kind."""

    length: int = size(
        "aeron_async.length", 64, "Length.", minimum=64, maximum=MIB, power_of_two=True
    )
    frame: int = size("aeron_async.frame", 64, "Frame.", minimum=32, maximum=320, multiple=32)
    timeout_ns: int = duration("aeron_async.timeout", SECOND, "Timeout.", minimum=1)
    delay_ms: int | None = duration("aeron_async.delay", None, "Delay.", unit_ns=MS)
    count: int = integer("aeron_async.count", 3, "Count.", minimum=-3, maximum=9)
    is_on: bool = flag("aeron_async.on", True, "Whether it is on.")
    is_group: bool | None = inferable("aeron_async.group", "Whether it is a group.")
    color: str = choice("aeron_async.color", "red", "Colour.", choices=("red", "blue"))
    place: str | None = text("aeron_async.place", None, "Place.")
    ports: tuple[int, int] = port_range("aeron_async.ports", "Ports.")
    secret: str | None = text("aeron_async.secret", None, "Not in the environment.", env_name="")


@attrs.frozen(kw_only=True)
class Options(OptionSettings):
    """Settings that are given by name."""

    _NOUN: ClassVar[str] = "option"
    _HINTS: ClassVar = {"topic": "did you mean maxRows?"}
    _IGNORED: ClassVar = frozenset({"queryname"})

    max_rows: int = integer("maxRows", 1, "Rows.", minimum=1)
    is_fast: bool = flag("isFast", False, "Whether it is fast.")

    def _problems(self) -> list[tuple[bool, str]]:
        return [(self.is_fast and self.max_rows > 9, "isFast needs few rows: change maxRows")]


NEEDED: dict[type[Settings], dict[str, Any]] = {ArchiveOptions: {"path": "/archive"}}
"""What a class does not do without."""


def every_class() -> list[type[Settings]]:
    """Return every class of settings of the package, and the two above."""
    return [*CLASSES.values(), Sample, Options]


def made(**values: Any) -> Sample:
    return Sample(**values)


def refusal(cls: type[Settings], **values: Any) -> str:
    """Return why settings are refused; nothing where they are accepted."""
    try:
        cls(**values)
    except ConfigurationError as error:
        return str(error)
    return ""


def every_setting() -> list[tuple[type[Settings], str, Setting]]:
    """Return every setting of the package, with its class and its field."""
    return [
        (cls, name, setting) for cls in every_class() for name, setting in cls.settings().items()
    ]


@pytest.mark.parametrize(
    ("env_name", "text", "field", "value"),
    [
        ("AERON_ASYNC_LENGTH", "64K", "length", 65_536),
        ("AERON_ASYNC_LENGTH", "128", "length", 128),
        ("AERON_ASYNC_TIMEOUT", "2s", "timeout_ns", 2 * SECOND),
        ("AERON_ASYNC_TIMEOUT", "5000", "timeout_ns", 5_000),
        ("AERON_ASYNC_TIMEOUT", " 3s ", "timeout_ns", 3 * SECOND),
        ("AERON_ASYNC_DELAY", "500", "delay_ms", 500),
        ("AERON_ASYNC_DELAY", "5s", "delay_ms", 5_000),
        ("AERON_ASYNC_COUNT", "-3", "count", -3),
        ("AERON_ASYNC_ON", "off", "is_on", False),
        ("AERON_ASYNC_ON", "0", "is_on", False),
        ("AERON_ASYNC_ON", "On", "is_on", True),
        ("AERON_ASYNC_ON", "TRUE", "is_on", True),
        ("AERON_ASYNC_GROUP", "true", "is_group", True),
        ("AERON_ASYNC_GROUP", "false", "is_group", False),
        ("AERON_ASYNC_GROUP", "infer", "is_group", None),
        ("AERON_ASYNC_COLOR", "Blue", "color", "blue"),
        ("AERON_ASYNC_PLACE", " here ", "place", "here"),
        ("AERON_ASYNC_PORTS", "20000 20100", "ports", (20_000, 20_100)),
        ("AERON_ASYNC_PLACE", " ", "place", None),
    ],
)
def test_the_environment_is_read_as_aeron_spells_it(
    env_name: str, text: str, field: str, value: object
) -> None:
    found = Sample.from_environment({env_name: text})
    assert found == made(**{field: value})


@pytest.mark.parametrize(
    ("field", "text", "reason"),
    [
        ("length", "1.5k", "cannot be read: '1.5k' is not a size"),
        ("length", "8kb", "unknown unit"),
        ("length", "65", "must be a power of two, got 65; in bytes, or as text such as '64k'"),
        ("frame", "63", "must be a multiple of 32, got 63; in bytes"),
        ("timeout_ns", "soon", "not a duration"),
        ("timeout_ns", "0", "must be at least 1, got 0; in nanoseconds, or as text such as '5s'"),
        ("delay_ms", "1_000", "not a duration"),
        ("delay_ms", "10us", "not a whole number of 1ms"),
        ("delay_ms", "-1", "must be at least 0, got -1; in milliseconds"),
        ("delay_ms", "9" * 20, "more than the largest 64-bit number"),
        ("delay_ms", "9" * 19, "must be at most 9223372036854775807"),
        ("count", "10", "must be at most 9, got 10"),
        ("count", "1_0", "not a whole number"),
        ("count", "٣", "not a whole number"),
        ("is_on", "yes", "none of 1, on, true, 0, off, false"),
        ("is_group", "1", "none of true, false, infer"),
        ("color", "green", "must be one of red, blue, got 'green'"),
        ("ports", "20000-20100", "two ports with a blank"),
        ("ports", "20100 20000", "low before high"),
        ("ports", "1 65536", "low before high"),
    ],
)
def test_a_text_that_is_invalid_is_refused_by_both_names(
    field: str, text: str, reason: str
) -> None:
    setting = Sample.settings()[field]
    with pytest.raises(ConfigurationError) as raised:
        Sample.from_environment({setting.env_name: text})
    assert str(raised.value).startswith(f"{setting.name} ({setting.env_name}) ")
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"length": None}, "must be a whole number, got None"),
        ({"length": "65k"}, "must be a power of two, got 66560"),
        ({"length": "64x"}, "aeron_async.length (AERON_ASYNC_LENGTH) cannot be read"),
        ({"timeout_ns": 1.0}, "must be a whole number, got 1.0"),
        ({"timeout_ns": True}, "must be a whole number, got True"),
        ({"count": "3"}, "must be a whole number, got '3'"),
        ({"is_on": 1}, "must be true or false, got 1"),
        ({"is_group": "infer"}, "must be true, false or infer, got 'infer'"),
        ({"color": "Blue"}, "must be one of red, blue, got 'Blue'"),
        ({"color": None}, "must be one of red, blue, got None"),
        ({"place": 5}, "must be text, got 5"),
        ({"place": " "}, "must be text that is not empty, got ' '"),
        ({"ports": (2, 1)}, "low before high"),
        ({"ports": (-1, 1)}, "low before high"),
        ({"ports": 5}, "must be two ports"),
        ({"ports": ("1", "2")}, "must be two ports"),
        ({"secret": ""}, "aeron_async.secret must be text that is not empty"),
    ],
)
def test_a_value_of_another_type_or_beyond_its_limits_is_refused(
    values: dict[str, Any], reason: str
) -> None:
    assert reason in refusal(Sample, **values)


def test_sizes_and_durations_may_be_text_in_code() -> None:
    found = made(length="64k", timeout_ns=" 5s ", delay_ms="2s")
    assert (found.length, found.timeout_ns, found.delay_ms) == (65_536, 5 * SECOND, 2_000)
    assert Sample.from_environment({}, timeout_ns="100ms").timeout_ns == 100 * MS


def test_overrides_beat_variables_and_variables_beat_defaults() -> None:
    environ = {"AERON_ASYNC_COUNT": "7", "AERON_ASYNC_LENGTH": "nonsense"}
    assert Sample.from_environment(environ, length=128) == made(count=7, length=128)
    with pytest.raises(TypeError, match="lenght"):
        Sample.from_environment({}, lenght=1)


def test_a_setting_without_a_variable_is_not_read() -> None:
    assert Sample.from_environment({"": "x", "AERON_ASYNC_SECRET": "x"}) == Sample()


def test_names_have_any_case_and_values_any_type_of_toml() -> None:
    assert Options.parse({"MAXROWS": "7", "queryName": "q"}) == Options(max_rows=7)
    assert Options.parse({"maxRows": 7, "isfast": True}) == Options(max_rows=7, is_fast=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxRow": 1}, "no option is named 'maxRow': did you mean maxRows?"),
        ({"Topic": 1}, "no option is named 'Topic': did you mean maxRows?"),
        ({"zzzz": 1}, "no option is named 'zzzz'. The options are maxRows, isFast"),
        ({"maxRows": 0}, "maxRows must be at least 1, got 0"),
        ({"maxRows": "x"}, "maxRows cannot be read: 'x' is not a whole number"),
        ({"maxRows": [1]}, "maxRows cannot be read: [1] is not text, a number, true or false"),
        ({"maxRows": 10, "isFast": "on"}, "isFast needs few rows: change maxRows"),
    ],
)
def test_an_option_that_is_invalid_is_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        Options.parse(given)


def test_settings_are_frozen_slotted_and_keyword_only() -> None:
    for cls in every_class():
        each = cls(**NEEDED.get(cls, {}))
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(each, next(iter(cls.settings())), None)
        assert not hasattr(each, "__dict__")
        assert pickle.loads(pickle.dumps(each)) == each  # noqa: S301 - our own
        with pytest.raises(TypeError):
            cls(1)  # type: ignore[call-arg]


def test_every_setting_says_what_it_does_in_one_sentence() -> None:
    said = [(cls.__name__, name, each.doc) for cls, name, each in every_setting()]
    assert [each for each in said if not re.fullmatch(r"[A-Z](?!.*\. ).*[^.]\.", each[2])] == []


def test_every_bound_is_refused_with_the_name_the_limit_and_the_value() -> None:
    count = 0
    for cls, name, setting in every_setting():
        kind = setting.kind
        if not isinstance(kind, Integer):
            continue
        for value, limit in (
            (kind.minimum - kind.multiple, f"at least {kind.minimum}"),
            (kind.maximum + kind.multiple, f"at most {kind.maximum}"),
        ):
            assert (
                refusal(cls, **{name: value})
                == f"{setting} must be {limit}, got {value}{kind.hint}"
            )
            count += 1
        for value in (kind.minimum, kind.maximum):
            # Of a power of two the largest number that fits 32 bits is none.
            if value not in {INT32_MAX, INT64_MAX, INT64_MIN} and kind.multiple == 1:
                setting.check(value)
        wrong: tuple[object, ...] = (True, 1.5, b"1", "1 apple")
        for each in wrong:
            assert refusal(cls, **{name: each}).startswith(f"{setting} ")
    assert count > 120


def test_every_default_is_valid() -> None:
    for _, _, setting in every_setting():
        is_unset = setting.format(setting.default) == setting.unset
        assert is_unset or setting.kind.refusal(setting.default) == ""


def values_of(kind: Kind) -> st.SearchStrategy[Any]:
    """Return valid values of a number."""
    assert isinstance(kind, Integer)
    low = max(kind.minimum, 0) if isinstance(kind, Size | Duration) else kind.minimum
    if kind.power_of_two:
        lengths = [(each - kind.trailer).bit_length() - 1 for each in (low, kind.maximum)]
        return st.integers(*lengths).map(lambda power: (1 << power) + kind.trailer)
    first = -(-low // kind.multiple)
    return st.integers(first, kind.maximum // kind.multiple).map(lambda n: n * kind.multiple)


NUMBERS = [setting for _, _, setting in every_setting() if isinstance(setting.kind, Integer)]


@given(setting=st.sampled_from(NUMBERS), data=st.data())
def test_a_value_that_is_printed_is_read_back(setting: Setting, data: st.DataObject) -> None:
    value = data.draw(values_of(setting.kind))
    setting.check(value)
    assert setting.parse(setting.format(value)) == value


def test_a_default_that_is_printed_is_read_back() -> None:
    for _, _, setting in every_setting():
        shown = setting.format(setting.default)
        if shown != setting.unset and setting.kind.limits() != "a factory":
            assert setting.parse(shown) == setting.default


def test_values_are_printed_as_the_environment_has_them() -> None:
    settings = DriverContext.settings()
    assert settings["term_buffer_length"].format(16 * MIB) == "16m"
    assert settings["status_message_timeout_ns"].format(200 * MS) == "200ms"
    assert settings["driver_timeout_ms"].format(INT64_MAX) == str(INT64_MAX)
    assert settings["receiver_group_consideration"].format(None) == "infer"
    assert settings["receiver_group_consideration"].format(True) == "true"
    assert settings["receiver_group_tag"].format(None) == "not set"
    assert settings["max_resend"].format(16) == "16"
    assert settings["sender_wildcard_port_range"].format((1, 2)) == "1 2"


@pytest.mark.parametrize(
    ("field", "limits"),
    [
        ("length", "64 to 1m, power of two"),
        ("frame", "32 to 320, multiple of 32"),
        ("timeout_ns", "at least 1ns"),
        ("delay_ms", "at least 0ns"),
        ("count", "-3 to 9"),
        ("is_on", "true or false"),
        ("is_group", "true, false or infer"),
        ("color", "`red`, `blue`"),
        ("place", ""),
        ("ports", "two ports, low and high"),
    ],
)
def test_limits_are_said_as_on_the_page(field: str, limits: str) -> None:
    assert Sample.settings()[field].kind.limits() == limits
