"""Which tasks are found among rows, and what says so."""

from __future__ import annotations

import random
import string
from collections import Counter
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.types import HarborTask, VerifierSpec
from evsys_runtime.data.contamination import BenchmarkCheck, Overlap, Scan
from evsys_runtime.data.equal_tasks import first_alike
from evsys_runtime.data.parse import parse_row
from evsys_runtime.data.task_index import Entry, TaskIndex, most_tasks

STORY = (
    "A farmer near Oslo keeps seventeen red hens and sells nine of them to a baker who "
    "pays with forty loaves, so how many hens stay?"
)
OTHER = (
    "Two trains leave Lyon at dawn on parallel tracks, one at eighty and the other at ninety "
    "kilometres an hour; when are they thirty apart?"
)
TEMPLATE = "Compute the sum of the two numbers below and answer with the number only and nothing else: "
LONG_ANSWER = "because the moon pulls the near sea harder than the earth beneath it"


def tasks_of(*instructions, expected=None):
    return [
        HarborTask(
            task_id=f"t{number}", instruction=text, verifier=VerifierSpec(name="v", expected=expected or "8")
        )
        for number, text in enumerate(instructions)
    ]


def row_of(prompt, completion="no idea", **columns):
    return parse_row({"prompt": prompt, "completion": completion, **columns}, "chat", 0)


def checked(tasks, *rows) -> BenchmarkCheck:
    entries = [Entry(name="b", split="val", tasks=tasks)]
    scan = Scan(TaskIndex(entries))
    for row in rows:
        scan.add(row)
    (check,) = scan.checks(entries)
    return check


def evidence(tasks, *rows) -> dict[str, tuple[str, ...]]:
    return {task.task_id: task.evidence for task in checked(tasks, *rows).flagged}


# --- what is found ------------------------------------------------------------------------------------------------


def test_a_task_that_is_a_row_verbatim_is_flagged_with_all_its_ngrams_its_answer_and_its_row():
    rows = [row_of("something else"), row_of(STORY, "It is 8."), row_of("and more")]
    (task,) = checked(tasks_of(STORY, OTHER), *rows).flagged
    assert (task.task_id, task.evidence) == ("t0", ("instruction", "ngrams_13", "ngrams_8"))
    words = len(STORY.split())
    assert task.ngrams_8 == Overlap(found=words - 7, of=words - 7)
    assert task.ngrams_13 == Overlap(found=words - 12, of=words - 12)
    assert (task.answer, task.rows_matched) == (True, 1)
    (row,) = task.closest
    assert (row.row, row.instruction, row.answer) == (1, True, True)


@pytest.mark.parametrize(
    "told",
    [
        STORY.upper(),
        STORY.replace(" ", "\n "),
        STORY.replace(",", " --").replace("?", ""),
        "".join(chr(ord(c) + 0xFEE0) if c in string.ascii_letters else c for c in STORY),  # full width
    ],
)
def test_case_white_space_punctuation_and_width_hide_nothing(told):
    assert "ngrams_8" in evidence(tasks_of(STORY), row_of(f"Here is a riddle: {told} Think!"))["t0"]


@pytest.mark.parametrize(
    "row",
    [
        parse_row({"prompt": "Make up a riddle.", "completion": STORY}, "chat", 0),
        parse_row({"messages": [{"role": "system", "content": f"Example: {STORY}"}]}, "chat", 0),
        parse_row({"prompt": "q", "chosen": "a", "rejected": STORY}, "chat", 0),
        parse_row({"prompt": STORY}, "prompt", 0),
        parse_row({"task_id": "x", "instruction": STORY, "verifier": {"name": "v"}}, "task", 0),
    ],
)
def test_a_task_is_found_in_any_message_of_any_shape_of_row(row):
    assert "ngrams_13" in evidence(tasks_of(STORY), row)["t0"]


def test_thirteen_words_in_a_row_flag_a_task_and_twelve_do_not():
    words = STORY.split()
    assert evidence(tasks_of(STORY), row_of("well " + " ".join(words[3:16]))) == {"t0": ("ngrams_13",)}
    assert evidence(tasks_of(STORY), row_of("well " + " ".join(words[3:15]))) == {}


