"""What is said of strategies that somebody else has written."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.flow_control.base import UnicastFlowControl
from aeron_async.driver.core.strategies import cause_of_failure, name_of_supplier


class Pace(UnicastFlowControl):
    def deadline_ns(self) -> int:
        raise ValueError(*self.said)

    said: tuple[str, ...] = ("boom",)


class Unnamed:
    def __repr__(self) -> str:
        return "a factory without a name"


def failure_of(pace: UnicastFlowControl) -> Exception:
    with pytest.raises(ValueError, match=r"boom|^$") as caught:
        pace.deadline_ns()
    return caught.value


@pytest.mark.parametrize(("said", "told"), [(("boom",), "ValueError: boom"), ((), "ValueError")])
def test_a_strategy_that_raised_is_named_with_what_it_raised(
    said: tuple[str, ...], told: str
) -> None:
    pace = Pace(retransmit_receiver_window_multiple=4)
    pace.said = said
    cause = cause_of_failure(failure_of(pace), pace, kind="flow control")
    assert cause == f"because its flow control raised {told}"


@pytest.mark.parametrize("strategy", [None, UnicastFlowControl])
def test_what_no_strategy_raised_blames_none(strategy: type[UnicastFlowControl] | None) -> None:
    ours = strategy and strategy(retransmit_receiver_window_multiple=4)
    error = failure_of(Pace(retransmit_receiver_window_multiple=4))
    assert cause_of_failure(error, ours, kind="flow control") == "because of ValueError: boom"


def test_a_factory_is_called_what_its_source_calls_it() -> None:
    assert name_of_supplier(failure_of) == "failure_of"
    assert name_of_supplier(Unnamed()) == "a factory without a name"
