"""The tasks of benchmarks as word n-grams and whole texts to look for: what memory a search takes is what this takes."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import attrs

from evsys.types import HarborTask
from evsys_runtime.data.row_texts import Part, expected_texts, task_texts
from evsys_runtime.data.words import fold, whole, words_of

__all__ = ["LONG", "MOST_TASKS", "PHRASE", "SHORT", "Entry", "TaskIndex", "Text", "grams", "most_tasks"]

SHORT, LONG = 8, 13
"""Words of an n-gram. 13 are those of Brown et al. (2020), appendix C, 8 those of Chowdhery et al. (2022), section 8."""

PHRASE = 5
"""Words of a phrase that makes boilerplate where too many tasks have it."""

_STRIDE = SHORT - PHRASE + 1

MOST_TASKS = 5
"""A phrase or text in more tasks than this is boilerplate; in a small benchmark, in more than half of them."""


@attrs.frozen(kw_only=True)
class Entry:
    """A benchmark entry: its label, its split and the tasks that are scored."""

    name: str
    split: str
    tasks: Sequence[HarborTask]


@attrs.frozen
class Text:
    """A whole text of a task: the task's number, and the text as `whole` gives it."""

    task: int
    text: str


def most_tasks(tasks: int) -> int:
    """In how many of so many tasks a phrase may be, and still say which task it is from."""
    return max(1, min(MOST_TASKS, tasks // 2))


def grams(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """All runs of `size` words, in order."""
    return zip(*(words[start:] for start in range(size)), strict=False)


class TaskIndex:
    """Looks up which tasks a run of words or a whole text is from.

    All tasks have one numbering. Their words lie one after the other in `words`, and a place is an index into them; an
    n-gram is the place that it starts at.

    An n-gram is looked for where at least half of its words are outside of boilerplate. So a template around a number gives
    none, however the number and the template fall.

    Attributes:
        starts: where the words of each task begin, and, at the end, their number.
        short, long: 1 at each place where an n-gram of `SHORT` or `LONG` words starts that is looked for.
        places: the first `SHORT` words of these to the places where they start.
        pieces: the runs of `PHRASE` words that these first words hold.
        questions: texts that tasks consist of, by their words.
        answers: answers of at least `SHORT` words, by their words.
        parts: how many different texts each task consists of.
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
        for entry in entries:
            self._add(entry.tasks)
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

    def _add(self, tasks: Sequence[HarborTask]) -> None:
        texts = [[(part, fold(text)) for part, text in task_texts(task)] for task in tasks]
        most = most_tasks(len(tasks))
        phrases: Counter[tuple[str, ...]] = Counter()
        for said in texts:
            phrases.update({gram for _, text in said for gram in grams(words_of(text), PHRASE)})
        common = {gram for gram, count in phrases.items() if count > most}
        del phrases
        questions = [{whole(text): text for part, text in said if part == "question"} for said in texts]
        answers = [{whole(fold(text)): fold(text) for text in expected_texts(task)} for task in tasks]
        for said in texts:
            self._add_words(said, common)
        self._add_questions(questions, most)
        self._add_answers(answers, most)

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

    def _add_questions(self, questions: Sequence[dict[str, str]], most: int) -> None:
        shared = Counter(text for texts in questions for text in texts)
        for texts in questions:
            task = len(self.parts)
            own = {text: folded for text, folded in texts.items() if text and shared[text] <= most}
            self.parts.append(len(own))
            for text, folded in own.items():
                self.questions.setdefault(tuple(words_of(folded)), []).append(Text(task, text))

    def _add_answers(self, answers: Sequence[dict[str, str]], most: int) -> None:
        shared = Counter(text for texts in answers for text in texts)
        for texts in answers:
            task = len(self.expected)
            self.expected.append(tuple(text for text in texts if text))
            self.answered.append(False)
            for text, folded in texts.items():
                words = tuple(words_of(folded))
                if len(words) >= SHORT and shared[text] <= most:
                    self.answered[task] = True
                    self.answers.setdefault(words, []).append(Text(task, text))


def _own_words(words: Sequence[str], common: set[tuple[str, ...]]) -> list[int]:
    """How many of the words before each position are outside of all common phrases."""
    shared = bytearray(len(words))
    for at, gram in enumerate(grams(words, PHRASE)):
        if gram in common:
            shared[at : at + PHRASE] = b"\1" * PHRASE
    own = [0]
    for flag in shared:
        own.append(own[-1] + (not flag))
    return own
