"""Names in a sentence."""

import pytest

from evsys_record.text import list_names


@pytest.mark.parametrize(
    ("names", "said"), [([], ""), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more")]
)
def test_the_first_names_are_told_and_the_rest_is_counted(names, said):
    assert list_names(names, most=2) == said
