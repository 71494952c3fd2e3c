"""The tasks of benchmarks as word n-grams and whole texts to look for: what memory a search takes is what this takes."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import attrs

from evsys.types import HarborTask
from evsys_runtime.data.equal_tasks import first_alike
from evsys_runtime.data.near_texts import NearTexts, Outline, outline
from evsys_runtime.data.row_texts import Part, expected_texts, task_texts
from evsys_runtime.data.word_bags import WordBags
from evsys_runtime.data.words import fold, whole, words_of

__all__ = ["LONG", "MOST_TASKS", "PHRASE", "SHORT", "Entry", "TaskIndex", "Text", "grams", "most_tasks"]

SHORT, LONG = 8, 13
"""Words of an n-gram. 13 are those of Brown et al. (2020), appendix C, 8 those of Chowdhery et al. (2022), section 8."""

PHRASE = 5
"""Words of a phrase that makes boilerplate where too many tasks have it."""

_STRIDE = SHORT - PHRASE + 1

MOST_TASKS = 5
"""A phrase or text in more different tasks than this is boilerplate; in a small benchmark, in more than half of
them.

Tasks equal or nearly equal count once, so copies of a task make none of its words boilerplate.
"""


@attrs.frozen(kw_only=True)
class Entry:
    """A benchmark entry: its label, its split and the scored tasks."""

    name: str
    split: str
    tasks: Sequence[HarborTask]


@attrs.frozen
class Text:
    """A whole text of a task: the task's number, the text as `whole` gives it, and as it is written."""

    task: int
    text: str
    written: str = ""