def test_runs_of_eight_words_flag_a_task_where_the_rows_have_seventy_per_cent_of_them():
    words = [f"w{number}" for number in range(17)]  # ten 8-grams, none of 13 words is whole below
    pieces = [row_of(" ".join(words[at : at + 8])) for at in range(7)]
    (task,) = checked(tasks_of(" ".join(words)), *pieces).flagged
    assert (task.evidence, task.ngrams_8, task.rows_matched) == (("ngrams_8",), Overlap(found=7, of=10), 7)
    assert evidence(tasks_of(" ".join(words)), *pieces[:6]) == {}


def test_an_instruction_of_eight_words_is_found_inside_a_prompt_and_a_shorter_one_only_as_it_stands():
    eight, seven = "Name all seven moons of the red planet", "Name all moons of the red planet"
    before = "Here is something that a friend of mine wanted to know:"
    assert evidence(tasks_of(eight), row_of(f"{before} {eight}.")) == {"t0": ("ngrams_8",)}
    assert evidence(tasks_of(seven), row_of(f"{before} {seven}.")) == {}
    assert evidence(tasks_of(seven), row_of(f"Q: {seven}.")) == {"t0": ("near",)}
    assert evidence(tasks_of(seven), row_of(f" {seven.upper()}?\n")) == {"t0": ("instruction",)}
    assert checked(tasks_of(seven), row_of("q")).whole_text_only == 1


def test_short_texts_that_differ_in_a_symbol_are_two():
    assert evidence(tasks_of("12 + 35"), row_of("12 - 35")) == {}
    assert evidence(tasks_of("12 + 35", "🙂"), row_of("12 + 35 ="), row_of("12 + 35"), row_of("🙂")) == {
        "t0": ("instruction",),
        "t1": ("instruction",),
    }


def test_a_short_instruction_that_a_row_answers_with_is_another_task():
    assert evidence(tasks_of("turn: abc"), row_of("What comes after turn: abb?", "turn: abc")) == {}


def test_a_task_of_several_messages_is_whole_where_a_row_has_all_of_them():
    said = [{"role": "user", "content": text} for text in ("I have a cat.", "What does it eat?")]
    task = parse_row({"task_id": "t0", "instruction": said, "verifier": {"name": "v"}}, "task", 0)
    both = parse_row({"messages": [*said, {"role": "assistant", "content": "Fish."}]}, "chat", 0)
    assert evidence([task], row_of("What does it eat?")) == {}
    assert evidence([task], both) == {"t0": ("instruction",)}


def test_runs_of_words_do_not_cross_from_one_message_to_the_next():
    words = STORY.split()
    said = [{"role": "user", "content": " ".join(part)} for part in (words[:10], words[10:])]
    (task,) = checked(tasks_of(STORY), parse_row({"messages": said}, "chat", 0)).flagged
    assert task.ngrams_8 == Overlap(found=3 + len(words) - 17, of=len(words) - 7)


# --- how alike ----------------------------------------------------------------------------------------------------

CYRILLIC = STORY.replace("hens", "hеns").replace("nine", "ninе")


@pytest.mark.parametrize(
    ("told", "match"),
    [
        (STORY, "equal"),
        (STORY.upper(), "normalized"),
        (STORY.replace("seventeen", "seven\u200bteen"), "normalized"),
        (STORY.replace("baker", "ba\u00adker"), "normalized"),
        (CYRILLIC, "normalized"),
        (STORY.replace("loaves", "lóàves"), "normalized"),
        (STORY.replace("keeps", "kepes"), "near"),
        (STORY.replace("loaves", "loafs"), "near"),
        (f"Please think about this: {STORY}", "near"),
        (STORY.replace("farmer", "shepherd"), "near"),
        (STORY.replace(" red hens", " brown red hens").replace("how many", "how very many"), "near"),
        (
            f"A riddle that I like: {STORY} I wonder what you make of it, so think twice before you say!",
            "near",
        ),
    ],
)
def test_copies_with_twelve_kinds_of_edits_are_found_and_named_by_kind(told, match):
    (task,) = checked(tasks_of(STORY, OTHER), row_of(told)).flagged
    assert (task.task_id, task.match) == ("t0", match)


def test_the_closest_kind_of_all_rows_counts():
    rows = [row_of(f"Well: {STORY}"), row_of(STORY.upper()), row_of(STORY), row_of(STORY.upper())]
    assert [checked(tasks_of(STORY), *rows[:n]).flagged[0].match for n in (1, 2, 3, 4)] == [
        "near",
        "normalized",
        "equal",
        "equal",
    ]


