"""When two texts count as the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_runtime.data.words import fold, whole, words_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Crème brûlée", "cre\u0300me bru\u0302le\u0301e"),  # composed, or letter and mark
        ("\uff34\uff48\uff45 \uff23\uff41\uff54", "the cat"),  # full width
        ("STRASSE", "straße"),
        ("the \ufb01sh", "The fish"),  # a ligature
        ("a\u00a0b\u2003c", "a b c"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("zero\u200bwidth\u200d and so\u00adft hy\ufeffphen", "zerowidth and soft hyphen"),
        ("Wһаt іs thе сарitаl оf Frаnсе", "What is the capital of France"),  # Cyrillic letters
        ("Ηοw many", "How many"),  # Greek letters
        ("naïve café", "naive cafe"),
        ("𝐖𝐡𝐚𝐭 now", "what now"),
        ("state\u2011of\u2011the\u2011art – don’t", "state-of-the-art - don't"),
    ],
)
def test_case_width_accents_and_composition_make_no_difference(one, other):
    assert whole(fold(one)) == whole(fold(other))
    assert words_of(fold(one)) == words_of(fold(other))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What's 3.5_kg, in **lb**?", ["what", "s", "3", "5", "kg", "in", "lb"]),
        ("三加五。OK", ["三", "加", "五", "ok"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("?! \n", []),
    ],
)
def test_words_are_letters_and_digits_and_single_characters_where_no_spaces_are_written(text, words):
    assert words_of(fold(text)) == words


def test_a_whole_text_keeps_symbols_inside_and_loses_white_space_and_punctuation_around():
    assert whole(fold("  What is\n12  + 35 ? ")) == "what is 12 + 35"
    assert whole(fold("12 + 35")) != whole(fold("12 - 35"))


@given(st.text())
def test_folding_twice_changes_nothing_more(text):
    folded = fold(text)
    assert fold(folded) == folded
    assert words_of(folded) == words_of(whole(folded))


@given(st.text(st.characters(max_codepoint=127)))
def test_texts_of_ascii_are_folded_as_all_others(text):
    assert [*words_of(fold(text)), "日"] == words_of(fold(f"{text} 日"))
