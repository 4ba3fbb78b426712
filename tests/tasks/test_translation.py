"""Parallel text: the TSV's errors and how pairs are joined; no seqio."""

import pytest

from spec_cascades.tasks.translation import join_pairs, read_pairs

PAIRS = [(f"s{i}", f"t{i}") for i in range(23)]


def flat(joined):
    """The single pairs of joined ones; each example's two sides must hold the same pairs."""
    found = []
    for source, target in joined:
        sources, targets = source.split(" "), target.split(" ")
        assert [s[1:] for s in sources] == [t[1:] for t in targets]
        found += zip(sources, targets, strict=True)
    return found


def sizes(joined):
    return [len(source.split(" ")) for source, _ in joined]


def test_without_a_seed_exactly_join_consecutive_pairs_in_order():
    joined = join_pairs(PAIRS, 4, None)
    assert flat(joined) == PAIRS
    assert sizes(joined) == [4, 4, 4, 4, 4, 3]
    assert join_pairs(PAIRS, 1, None) == PAIRS


@pytest.mark.parametrize("seed", range(5))
def test_with_a_seed_every_pair_once_and_one_to_join_a_group(seed):
    joined = join_pairs(PAIRS, 4, seed)
    assert sorted(flat(joined)) == sorted(PAIRS)
    assert flat(joined) != PAIRS
    assert set(sizes(joined)) <= {1, 2, 3, 4}
    assert joined == join_pairs(PAIRS, 4, seed)
    assert joined != join_pairs(PAIRS, 4, seed + 1)


def test_group_sizes_are_uniform():
    found = [size for seed in range(200) for size in sizes(join_pairs(PAIRS, 3, seed))[:-1]]
    for size in (1, 2, 3):
        # Binomial: five standard deviations.
        n = len(found)
        assert abs(found.count(size) - n / 3) < 5 * (n * 2 / 9) ** 0.5


def test_pairs_of_a_file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("Go.\tGeh.\nÜber uns?\tAbout us?\n", encoding="utf-8")
    assert read_pairs(path) == [("Go.", "Geh."), ("Über uns?", "About us?")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\tb\nonly one\n", ["pairs.tsv:2", "1 columns"]),
        ("a\tb\tc\n", ["pairs.tsv:1", "3 columns"]),
        ("a\tb\n\nc\td\n", ["pairs.tsv:2"]),
        ("a\t\n", ["pairs.tsv:1", "'source<TAB>reference'"]),
        ("", ["pairs.tsv", "no line"]),
    ],
)
def test_bad_lines_are_named(tmp_path, text, words):
    path = tmp_path / "pairs.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"pairs\.tsv") as error:
        read_pairs(path)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_pairs(tmp_path / "absent.tsv")


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0b"])
def test_only_a_newline_ends_a_line_of_a_tsv(tmp_path, character):
    path = tmp_path / "odd.tsv"
    path.write_text(f"a{character}b\tc\nd\te\n", "utf-8")
    assert read_pairs(path) == [(f"a{character}b", "c"), ("d", "e")]