def test_a_row_of_several_turns_is_compared_turn_by_turn_and_as_a_whole():
    said = [
        {"role": "user", "content": text}
        for text in ("I have a red cat at home.", "What does it eat at night?")
    ]
    task = parse_row({"task_id": "t0", "instruction": said, "verifier": {"name": "v"}}, "task", 0)
    asked = "I have a red cat at home. What does it really eat at night?"
    assert evidence([task], row_of(asked)) == {"t0": ("near",)}
    turns = [{**said[0]}, {"role": "user", "content": "What does it really eat at night?"}]
    assert evidence([task], parse_row({"messages": turns}, "chat", 0)) == {"t0": ("near",)}


# --- answers ------------------------------------------------------------------------------------------------------


def test_a_long_answer_alone_flags_its_task_and_a_short_one_does_not():
    tides, hens = tasks_of("Why are there tides?", expected=LONG_ANSWER), tasks_of(STORY)
    assert evidence(tides, row_of("Explain the sea.", f"{LONG_ANSWER}.".capitalize())) == {"t0": ("answer",)}
    assert evidence(tides, row_of(LONG_ANSWER, "Right.")) == {}
    assert evidence(hens, row_of("What is 4 + 4?", "8")) == {}


def test_an_answer_counts_as_words_of_the_answer_in_a_row_that_has_the_task():
    answers = {"It is 8.": True, "88": False, "no": False}
    for completion, found in answers.items():
        (task,) = checked(tasks_of(STORY), row_of(STORY, completion)).flagged
        assert task.answer is found, completion


# --- boilerplate --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [2, 3, 12, 200])
def test_a_template_around_a_short_variable_part_is_no_evidence_however_many_tasks_there_are(tasks):
    instructions = [f"{TEMPLATE}{n} + {n + 1}" for n in range(tasks)]
    check = checked(tasks_of(*instructions), row_of(f"{TEMPLATE}1 + 777"), row_of(TEMPLATE))
    assert (check.flagged, check.whole_text_only) == ((), tasks)
    assert evidence(tasks_of(*instructions), row_of(f"{TEMPLATE}1 + 2")) == {"t1": ("instruction",)}


def test_behind_a_template_a_task_is_told_by_its_own_words():
    tasks = tasks_of(*(f"{TEMPLATE}{text}" for text in (STORY, OTHER)))
    assert evidence(tasks, row_of(f"Riddle! {OTHER}")) == {"t1": ("ngrams_13", "ngrams_8")}
    assert evidence(tasks, row_of(TEMPLATE)) == {}


def test_a_row_that_shares_little_more_than_a_template_is_none_of_the_matched_rows():
    template = "Solve this riddle of ours"
    own = " ".join(STORY.split()[:3])
    tasks = tasks_of(f"{template} {STORY}", f"{template} {OTHER}")
    (task,) = checked(tasks, row_of(f"{template} {own} again"), row_of(f"{template} {STORY}")).flagged
    assert (task.task_id, task.rows_matched) == ("t0", 1)


def test_a_system_prompt_that_a_single_task_and_all_rows_have_is_no_evidence():
    system = {"role": "system", "content": f"You are a careful helper. {TEMPLATE}"}
    said = [system, {"role": "user", "content": STORY}]
    task = parse_row({"task_id": "t0", "instruction": said, "verifier": {"name": "v"}}, "task", 0)
    row = parse_row({"messages": [system, {"role": "user", "content": OTHER}]}, "chat", 0)
    assert evidence([task], row) == {}


def test_copies_of_a_task_do_not_make_it_boilerplate():
    check = checked(tasks_of(*["say a"] * 12), row_of("say a"))
    assert (len(check.flagged), check.whole_text_only, check.not_compared) == (12, 12, 0)
    copies = [f"{added} {STORY}" for added in ("", "Now:", "Well:", "So:", "Please:", "Hey:", "Ok:")]
    assert (
        len(
            checked(
                tasks_of(*copies, *"abcdefgh"), row_of(f"Riddle for you all, my friends! {STORY}")
            ).flagged
        )
        == 7
    )


