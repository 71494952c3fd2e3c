"""Names of plugins: what follows from one, and which ones there can be."""

import re

import pytest
from house import distributions
from hypothesis import given
from hypothesis import strategies as st

from evsys.protocols import KINDS
from evsys_cli.scaffold.plugin_names import HOUSE, MAX_LENGTH, fault_of_name, names_of


@pytest.mark.parametrize(
    ("kind", "name", "distribution", "package", "class_name"),
    [
        ("verifier", "my-thing", "evsys-my-thing", "evsys_my_thing", "MyThingVerifier"),
        ("transform", "jsonl_to_chat", "evsys-jsonl-to-chat", "evsys_jsonl_to_chat", "JsonlToChatTransform"),
        ("metric", "best@k", "evsys-best-at-k", "evsys_best_at_k", "BestAtKMetric"),
        ("metric", "best^3", "evsys-best-hat-3", "evsys_best_hat_3", "BestHat3Metric"),
        ("data_store", "s3", "evsys-s3", "evsys_s3", "S3DataStore"),
        ("log_store", "my-log-store", "evsys-my-log-store", "evsys_my_log_store", "MyLogStore"),
    ],
)
def test_everything_else_follows_from_the_name(kind, name, distribution, package, class_name):
    names = names_of(kind, name)
    assert (names.distribution, names.package, names.class_name) == (distribution, package, class_name)


@pytest.mark.parametrize("word", ["class", "none", "lambda", "score", "exception", "match"])
def test_words_of_python_are_names_like_others(word):
    assert fault_of_name("verifier", word) is None
    names = names_of("verifier", word)
    assert names.package == f"evsys_{word}"
    assert names.class_name == f"{word.capitalize()}Verifier"


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("verifier", "MyThing", "in small letters; 'my-thing' is one"),
        ("verifier", "my thing", "single '-' or '_' between them; 'my-thing' is one"),
        ("verifier", "my--thing", "single '-' or '_' between them; 'my-thing' is one"),
        ("verifier", "3-times", "begin it with a letter; 'times' is one"),
        ("verifier", "", "use small letters and digits"),
        ("verifier", "../../thing", "use small letters and digits"),
        ("verifier", "größe", "use small letters and digits"),
        ("verifier", "thing\n", "use small letters and digits"),
        ("verifier", "a/b", "use small letters and digits"),
        ("metric", "pass@", "precede a number of samples at the end"),
        ("metric", "k@pass", "precede a number of samples at the end"),
        ("metric", "pass@0", "precede a number of samples at the end"),
        ("verifier", "pass@k", "is a number of samples, as metrics have in their names"),
        ("algorithm", "best^4", "choose another for an algorithm"),
        ("verifier", "null", "means something else than a string in an experiment file"),
        ("verifier", "true", "means something else than a string in an experiment file"),
        ("verifier", "evsys-thing", "leave out 'evsys'"),
        ("verifier", "std", "evsys-std is a distribution of evsys itself"),
        ("algorithm", "algo_rl", "evsys-algo-rl is a distribution of evsys itself"),
        ("verifier", "a" * 61, "longer than 60 characters"),
    ],
)
def test_what_is_no_name_is_told_why(kind, name, said):
    fault = fault_of_name(kind, name)
    assert fault is not None
    assert said in fault


def test_a_name_that_is_proposed_is_one():
    proposed = re.search(r"; '([^']+)' is one", fault_of_name("verifier", "2nd BigThing!"))
    assert fault_of_name("verifier", proposed[1]) is None


def test_every_distribution_of_this_workspace_keeps_its_name():
    ours = {dist.name.removeprefix("evsys-") for dist in distributions()} - {"evsys"}
    assert ours <= HOUSE


NAMES = st.from_regex(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", fullmatch=True).filter(
    lambda name: len(name) <= MAX_LENGTH
)


@given(st.sampled_from(sorted(KINDS)), NAMES)
def test_a_name_without_a_fault_makes_names_that_python_and_the_index_take(kind, name):
    if fault_of_name(kind, name) is None:
        names = names_of(kind, name)
        assert names.package.isidentifier()
        assert names.class_name.isidentifier()
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", names.distribution)
