"""Which strategy a publication gets: by its channel, by the context, by a name, or by a factory."""

from __future__ import annotations

import re
import runpy
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.driver.core.congestion_control import (
    CongestionControlParams,
    StaticWindowCongestionControl,
    congestion_control,
    congestion_control_supplier,
)
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.flow_control import (
    FlowControl,
    FlowControlParams,
    MaxMulticastFlowControl,
    MinMulticastFlowControl,
    TaggedMulticastFlowControl,
    UnicastFlowControl,
    flow_control,
)
from aeron_async.driver.core.strategies import find_registered
from aeron_async.driver.core.stream_params import SubscriptionParams
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.status_message import StatusMessage
from tests.examples.pages import DOCS, ROOT, blocks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
SECOND = 1_000_000_000
LOCAL = "aeron:udp?endpoint=localhost:40456"
GROUP = "aeron:udp?control=localhost:40456|control-mode=dynamic"
PAGE = DOCS / "howto" / "write-a-flow-control.md"


def chosen(options: str = "", context: DriverContext | None = None, **more: Any) -> FlowControl:
    uri = ChannelUri.parse(f"{GROUP}|fc={options}" if options else GROUP)
    return flow_control(uri, context or DriverContext(), is_group=True, **more)


def granted(control: FlowControl) -> int:
    return control.max_retransmission_length(term_offset=0, length=16 * MIB, term_length=16 * MIB)


def hear(control: FlowControl, receiver_id: int, position: int, limit: int, **changes: Any) -> int:
    sm = StatusMessage(
        session_id=7, stream_id=1, receiver_id=receiver_id, receiver_window=1_000, **changes
    )
    return control.on_status_message(sm, position=position, sender_limit=limit, now_ns=0)


@pytest.fixture(autouse=True)
def forget_registered() -> Iterator[None]:
    find_registered.cache_clear()
    yield
    find_registered.cache_clear()


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install a package of nothing but entry points."""

    def install(entry_points: str) -> None:
        info = tmp_path / "strategies-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strategies\nVersion: 1\n")
        (info / "entry_points.txt").write_text(entry_points)
        monkeypatch.syspath_prepend(tmp_path)

    return install


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ("", MaxMulticastFlowControl),
        ("max", MaxMulticastFlowControl),
        ("min", MinMulticastFlowControl),
        ("tagged", TaggedMulticastFlowControl),
        ("preferred", TaggedMulticastFlowControl),
    ],
)
def test_a_group_is_paced_as_its_channel_says(options: str, kind: type[FlowControl]) -> None:
    control = chosen(options)
    assert type(control) is kind
    assert granted(control) == 512 * KIB


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("unicast_max", UnicastFlowControl),
        ("multicast_max", MaxMulticastFlowControl),
        ("multicast_min", MinMulticastFlowControl),
        ("multicast_tagged", TaggedMulticastFlowControl),
    ],
)
def test_the_context_says_what_a_silent_channel_gets(name: str, kind: type[FlowControl]) -> None:
    context = DriverContext(
        multicast_flow_control_supplier=name, unicast_flow_control_supplier=name
    )
    assert type(chosen("", context)) is kind
    assert type(chosen("max", context)) is MaxMulticastFlowControl
    uri = ChannelUri.parse(LOCAL)
    assert type(flow_control(uri, context, is_group=False)) is kind


def test_fc_on_unicast_is_refused_when_the_channel_is_checked_and_not_heard_here() -> None:
    uri = ChannelUri.parse("aeron:udp?endpoint=127.0.0.1:40456|fc=min,rrwm:2")
    with pytest.raises(ConfigurationError, match="needs a group"):
        uri.check_publication()
    assert type(flow_control(uri, DriverContext(), is_group=False)) is UnicastFlowControl


def test_max_takes_no_options_of_a_group_that_counts_receivers() -> None:
    with pytest.raises(ConfigurationError, match="not max"):
        chosen("max,t:5s")


def test_the_context_says_what_the_options_leave_out() -> None:
    context = DriverContext(
        flow_control_receiver_timeout_ns=3,
        flow_control_group_min_size=2,
        flow_control_group_tag=9,
        multicast_flow_control_rrwm=2,
        max_flow_control_receivers=2,
    )
    control = chosen("tagged", context)
    assert granted(control) == 256 * KIB
    assert hear(control, 1, 0, 0, group_tag=9) == 0
    assert hear(control, 2, 0, 0, group_tag=9) == 1_000
    assert control.deadline_ns() == 4
    assert hear(control, 3, 0, 0, group_tag=9) == 1_000
    assert control.refused_count() == 1


def test_options_go_before_the_context() -> None:
    context = DriverContext(
        flow_control_receiver_timeout_ns=3,
        flow_control_group_min_size=2,
        flow_control_group_tag=9,
        multicast_flow_control_rrwm=2,
    )
    control = chosen("tagged,t:1s,g:-5/0,rrwm:8", context)
    assert granted(control) == MIB
    assert hear(control, 1, 0, 0, group_tag=-5) == 1_000
    assert control.deadline_ns() == SECOND + 1


def test_one_window_each_may_be_all_that_a_nak_brings() -> None:
    assert granted(chosen("max,rrwm:1")) == 128 * KIB


def test_a_name_that_nobody_has_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        RegistrationError, match="'minute': fc must be one of max, min, tagged"
    ) as e:
        chosen("minute")
    assert e.value.code is ErrorCode.NOT_SUPPORTED
    with pytest.raises(
        ConfigurationError, match=r"one of unicast_max, .* or a factory, got 'fast'"
    ):
        DriverContext(multicast_flow_control_supplier="fast")
    with pytest.raises(ConfigurationError, match="got 7"):
        DriverContext(multicast_flow_control_supplier=7)  # type: ignore[arg-type]


def majority(params: FlowControlParams) -> FlowControl:
    example = runpy.run_path(str(ROOT / "examples" / "majority_flow_control.py"), run_name="page")
    made: FlowControl = example["majority"](params)
    return made


@pytest.fixture
def majority_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the example be imported without running it."""
    monkeypatch.setattr("asyncio.run", lambda coroutine: coroutine.close())
    monkeypatch.syspath_prepend(ROOT / "examples")


