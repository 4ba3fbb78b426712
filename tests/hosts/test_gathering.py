import pytest
from many import Many

from spec_cascades.checks import ConfigError
from spec_cascades.hosts import gathering


@pytest.fixture
def three(monkeypatch):
    monkeypatch.setattr(gathering, "CHUNK", 8)
    return Many(monkeypatch, 3)


@pytest.mark.parametrize("sizes", [(0, 0, 0), (5, 0, 8), (8, 16, 17), (1, 100, 24)])
def test_everyone_hears_everyone_whatever_the_length(three, sizes):
    said = [bytes((i * 50 + k) % 256 for k in range(size)) for i, size in enumerate(sizes)]
    assert three.all(lambda i: gathering.gather(said[i])) == [said] * 3


def test_what_process_0_says_all_hear(three):
    assert three.all(lambda i: gathering.share(f"from {i}".encode())) == [b"from 0"] * 3


def test_what_fails_in_one_fails_in_all(three, capsys):
    def work(i):
        with gathering.together():
            if i == 1:
                raise KeyError("an odd\nfile")

    first, second, third = three.all(work)
    assert isinstance(second, KeyError)
    for other in (first, third):
        assert isinstance(other, ConfigError)
        assert str(other) == r"process 1 of 3: 'an odd\nfile'"
    assert "process 1 of 3" in capsys.readouterr().err


def test_where_nothing_fails_all_go_on_after_the_last(three):
    arrived = []

    def work(i):
        with gathering.together():
            arrived.append(i)
        return len(arrived)

    assert three.all(work) == [3, 3, 3]


def test_where_one_is_gone_the_others_say_so(three):
    def work(i):
        if i == 2:
            raise SystemExit
        with gathering.together():
            pass

    for lost in three.all(work)[:2]:
        assert isinstance(lost, gathering.Lost)
        assert "start all again" in str(lost)