def test_a_task_of_shared_messages_alone_is_found_where_a_row_has_all_of_them():
    def task(number, *said):
        messages = [{"role": "user", "content": text} for text in said]
        return parse_row(
            {"task_id": f"t{number}", "instruction": messages, "verifier": {"name": "v"}}, "task", 0
        )

    tasks = [task(0, "Go on.", "Why?"), *(task(n, "Go on.", "Why?", f"And {n}?") for n in range(1, 20))]
    row = parse_row(
        {"messages": [{"role": "user", "content": text} for text in ("Go on.", "Why?")]}, "chat", 0
    )
    assert evidence(tasks, row_of("Go on.")) == {}
    assert evidence(tasks, row) == {"t0": ("instruction",)}


@pytest.mark.parametrize(("tasks", "most"), [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4), (10, 5), (5000, 5)])
def test_a_phrase_is_common_in_more_than_five_tasks_or_in_more_than_half_of_them(tasks, most):
    assert most_tasks(tasks) == most


# --- several entries, many rows -----------------------------------------------------------------------------------


def test_each_entry_has_its_own_tasks_and_its_own_boilerplate():
    entries = [
        Entry(name="a", split="val", tasks=tasks_of(STORY)),
        Entry(name="b", split="test", tasks=tasks_of(OTHER, STORY)),
    ]
    scan = Scan(TaskIndex(entries))
    scan.add(row_of(STORY))
    found = {check.benchmark: [task.task_id for task in check.flagged] for check in scan.checks(entries)}
    assert found == {"a": ["t0"], "b": ["t1"]}


def test_the_closest_rows_come_first_and_the_others_are_counted():
    words = STORY.split()
    rows = [row_of(" ".join(words[:15]), row_id="part")] * 9 + [row_of(f"See: {STORY}"), row_of(STORY)]
    (task,) = checked(tasks_of(STORY), *rows).flagged
    assert (task.rows_matched, [row.row for row in task.closest]) == (11, [10, 9, 0, 1, 2])
    assert [row.row_id for row in task.closest[2:]] == ["part"] * 3


# --- against a matcher that is plain ------------------------------------------------------------------------------


def naive(tasks: list[str], rows: list[str]) -> list[tuple[int, int, int, int]]:
    """For each task the 8-grams found and looked for, and the 13-grams, straight from the definition."""

    def runs(words: list[str], size: int) -> list[tuple[int, tuple[str, ...]]]:
        return [(at, tuple(words[at : at + size])) for at in range(len(words) - size + 1)]

    alike: dict[str, list[str]] = {}
    for text, first in zip(tasks, first_alike(tasks_of(*tasks)).values(), strict=True):
        alike.setdefault(first, []).append(text)
    holders = Counter(
        gram for texts in alike.values() for gram in {gram for t in texts for _, gram in runs(t.split(), 5)}
    )
    most = 1 if len(alike) < 4 else min(5, len(alike) // 2)
    result = []
    for text in tasks:
        words = text.split()
        shared = {
            position for at, gram in runs(words, 5) if holders[gram] > most for position in range(at, at + 5)
        }
        counts = []
        for size in (8, 13):
            wanted = {
                gram for at, gram in runs(words, size) if len(set(range(at, at + size)) - shared) >= size / 2
            }
            present = {gram for row in rows for _, gram in runs(row.split(), size)}
            counts += [len(wanted & present), len(wanted)]
        result.append(tuple(counts))
    return result


BLOCKS = [block.split() for block in ("a", "b", "c d", "e f g h i", "j k l m n o p", "q r s t u v w x y z")]


@st.composite
def texts_and_rows(draw):
    """Tasks of few blocks of words, which so repeat within and between tasks, and rows that are pieces of tasks."""
    text = st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=7).map(sum_of)
    tasks = draw(st.lists(text, min_size=1, max_size=12))
    cut = st.tuples(st.sampled_from(tasks), st.integers(0, 6), st.integers(1, 40))
    piece = st.one_of(cut.map(lambda drawn: drawn[0][drawn[1] : drawn[1] + drawn[2]]), text)
    rows = draw(st.lists(st.lists(piece, min_size=1, max_size=3).map(sum_of), min_size=1, max_size=6))
    return [" ".join(task) for task in tasks], [" ".join(row) or "z" for row in rows]


def sum_of(lists: list[list[str]]) -> list[str]:
    return list(chain.from_iterable(lists))