def check_is_majority(control: FlowControl) -> None:
    limit = 0
    for receiver_id, position, expected in (
        (1, 0, 1_000),
        (2, 100, 1_000),
        (3, 200, 1_100),
        (3, 900, 1_100),
        (2, 500, 1_500),
        (4, 600, 1_500),
        (1, 700, 1_600),
    ):
        limit = hear(control, receiver_id, position, limit)
        assert limit == expected
    assert control.receiver_count() == 4
    assert control.slowest_receiver() == "0x0000000000000004"


@pytest.mark.usefixtures("majority_example")
def test_the_strategy_of_the_page_is_used_by_context_and_by_factory() -> None:
    context = DriverContext(
        multicast_flow_control_supplier=majority, unicast_flow_control_supplier=majority
    )
    check_is_majority(chosen("", context))
    check_is_majority(flow_control(ChannelUri.parse(LOCAL), context, is_group=False))
    check_is_majority(chosen("min", supplier=majority))


@pytest.mark.usefixtures("majority_example")
def test_the_strategy_of_the_page_is_found_by_the_name_the_page_registers(
    register: Callable[[str], None],
) -> None:
    (toml,) = [block.text for block in blocks_of(PAGE) if block.language == "toml"]
    (channel,) = re.findall(r"^(aeron:\S+)$", PAGE.read_text(), re.MULTILINE)
    groups = tomllib.loads(toml)["project"]["entry-points"]
    ((group, names),) = groups.items()
    register(f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items()))
    check_is_majority(flow_control(ChannelUri.parse(channel), DriverContext(), is_group=True))
    by_variable = DriverContext.from_environment(
        {"AERON_MULTICAST_FLOWCONTROL_SUPPLIER": "majority"}
    )
    check_is_majority(chosen("", by_variable))
    with pytest.raises(RegistrationError, match="one of max, min, tagged, majority, or"):
        chosen("fastest")


def test_a_strategy_is_told_its_own_options() -> None:
    told: list[tuple[str, ...]] = []

    def tell(params: FlowControlParams) -> FlowControl:
        told.append(params.raw_options)
        raise KeyError(params.group_tag)

    with pytest.raises(RegistrationError, match=r"could not be made: KeyError\(-1\)"):
        chosen("told,p:50,x", supplier=tell)
    assert told == [("p:50", "x")]


def test_a_channel_without_options_has_none_to_tell() -> None:
    uri = ChannelUri.parse(GROUP)
    assert FlowControlParams(uri=uri, context=DriverContext(), is_group=True).raw_options == ()


