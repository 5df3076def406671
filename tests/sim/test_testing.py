"""The public names of `aeron_async.testing`."""

from __future__ import annotations

from itertools import chain

import pytest

from aeron_async import testing


def test_every_public_name_can_be_had() -> None:
    assert sorted(chain.from_iterable(testing.MODULES.values())) == sorted(testing.__all__)
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name
    assert set(testing.__all__) < set(dir(testing))


def test_a_name_it_has_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'aeron_async\.testing' has no attribute 'Wrold'"):
        _ = testing.Wrold  # type: ignore[attr-defined]