@settings(max_examples=200)
@given(texts_and_rows())
def test_found_runs_of_words_are_those_of_a_plain_matcher(drawn):
    instructions, rows = drawn
    tasks = tasks_of(*instructions)
    found = {task.task_id: task for task in checked(tasks, *(row_of(row) for row in rows)).flagged}
    for task, (short, shorts, long, longs) in zip(tasks, naive(instructions, rows), strict=True):
        flagged = found.get(task.task_id)
        by_words = long > 0 or (shorts > 0 and short >= 0.7 * shorts)
        kinds = set(flagged.evidence) & {"ngrams_8", "ngrams_13"} if flagged else set()
        assert bool(kinds) == by_words
        if flagged is not None:
            assert flagged.ngrams_8 == Overlap(found=short, of=shorts)
            assert flagged.ngrams_13 == Overlap(found=long, of=longs)
        if flagged is not None and not {"instruction", "near", "words", "answer"} & set(flagged.evidence):
            alone = [naive(instructions, [row])[tasks.index(task)] for row in rows]
            assert flagged.rows_matched == sum(short + long > 0 for short, _, long, _ in alone)


# --- tasks in other words -------------------------------------------------------------------------------------------

PLACES = (
    "Zagreb Tirana Bergen Oulu Cadiz Leuven Gdansk Porto Malmo Riga Ghent Turku Bari Nantes Kosice".split()
)
THINGS = "violins kayaks lanterns beehives saddles anchors easels looms kettles sundials".split()
TRADES = "cooper glazier falconer cartwright tanner thatcher weaver farrier".split()
VOCABULARY = [
    f"{a}{b}{c}" for a in ("ba", "ke", "li", "mo", "tu", "ze") for b in PLACES for c in ("n", "s", "rd")
]


def passages(rng, count):
    """Questions of twelve rarer words each between common ones."""
    for _ in range(count):
        said = [rng.choice(VOCABULARY) for _ in range(12)]
        yield f"Why did the {' '.join(said[:5])} and a {' '.join(said[5:9])} of {' '.join(said[9:])} fall in winter?"


ASKED = list(passages(random.Random(1), 40))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: " ".join(reversed(text.split())),
        lambda text: " ".join(sorted(text.split(), key=len)),
        lambda text: text.replace(text.split()[6], "festival").replace(text.split()[4], "ordered"),
        lambda text: f"Explain what made {' and '.join(text.split()[-5:-2] + text.split()[3:-6])} decline",
    ],
    ids=["reversed", "reordered", "two words replaced", "reworded around its words"],
)
def test_tasks_with_other_words_or_in_another_order_are_found(change):
    tasks, others = tasks_of(*ASKED), list(map(row_of, passages(random.Random(2), 300)))
    assert not checked(tasks, *others).flagged
    copies = [row_of(change(text)) for text in ASKED]
    found = checked(tasks, *others, *copies).flagged
    assert len(found) == len(tasks)
    assert all(task.closest[0].near for task in found)


def arithmetic(rng):
    return f"What is {rng.randrange(100)} {rng.choice('+-*')} {rng.randrange(100)}?"


def sums(rng):
    return f"Add {', '.join(str(rng.randrange(200)) for _ in range(6))} and give the total."


def orders(rng):
    return (
        f"{rng.choice(PLACES)}: a {rng.choice(TRADES)} sells {rng.randrange(2, 60)} {rng.choice(THINGS)} at "
        f"{rng.randrange(2, 90)} each to a {rng.choice(TRADES)} of {rng.choice(PLACES)}. How much is paid?"
    )


def intents(rng):
    verb = rng.choice("cancel freeze replace activate renew block report".split())
    return f"I want to {verb} my {rng.choice('card account loan pin transfer'.split())} in {rng.choice(PLACES)}, please help"


@pytest.mark.parametrize("make", [arithmetic, sums, orders, intents])
def test_words_alone_flag_no_tasks_of_a_template(make):
    """Tasks and rows are drawn from one generator: what they share, they share by chance."""
    for seed in range(2):
        rng = random.Random(seed)
        tasks = tasks_of(*{make(rng): None for _ in range(100)})
        rows = [row_of(make(rng)) for _ in range(2000)]
        found = [task.task_id for task in checked(tasks, *rows).flagged if "words" in task.evidence]
        assert not found
