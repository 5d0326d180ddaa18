"""Downloads from a local server that cuts, stalls, lies and moves."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mn.data.catalog import File
from mn.data.fetch import Fetcher
from mn.data.keep import Keep
from mn.errors import MNError
from tests.mn.data.server import Server, running

DATA = np.random.default_rng(0).bytes(700_000)
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    return Keep(tmp_path / "keep")


def file(*urls: str, **known: object) -> File:
    return File(name="set.bin", urls=list(urls), **known)


class Waits(list[float]):
    """Records the waits between attempts, and waits none of them."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def fetcher(keep: Keep, waits: Waits | None = None, **options: float) -> Fetcher:
    return Fetcher(keep, sleep=waits if waits is not None else Waits(), **{"patience": 5.0, **options})


def left(keep: Keep) -> list[str]:
    """Finished files, and parts of unfinished ones."""
    files = [path.name for path in (keep.root / "files").glob("*")]
    parts = [path.name for path in (keep.root / "partial").glob("*") if not path.suffix]
    return files + parts


def test_a_file_is_streamed_verified_and_kept(server: Server, keep: Keep) -> None:
    url = server.url("/a", data=DATA)
    assert fetcher(keep).fetch(file(url, md5=MD5, size=len(DATA))) == (SHA256, url)
    assert keep.path(SHA256).read_bytes() == DATA
    assert left(keep) == [SHA256]


@pytest.mark.parametrize("seed", range(20))
def test_cut_at_a_random_byte_it_goes_on_from_there(server: Server, keep: Keep, seed: int) -> None:
    cut = int(np.random.default_rng(seed).integers(1, len(DATA)))
    url = server.url("/a", data=DATA, cuts=[cut])
    assert fetcher(keep).fetch(file(url, md5=MD5))[0] == SHA256
    assert server.paths["/a"].requests == ["", f"bytes={cut}-"]


def test_cut_twenty_times_in_one_download(server: Server, keep: Keep) -> None:
    cuts = np.random.default_rng(1).integers(1, 30_000, 20).tolist()
    url = server.url("/a", data=DATA, cuts=cuts)
    assert fetcher(keep).fetch(file(url, md5=MD5))[0] == SHA256
    starts = [int(asked[6:-1]) for asked in server.paths["/a"].requests[1:]]
    assert len(starts) == 20
    assert starts == sorted(set(starts))


def test_a_part_survives_the_process(server: Server, keep: Keep) -> None:
    url = server.url("/a", data=DATA, cuts=[250_000, 0, 0])
    with pytest.raises(MNError, match="could not be downloaded"):
        fetcher(keep, attempts=2).fetch(file(url, md5=MD5))
    again = Keep(keep.root)
    fetcher(again).fetch(file(url, md5=MD5))
    assert server.paths["/a"].requests[-1] == "bytes=250000-"


def test_with_a_checksum_a_part_goes_on_at_another_mirror(server: Server, keep: Keep) -> None:
    first = server.url("/a", data=DATA, cuts=[300_000, *[0] * 9])
    second = server.url("/b", data=DATA)
    assert fetcher(keep).fetch(file(first, second, md5=MD5)) == (SHA256, second)
    assert server.paths["/b"].requests == ["bytes=300000-"]


def test_without_one_a_changed_file_starts_anew(server: Server, keep: Keep) -> None:
    url = server.url("/a", data=bytes(len(DATA)), tag='"old"', cuts=[100_000, 0, 0])
    with pytest.raises(MNError):
        fetcher(keep, attempts=2).fetch(file(url))
    server.url("/a", data=DATA, tag='"new"')
    assert fetcher(keep).fetch(file(url))[0] == SHA256


def test_a_server_without_ranges_sends_it_all_again(server: Server, keep: Keep) -> None:
    url = server.url("/a", data=DATA, cuts=[200_000], ranges=False)
    assert fetcher(keep).fetch(file(url, md5=MD5))[0] == SHA256


def test_a_server_that_sends_another_range_is_not_believed(server: Server, keep: Keep) -> None:
    url = server.url("/a", data=DATA, cuts=[200_000], wrong_range=True)
    assert fetcher(keep).fetch(file(url, md5=MD5))[0] == SHA256


def test_a_part_that_is_whole_needs_no_more(server: Server, keep: Keep) -> None:
    url = server.url("/a", data=DATA)
    part = keep.partial(MD5)
    part.parent.mkdir(parents=True)
    part.write_bytes(DATA)
    assert fetcher(keep).fetch(file(url, md5=MD5))[0] == SHA256


@pytest.mark.parametrize("part", [bytes(100), DATA + b"more", b"wrong" * 200_000])
def test_a_damaged_part_is_thrown_away(server: Server, keep: Keep, part: bytes) -> None:
    url = server.url("/a", data=DATA)
    path = keep.partial(MD5)
    path.parent.mkdir(parents=True)
    path.write_bytes(part)
    assert fetcher(keep).fetch(file(url, md5=MD5))[0] == SHA256