def most_tasks(tasks: int) -> int:
    """In how many of so many tasks a phrase may be, and still say which task it is from."""
    return max(1, min(MOST_TASKS, tasks // 2))


def grams(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """All runs of `size` words, in order."""
    return zip(*(words[start:] for start in range(size)), strict=False)


class TaskIndex:
    """Looks up which tasks a run of words or a whole text is from.

    All tasks have one numbering. Their words lie one after the other in `words`, and a place is an index into them;
    an n-gram is the place that it starts at.

    An n-gram is looked for where at least half of its words are outside boilerplate. So a template around a
    number gives none, however the number and the template fall.

    Attributes:
        starts: where the words of each task begin, and, at the end, their number.
        short, long: 1 at each place where an n-gram of `SHORT` or `LONG` words starts.
        places: the first `SHORT` words of these to the places where they start.
        pieces: the runs of `PHRASE` words that these first words hold.
        questions: texts that tasks consist of, by their words.
        answers: answers of at least `SHORT` words, by their words.
        parts: how many different texts each task consists of.
        near: the tasks' questions, to be searched for those that are nearly equal to a text.
        bags: the words that tell each task apart.
        expected: the answers of each task, as `whole` gives them.
        answered: True for each task that has one of `answers`.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.words: list[str] = []
        self.starts: list[int] = [0]
        self.short, self.long = bytearray(), bytearray()
        self.places: dict[tuple[str, ...], list[int]] = {}
        self.pieces: set[tuple[str, ...]] = set()
        self.questions: dict[tuple[str, ...], list[Text]] = {}
        self.answers: dict[tuple[str, ...], list[Text]] = {}
        self.parts: list[int] = []
        self.expected: list[tuple[str, ...]] = []
        self.answered: list[bool] = []
        self._vocabulary: dict[str, str] = {}
        self.bags = WordBags()
        outlines: list[Outline] = []
        for entry in entries:
            self._add(entry.tasks, outlines)
        self.near = NearTexts(outlines)
        self.lengths = {
            "question": {len(words) for words in self.questions},
            "answer": {len(words) for words in self.answers},
        }

    def may_hold(self, words: Sequence[str]) -> bool:
        """False where none of `places` is in these words.

        Any run of `SHORT` words holds one of the runs of `PHRASE` words that start at every fourth, so a quarter of the
        look-ups, of shorter runs, is enough to leave most texts.
        """
        aligned = zip(*(words[start::_STRIDE] for start in range(PHRASE)), strict=False)
        return not self.pieces.isdisjoint(aligned) and not self.places.keys().isdisjoint(grams(words, SHORT))

    def task_at(self, place: int) -> int:
        """The number of the task that has this place."""
        return bisect_right(self.starts, place) - 1

    def comparable(self, task: int) -> tuple[bool, bool]:
        """Whether there are n-grams to look for, and whole texts."""
        start, end = self.starts[task], self.starts[task + 1]
        by_words = 1 in self.short[start:end] or 1 in self.long[start:end]
        return by_words, self.parts[task] > 0 or self.answered[task]

    def _add(self, tasks: Sequence[HarborTask], outlines: list[Outline]) -> None:
        written = [task_texts(task) for task in tasks]
        texts = [[(part, fold(text)) for part, text in said] for said in written]
        groups = _groups(tasks)
        most = most_tasks(len(groups))
        common = _common_phrases(texts, groups, most)
        asked = [
            {word for part, text in said if part == "question" for word in words_of(text)} for said in texts
        ]
        self.bags.add(asked, groups, most)
        questions = [
            {whole(fold(text)): text.strip() for part, text in said if part == "question"} for said in written
        ]
        answers = [{whole(fold(text)): fold(text) for text in expected_texts(task)} for task in tasks]
        for said in texts:
            self._add_words(said, common)
            outlines.append(_outline(said, common))
        self._add_questions(questions, _common_texts(questions, groups, most))
        self._add_answers(answers, _common_texts(answers, groups, most))

    def _add_words(self, said: Sequence[tuple[Part, str]], common: set[tuple[str, ...]]) -> None:
        seen: set[tuple[str, ...]] = set()
        for _, text in said:
            words = [self._vocabulary.setdefault(word, word) for word in words_of(text)]
            own = _own_words(words, common)
            base = len(self.words)
            self.words += words
            for size, flags in ((SHORT, self.short), (LONG, self.long)):
                flags.extend(bytes(len(words)))
                for at, gram in enumerate(grams(words, size)):
                    if gram not in seen and 2 * (own[at + size] - own[at]) >= size:
                        seen.add(gram)
                        flags[base + at] = 1
            for at, gram in enumerate(grams(words, SHORT)):
                if self.short[base + at] or self.long[base + at]:
                    self.places.setdefault(gram, []).append(base + at)
                    self.pieces.update(grams(gram, PHRASE))
        self.starts.append(len(self.words))

    def _add_questions(self, questions: Sequence[dict[str, str]], shared: Set[str]) -> None:
        for texts in questions:
            task = len(self.parts)
            said = {text: written for text, written in texts.items() if text}
            # A task of which each message is shared is told by having all of them.
            own = {text: written for text, written in said.items() if text not in shared} or said
            self.parts.append(len(own))
            for text, written in own.items():
                self.questions.setdefault(tuple(words_of(text)), []).append(Text(task, text, written))

    def _add_answers(self, answers: Sequence[dict[str, str]], shared: Set[str]) -> None:
        for texts in answers:
            task = len(self.expected)
            self.expected.append(tuple(text for text in texts if text))
            self.answered.append(False)
            for text, folded in texts.items():
                words = tuple(words_of(folded))
                if len(words) >= SHORT and text not in shared:
                    self.answered[task] = True
                    self.answers.setdefault(words, []).append(Text(task, text))


def _groups(tasks: Sequence[HarborTask]) -> list[list[int]]:
    """The places of tasks equal or nearly equal, together."""
    groups: dict[str, list[int]] = {}
    for place, first in enumerate(first_alike(tasks).values()):
        groups.setdefault(first, []).append(place)
    return list(groups.values())


def _common_phrases(
    texts: Sequence[Sequence[tuple[Part, str]]], groups: Sequence[Sequence[int]], most: int
) -> set[tuple[str, ...]]:
    """The phrases in more than `most` groups of tasks."""
    phrases: Counter[tuple[str, ...]] = Counter()
    for places in groups:
        said = (text for place in places for _, text in texts[place])
        phrases.update({gram for text in said for gram in grams(words_of(text), PHRASE)})
    return {gram for gram, count in phrases.items() if count > most}


def _common_texts(texts: Sequence[Mapping[str, str]], groups: Sequence[Sequence[int]], most: int) -> set[str]:
    """The whole texts in more than `most` groups of tasks."""
    counts = Counter(
        text for places in groups for text in {text for place in places for text in texts[place]}
    )
    return {text for text, count in counts.items() if count > most}


def _outline(said: Sequence[tuple[Part, str]], common: set[tuple[str, ...]]) -> Outline:
    """The outline of a task's question, to compare with rows; if a part of that is boilerplate, the rest has to be
    in a row as it is.
    """
    asked = [text for part, text in said if part == "question"]
    words = [words_of(text) for text in asked]
    counts = [_own_words(one, common) for one in words]
    own = {
        word
        for one, count in zip(words, counts, strict=True)
        for at, word in enumerate(one)
        if count[at + 1] > count[at]
    }
    every = [word for one in words for word in one]
    boilerplate = sum(count[-1] for count in counts) < len(every)
    return outline("\n".join(asked), every, own if boilerplate else ())


def _own_words(words: Sequence[str], common: set[tuple[str, ...]]) -> list[int]:
    """How many of the words before each position are outside all common phrases."""
    shared = bytearray(len(words))
    for at, gram in enumerate(grams(words, PHRASE)):
        if gram in common:
            shared[at : at + PHRASE] = b"\1" * PHRASE
    own = [0]
    for flag in shared:
        own.append(own[-1] + (not flag))
    return own
