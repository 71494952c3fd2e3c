"""Which texts are nearly equal, and that none of them is missed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_runtime.data.near_texts import ADDED, REPLACED, NearTexts, alike, nearly_equal_pairs, outline
from evsys_runtime.data.words import fold, words_of

ASKED = "What is the name of the longest river that flows through the capital of Portugal?"
LONG = (
    "A farmer near Oslo keeps seventeen red hens and sells nine of them to a baker who "
    "pays with forty loaves, so how many hens stay?"
)


def made(text, own=()):
    folded = fold(text)
    return outline(folded, words_of(folded), own)


def near(one, other, replaced=REPLACED):
    return alike(made(one), made(other), replaced)


@pytest.mark.parametrize(
    "edited",
    [
        ASKED.replace("longest", "longset"),
        ASKED.replace("Portugal", "Portugall"),
        ASKED.replace("capital", "captal"),
        ASKED.replace("is the name", "is the proper name"),
        f"Please: {ASKED}",
        ASKED.replace("?", "!!").replace("of the longest", "of the - longest"),
        ASKED.replace("that flows", "flows"),
        ASKED.replace("river", "ri\u200bver").replace("name", "n\u00adame"),
        ASKED.replace("longest", "lоngеst"),  # Cyrillic letters
        ASKED.replace("Portugal", "Pörtugál"),
    ],
)
def test_small_edits_leave_a_text_nearly_equal(edited):
    assert near(ASKED, edited)
    assert near(edited, ASKED)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ASKED, ASKED.replace("Portugal", "Hungary")),
        (ASKED, ASKED.replace("longest", "shortest")),
        (f"{LONG} 12 + 35", f"{LONG} 12 + 36"),
        (f"{LONG} 12 + 35", f"{LONG} 12 - 35"),
        ("What does a car cost?", "What does a cat cost?"),
        ("Say a", "Say b"),
        ("", ASKED),
    ],
)
def test_another_word_number_or_sign_makes_another_text(one, other):
    assert not near(one, other)


def test_a_word_in_twenty_may_be_replaced_but_not_among_tasks():
    assert near(LONG, LONG.replace("farmer", "shepherd"))
    assert not near(LONG, LONG.replace("farmer", "shepherd"), ADDED)
    assert near(LONG, f"Well, {LONG}", ADDED)


def test_words_that_alone_distinguish_a_text_have_to_be_there():
    template = "How many letters has the following word of the English language, counted with care: {}?"
    task = made(template.format("bananas"), own=["bananas"])
    assert not alike(task, made(template.format("banana")))
    assert alike(task, made(f"Please! {template.format('bananas')}"))


WORDS = ["red", "green", "yellow", "yellwo", "orange", "oranges", "7", "8", "the", "of", "violet", "日"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join), max_size=8)


@st.composite
def texts_with_edits(draw):
    """Texts, and among them others with a few edits."""
    texts = draw(TEXTS)
    for text in list(texts):
        words = text.split()
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, len(words)))
            words[at : at + draw(st.integers(0, 1))] = draw(st.lists(st.sampled_from(WORDS), max_size=1))
        texts.append(" ".join(words))
    return texts


@settings(max_examples=300)
@given(texts_with_edits(), texts_with_edits(), st.booleans())
def test_no_pair_is_missed_that_a_comparison_of_all_pairs_finds(known, asked, owned):
    outlines = [
        made(text, own=text.split()[:2] if owned and number % 2 else ()) for number, text in enumerate(known)
    ]
    search = NearTexts(outlines)
    for text in asked:
        wanted = [n for n, one in enumerate(outlines) if alike(one, made(text))]
        assert list(search.find(fold(text), words_of(fold(text)))) == wanted


@settings(max_examples=300)
@given(texts_with_edits())
def test_no_pair_of_texts_is_missed_of_which_one_has_added_or_misspelt_words(texts):
    outlines = [made(text) for text in texts]
    wanted = [
        (n, m)
        for n in range(len(texts))
        for m in range(n + 1, len(texts))
        if alike(outlines[n], outlines[m], ADDED)
    ]
    assert list(nearly_equal_pairs(outlines)) == wanted


def test_tasks_of_one_template_are_compared_by_their_own_words():
    template = "How many letters has the following word of the English language, counted with care: word{}?"
    names = [f"{a}{b}{c}" for a in "bcdfgk" for b in "aeiou" for c in "lmnrst"]
    outlines = [made(template.format(f" {name}"), own=[name]) for name in names]
    assert not list(nearly_equal_pairs(outlines))
    asked = fold(template.format(f" {names[7]}"))
    assert list(NearTexts(outlines).find(asked, words_of(asked))) == [7]
