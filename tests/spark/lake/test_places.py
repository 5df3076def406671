"""Places: a folder and a store do the same, and what a lake's URL says and does not say is told."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.lake import places
from aeron_async.spark.lake.places import LocalPlace, StoredPlace, place_at
from tests.spark.stores import folder_as_store

if TYPE_CHECKING:
    from aeron_async.spark.lake.places import LakePlace

NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")
MORE = ("AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (*NAMES, *MORE):
        monkeypatch.delenv(each, raising=False)


@pytest.fixture(params=["folder", "store"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LakePlace:
    if request.param == "store":
        folder_as_store(monkeypatch)
    url = (tmp_path / "lake").as_uri()
    found = place_at(url)
    assert found.is_local == (request.param == "folder")
    return found


def test_what_is_written_is_read_listed_and_removed(place: LakePlace) -> None:
    assert (place.names(), place.folders(), place.read("a"), place.has("a")) == (
        [],
        [],
        None,
        False,
    )
    assert not place.has("")
    place.write("a", b"one")
    place.write("a", b"three")
    (place / "in" / "side").write("b", b"22")
    assert (place.names(), place.folders()) == (["a"], ["in"])
    assert place.read("a") == b"three"
    assert place.has("")
    assert place.has("in")
    assert place.has("in/side/b")
    assert place.sizes(["a", "in/side/b", "none"]) == [5, 2, 0]
    place.remove("a")
    place.remove("a")
    assert place.names() == []
    assert (place / "in" / "side").name == "side"


def test_a_stream_makes_a_file_that_is_kept(place: LakePlace) -> None:
    stream = (place / "table").create("date=2026-11-18/x.parquet")
    stream.write(b"1234")
    assert stream.tell() == 4
    stream.close()
    (place / "table").keep("date=2026-11-18/x.parquet")
    (place / "table").sync_names(["date=2026-11-18/x.parquet"])
    path = (place / "table").inside("date=2026-11-18/x.parquet")
    with place.files.open_input_file(path) as source:
        assert source.read() == b"1234"
    assert (place / "table").url_of("x").endswith("/lake/table/x")


def test_a_place_is_sent_to_workers_with_what_its_url_says(place: LakePlace) -> None:
    assert pickle.loads(pickle.dumps(place / "bronze")) == place / "bronze"  # noqa: S301 - our own


@pytest.mark.parametrize(
    "url", ["s3://bucket/some/lake", "s3a://bucket/some/lake/", "S3N://bucket/some/lake"]
)
def test_a_url_of_hadoop_is_one_of_s3(url: str) -> None:
    place = place_at(url)
    assert isinstance(place, StoredPlace)
    assert (str(place), place.inside("x"), place.name) == (
        "s3://bucket/some/lake",
        "bucket/some/lake/x",
        "lake",
    )


def test_a_path_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_at("lake") == place_at(Path("lake")) == LocalPlace(tmp_path / "lake")
    assert place_at(place_at("lake")) == place_at((tmp_path / "lake").as_uri())
    spaced = tmp_path / "a lake & more"
    assert place_at(spaced.as_uri()) == LocalPlace(spaced)


def test_a_url_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://elsewhere")
    assert place_at("s3://b00/l").options == {
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "https://elsewhere",
        "AWS_CONDITIONAL_PUT": "etag",
    }
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the environment")
    found = place_at("s3://KEY:se%2Fcret@b00/l?endpoint_override=host%3A1&scheme=http&region=x")
    assert found.options == {
        "AWS_ACCESS_KEY_ID": "KEY",
        "AWS_SECRET_ACCESS_KEY": "se/cret",
        "AWS_REGION": "x",
        "AWS_ENDPOINT_URL": "http://host:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_CONDITIONAL_PUT": "etag",
    }
    assert "cret" not in f"{found} {found!r} {found.hint()} {found / 'bronze'!r}"


def test_a_session_of_other_credentials_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of others")
    with pytest.raises(ConfigurationError, match="AWS_SESSION_TOKEN of the environment belongs"):
        place_at("s3://KEY:secret@bucket/lake")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("gs://bucket/lake", "begins with gs://, and a lake is in a folder or in S3"),
        ("memory://lake", "a lake is in a folder or in S3"),
        ("s3://", "names no bucket"),
        ("s3:///lake", "names no bucket"),
        ("s3://bucket/a lake", "letters, digits"),
        ("s3://bucket/a%20lake", "letters, digits"),
        ("s3://bucket/lake?key=HIDDEN", "'key' in its URL, which may have endpoint_override"),
        ("s3://HIDDEN@bucket/lake", "AWS_SECRET_ACCESS_KEY, in its URL or the environment"),
        ("s3://:HIDDEN@bucket/lake", "set both, or neither"),
        ("s3://[HIDDEN", "no URL that can be opened"),
        ("file://lake/of", "write file:///FOLDER, or its path"),
    ],
)
def test_what_is_no_place_is_refused_without_secrets(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        place_at(url)
    assert says in str(caught.value)
    assert "HIDDEN" not in str(caught.value)


class Silent:
    """A store that does not answer."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object) -> None:
            message = f"{name}: connection refused\x1b[2J\nand more"
            raise OSError(message)

        return fail


def test_a_store_may_answer_with_what_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As S3 does if a token has expired, or a key is not known."""
    values = dict(zip(NAMES, ("AKIA0", "SE/CRET", "TO/KEN", "us-east-1"), strict=True))
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    place = place_at("s3://bucket/lake")
    answer = "400: <Token-0>TO/KEN</Token-0><AWSAccessKeyId>AKIA0</> SE%2FCRET and SE/CRET"
    for error, is_known in ((OSError(answer), True), (OSError("not found\nat all"), False)):
        with pytest.raises(ArchiveError) as caught, place.answering():
            raise error
        told = f"{caught.value} {place.told(error)} {place.cause(error)}"
        assert not [each for each in (*values.values(), "SE%2FCRET") if each in told]
        assert ("Token-0" in told) == is_known
        assert (caught.value.__cause__ is error) != is_known
    assert place_at("lake").cause(error) is error


def test_a_store_that_does_not_answer_is_told_with_what_is_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(places.STORES, "s3", lambda _options: Silent())
    places.opened.cache_clear()
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    place = place_at("s3://bucket/lake")
    for ask in (
        lambda: place.has("x"),
        place.names,
        lambda: place.read("x"),
        lambda: place.write("x", b""),
        lambda: place.create("x"),
        lambda: place.remove("x"),
        lambda: place.sizes(["x"]),
    ):
        with pytest.raises(ArchiveError) as caught:
            ask()
        told = str(caught.value)
        assert told.startswith("'s3://bucket/lake' did not answer: ")
        assert "not set are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL" in told
        assert told.isprintable()
        assert "and more" not in told
    places.opened.cache_clear()
