"""Words and back: nothing is ever lost, and what English spelling decides comes back letter for letter."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabula.corpus.tokenize import detokenise, normalise, split_paragraph, tokenise
from fabula.corpus.toy import toy_stories
from fabula.sampling.text import close_quotes

WRITTEN = [
    "Mira didn't know that Tom couldn't swim.",
    "I'm sure they've said you're late, and we'll see that he'd left.",
    "She can't, won't and shouldn't go; it isn't fair!",
    'He shouted, "Come back!" and ran.',
    '"Where is it?" asked Olga.',
    "The sign said 'closed' in red letters.",
    "The boys' room and the girls' room were locked.",
    "Olga's cat sat on Mr. Brown's mat at 5 p.m. sharp.",
    "It cost $5, or 20% of what she had (nearly $3.50).",
    "The well-known, two-year-old dog ate my mother-in-law's cake.",
    "They waited... and waited.",
    "We cannot stay; I'm gonna leave.",
    "He took the 5K run and/or the long walk.",
    "She liked it - but he did not.",
    "Tickets [three of them] were #1 on the list: bread, milk, eggs.",
    "THEY DIDN'T SEE IT!",
    "Don't stop; Let's go?",
    "“Well,” she said, “that’s that.”",
    "Dunkin' about in the '90s was fun.",
    'A 55" screen hung there.',
]


@pytest.mark.parametrize("sentence", WRITTEN)
def test_written_english_comes_back_letter_for_letter(sentence: str) -> None:
    assert detokenise(tokenise(sentence)) == sentence


def test_words_are_split_where_the_paper_splits_them() -> None:
    assert " ".join(tokenise("Mira  didn't\tpay $5, did she?\n")) == "Mira did n't pay $ 5 , did she ?"


@given(st.text(max_size=80))
def test_no_character_is_lost_or_made_up_for_any_text(text: str) -> None:
    words = tokenise(text)
    assert all(words)
    assert not any(character.isspace() for word in words for character in word)
    assert "".join(words) == "".join(text.split())
    assert "".join(detokenise(words).split()) == "".join(text.split())


@given(st.lists(st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=6), max_size=12))
def test_any_list_of_words_is_written_in_order_and_in_full(words: list[str]) -> None:
    """A model may write any sequence of words; none of them may go missing."""
    written = detokenise(words)
    assert "".join(written.split()) == "".join(words)
    assert written == normalise(written)


_PLAIN = st.sampled_from(["dog", "tree", "lamp", "ran", "saw", "green", "quickly", "seven", "house", "river"])
_CLAUSE_WORD = st.one_of(
    _PLAIN,
    # No word ends in s before a single quote: "the boys 'seven'" and "the boys' seven'" are the same words.
    st.sampled_from(["didn't", "couldn't", "they've", "Olga's dog", "$40", "15%", "half-open", "(maybe)", "cannot"]),
    _PLAIN.map(lambda word: f'"{word}"'),
    _PLAIN.map(lambda word: f"'{word}'"),
)


@given(
    st.lists(st.lists(_CLAUSE_WORD, min_size=1, max_size=6), min_size=1, max_size=3),
    st.sampled_from([".", "!", "?", "..."]),
)
def test_composed_sentences_come_back(clauses: list[list[str]], end: str) -> None:
    sentence = "It " + ", ".join(" ".join(clause) for clause in clauses) + end
    assert detokenise(tokenise(sentence)) == sentence


def test_every_toy_sentence_comes_back() -> None:
    for story in toy_stories(200, seed=3):
        assert [detokenise(tokenise(sentence)) for sentence in story.sentences] == story.sentences


PARAGRAPHS = [
    ["Mira ran.", "She fell!", "Why?", "Nobody knew."],
    ["Mr. Brown met Dr. Lee at 5 p.m. on Main St. near the bank.", "They spoke."],
    ["J. R. Moss wrote it.", "It cost $3.50 in the U.S. Army shop."],
    ['"Stop!" he said.', '"I will not," she said.', "(He had asked.)", "They left..."],
    [
        "No end mark",
    ],
    ["He was no. 5 on the list.", "3 more came."],
]


@pytest.mark.parametrize("sentences", PARAGRAPHS)
def test_paragraphs_split_where_sentences_end(sentences: list[str]) -> None:
    assert split_paragraph("  " + " \n".join(sentences)) == sentences


@given(st.text(st.sampled_from("aB .!?\"'\n(1)"), max_size=60))
@settings(max_examples=200)
def test_splitting_a_paragraph_loses_nothing(text: str) -> None:
    sentences = split_paragraph(text)
    assert " ".join(sentences) == normalise(text)
    assert all(sentence == normalise(sentence) and sentence for sentence in sentences)


@given(st.text(alphabet='ab ".,', max_size=30))
def test_quotation_marks_come_in_pairs_and_words_stay(sentence: str) -> None:
    closed = close_quotes(sentence)
    assert closed.count('"') % 2 == 0
    assert closed.replace('"', "").split() == sentence.replace('"', "").split() or sentence.count('"') % 2