def test_what_a_factory_refuses_is_refused_in_its_words() -> None:
    def refuse(params: FlowControlParams) -> FlowControl:
        message = "not today"
        raise ConfigurationError(message)

    with pytest.raises(ConfigurationError, match="not today"):
        chosen("", supplier=refuse)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:thing", "cannot be imported: No module"),
        ("math:no_such_thing", "cannot be imported"),
        ("math:pi", "cannot be called"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_named(
    register: Callable[[str], None], value: str, reason: str
) -> None:
    register(f"[aeron_async.flow_control]\nbroken = {value}\n")
    with pytest.raises(ConfigurationError, match=f"broken, registered in .*{reason}"):
        chosen("broken")


# The other end.

PARAMS = CongestionControlParams(
    context=DriverContext(),
    configured_window_length=128 * KIB,
    term_length=64 * KIB,
    mtu_length=1_408,
    now_ns=0,
)


class HalfWindow(StaticWindowCongestionControl):
    """Half of what might be."""

    @classmethod
    def of(cls, params: CongestionControlParams) -> HalfWindow:
        return cls(window_length=params.window_length // 2)


def subscription(text: str = "", context: DriverContext | None = None, **more: Any) -> int:
    params = SubscriptionParams.of(
        ChannelUri.parse(LOCAL + text), context or DriverContext(), **more
    )
    return congestion_control(params.congestion_control, PARAMS).initial_window_length()


def test_congestion_control_comes_by_channel_by_context_and_by_factory() -> None:
    assert subscription() == subscription("|cc=static") == 32 * KIB
    assert subscription("|cc=cubic") == 14_080
    forced = DriverContext(congestion_control_supplier="cubic")
    assert subscription("|cc=static", forced) == 14_080
    half = DriverContext(congestion_control_supplier=HalfWindow.of)
    assert subscription("|cc=cubic", half) == 16 * KIB
    assert subscription("|cc=cubic", congestion_control=HalfWindow.of) == 16 * KIB


def test_congestion_control_is_found_by_a_registered_name(register: Callable[[str], None]) -> None:
    register("[aeron_async.congestion_control]\nstill = builtins:repr\n")
    found: object = congestion_control_supplier("still")
    assert found is repr
    assert DriverContext(congestion_control_supplier="still").congestion_control_supplier == "still"
    assert ChannelUri.parse(f"{LOCAL}|cc=still").congestion_control == "still"


def test_a_congestion_control_that_cannot_be_made_makes_no_image_and_no_harm() -> None:
    def break_down(params: CongestionControlParams) -> StaticWindowCongestionControl:
        raise ZeroDivisionError

    def refuse(params: CongestionControlParams) -> StaticWindowCongestionControl:
        message = "not today"
        raise ConfigurationError(message)

    with pytest.raises(RegistrationError, match=r"could not be made: ZeroDivisionError\(\)"):
        congestion_control(break_down, PARAMS)
    with pytest.raises(ConfigurationError, match="not today"):
        congestion_control(refuse, PARAMS)


# Old names of settings.


@pytest.mark.parametrize(
    ("variables", "field", "value"),
    [
        (
            {"AERON_MULTICAST_FLOW_CONTROL_STRATEGY": "min"},
            "multicast_flow_control_supplier",
            "multicast_min",
        ),
        (
            {"AERON_MIN_MULTICAST_FLOW_CONTROL_RECEIVER_TIMEOUT": "2s"},
            "flow_control_receiver_timeout_ns",
            2 * SECOND,
        ),
        (
            {"AERON_PREFERREDMULTICASTFLOWCONTROL_ASF": "FFFFFFFFFFFFFFFF"},
            "flow_control_group_tag",
            -1,
        ),
        (
            {"AERON_FLOW_CONTROL_SM_APPLICATIONSPECIFICFEEDBACK": "E903000000000000"},
            "receiver_group_tag",
            1_001,
        ),
        (
            {
                "AERON_PREFERREDMULTICASTFLOWCONTROL_ASF": "FFFFFFFFFFFFFFFF",
                "AERON_FLOW_CONTROL_GROUP_TAG": "5",
            },
            "flow_control_group_tag",
            5,
        ),
    ],
)
def test_an_old_name_counts_where_the_new_one_is_absent(
    variables: dict[str, str], field: str, value: object
) -> None:
    assert getattr(DriverContext.from_environment(variables), field) == value


def test_an_old_name_is_not_read_where_its_setting_is_given() -> None:
    variables = {"AERON_PREFERREDMULTICASTFLOWCONTROL_ASF": "rubbish"}
    given = DriverContext.from_environment(variables, flow_control_group_tag=3)
    assert given.flow_control_group_tag == 3
    with pytest.raises(ConfigurationError, match="ASF cannot be read: 'rubbish' is not 8 bytes"):
        DriverContext.from_environment(variables)


def test_the_page_names_every_old_variable() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text()
    old = [name for each in DriverContext.settings().values() for name in each.old_variables]
    assert len(old) == 6
    assert [name for name in old if f"`{name}`" not in page] == []


def test_a_factory_is_printed_by_its_name() -> None:
    setting = DriverContext.settings()["multicast_flow_control_supplier"]
    assert setting.format(majority) == "majority"
