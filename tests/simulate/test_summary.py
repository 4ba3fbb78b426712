import pytest

from spec_cascades.simulate import summary


def row(point, rate, first, p99, capacity=100.0, arrivals="poisson"):
    figures = lambda x: {"mean": x, "p50": x, "p90": x, "p99": x}
    return {
        "point": point,
        "arrivals": arrivals,
        "rate": rate,
        "capacity": capacity,
        "saturated": rate >= capacity,
        "latency": figures(p99),
        "first_token": figures(first),
    }


def rows(point, firsts, p99s, **own):
    return [row(point, r, f, p, **own) for r, f, p in zip((10, 40, 80, 120), firsts, p99s, strict=True)]


OTHER = rows("v3", (1, 1, 1, 1), (5, 5, 5, 5), capacity=200.0)


@pytest.mark.parametrize(
    ("p99s", "index"),
    [
        ((5, 5, 6, 9), 2),
        ((6, 6, 6, 6), 0),
        ((6, 5, 6, 6), 2),
        ((5, 5, 5, 9), None),  # at 120 the cascade is full
        ((6, 6, 5, 9), None),
    ],
)
def test_a_wait_shows_from_the_rate_on_after_which_it_never_goes(p99s, index):
    cascade = rows("sequence", (1, 1, 1, 1), p99s)
    assert summary.onset(cascade, OTHER, "latency", "p99") == index


def test_the_sentence_says_from_where_and_how_much():
    cascade = rows("sequence", (2, 3, 4, 50), (5, 5, 6, 50))
    (line,) = summary.lines([*OTHER, *cascade], {"v3": "speculative", "sequence": "sequence"})
    assert line.startswith("poisson: sequence against v3: at 10/s (10 % of the cascade's capacity) the first")
    assert "after 2000.0 ms on average, against 1000.0" in line
    of_10, of_80 = "10/s (10 % of the cascade's capacity)", "80/s (80 % of the cascade's capacity)"
    assert f"first token: 1.1 times the other's or more from {of_10} on, 4.00 times at {of_80}" in line
    assert f"p99 latency: 1.1 times the other's or more from {of_80} on, 1.20 times at {of_80}" in line
    assert line.endswith("full at 100/s, against 200/s")


def test_no_wait_is_said_too():
    cascade = rows("sequence", (1, 1, 1, 50), (5, 5, 4, 50))
    (line,) = summary.lines([*OTHER, *cascade], {"v3": "speculative", "sequence": "sequence"})
    assert "p99 latency: no wait of 1.1 times the other's below capacity, 0.80 times at 80/s" in line


def test_a_point_that_is_full_from_the_start_is_compared_with_nothing():
    cascade = rows("sequence", (1, 1, 1, 1), (5, 5, 5, 5), capacity=10.0)
    (line,) = summary.lines([*OTHER, *cascade], {"v3": "speculative", "sequence": "sequence"})
    assert line.endswith("full at 10/s (100 % of the cascade's capacity) already")


def test_what_cascades_are_held_against():
    assert summary.reference({"t": "target", "a": "speculative", "b": "speculative"}) == "b"
    assert summary.reference({"t": "target", "s": "sequence"}) == "t"
    assert summary.reference({"s": "sequence"}) is None
    assert summary.lines([], {"s": "sequence"}) == []