def test_no_length_and_no_checksum(server: Server, keep: Keep) -> None:
    assert fetcher(keep).fetch(file(server.url("/a", data=DATA, length=False)))[0] == SHA256


def test_redirects_are_followed(server: Server, keep: Keep) -> None:
    server.url("/b", data=DATA)
    assert fetcher(keep).fetch(file(server.url("/a", redirect="/b"), md5=MD5))[0] == SHA256


def test_errors_of_the_server_are_waited_out(server: Server, keep: Keep) -> None:
    waits = Waits()
    url = server.url("/a", data=DATA, fail_first=4)
    assert fetcher(keep, waits).fetch(file(url, md5=MD5))[0] == SHA256
    assert waits == sorted(waits)
    assert len(waits) == 4
    assert waits[0] < waits[-1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


BAD: dict[str, tuple[dict[str, object], str]] = {
    "404": ({"status": 404}, "answered 404"),
    "403": ({"status": 403}, "answered 403"),
    "500 for ever": ({"fail_first": 999}, "answered 503, 5 times in a row"),
    "redirect loop": ({"redirect": "/bad"}, "redirects without end"),
    "redirect to a file": ({"redirect": "file:///etc/passwd"}, "not an address"),
    "wrong content": ({"data": bytes(len(DATA))}, "its MD5 is"),
    "too short": ({"data": DATA[:-1]}, "699,999 bytes, 700,000 were published"),
    "too long, length unsaid": ({"data": DATA + b"x", "length": False}, "more than the 700,000 bytes"),
    "too short, length unsaid": ({"data": DATA[:-1], "length": False}, "699,999 bytes"),
    "a web page": ({"data": b"\n<!DOCTYPE html><html>quota</html>", "length": False}, "a web page came"),
    "empty": ({"data": b"", "length": False}, "0 bytes"),
    "cut before the first byte": ({"data": DATA, "cuts": [0] * 99}, "times in a row"),
    "stalls": ({"data": DATA, "stall_after": 0}, "stalled"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_goes_wrong_is_told_and_leaves_no_file(server: Server, keep: Keep, case: str) -> None:
    behaviour, message = BAD[case]
    url = server.url("/bad", **behaviour)
    patience = 0.05 if case == "stalls" else 5.0
    with pytest.raises(MNError, match=message) as caught:
        fetcher(keep, patience=patience).fetch(file(url, md5=MD5, size=len(DATA)))
    assert "\n" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)
    assert "--from" in str(caught.value)
    assert not (keep.root / "files").exists()


@pytest.mark.parametrize("case", BAD)
def test_the_next_mirror_is_tried(server: Server, keep: Keep, case: str) -> None:
    bad = server.url("/bad", **BAD[case][0])
    good = server.url("/good", data=DATA)
    patience = 0.05 if case == "stalls" else 5.0
    found = fetcher(keep, patience=patience).fetch(file(bad, good, md5=MD5, size=len(DATA)))
    assert found == (SHA256, good)


def test_a_server_that_stalls_in_the_middle_is_gone_on_with(server: Server, keep: Keep) -> None:
    url = server.url("/a", data=DATA, stall_after=400_000)
    waits = Waits()

    def recover(seconds: float) -> None:
        waits.append(seconds)
        server.paths["/a"].stall_after = None

    assert Fetcher(keep, patience=0.2, sleep=recover).fetch(file(url, md5=MD5))[0] == SHA256
    assert server.paths["/a"].requests == ["", "bytes=262144-"]  # the whole blocks that came are kept


def test_nobody_listens(keep: Keep) -> None:
    with pytest.raises(MNError, match="no connection"):
        fetcher(keep, attempts=2).fetch(file(f"http://127.0.0.1:{_free_port()}/a", md5=MD5))


def test_ctrl_c_keeps_the_part(server: Server, keep: Keep) -> None:
    url = server.url("/a", data=DATA, cuts=[123_456])

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Fetcher(keep, sleep=interrupt).fetch(file(url, md5=MD5))
    assert keep.partial(MD5).stat().st_size == 123_456


def test_progress_is_told_in_plain_lines(
    server: Server, keep: Keep, capsys: pytest.CaptureFixture[str]
) -> None:
    from mn.data.progress import shown

    url = server.url("/a", data=DATA, cuts=[400_000])
    Fetcher(keep, meter=shown, sleep=Waits()).fetch(file(url, md5=MD5))
    lines = capsys.readouterr().out.splitlines()
    assert any("goes on from 0.4 MB" in line for line in lines)
    assert "0.7 of 0.7 MB" in lines[-1]
    assert "MB/s" in lines[-1]
