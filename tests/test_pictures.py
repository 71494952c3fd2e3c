"""The pictures of the documents are those that `docs/pictures.py` draws, and what the page says of them holds."""

from __future__ import annotations

import json
import sys
from xml.etree import ElementTree as ET

import pytest
from house import ROOT

sys.path.insert(0, str(ROOT / "docs"))
try:
    import pictures
finally:
    sys.path.remove(str(ROOT / "docs"))


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_the_one_that_the_script_draws(name):
    drawn = pictures.PICTURES[name]()
    assert (pictures.TARGET / name).read_text(encoding="utf-8") == drawn, "run python docs/pictures.py"


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_has_a_title_and_colours_for_light_and_dark(name):
    root = ET.fromstring((pictures.TARGET / name).read_text(encoding="utf-8"))
    assert root.get("aria-label") == root.findtext("{http://www.w3.org/2000/svg}title")
    assert "prefers-color-scheme: dark" in root.findtext("{http://www.w3.org/2000/svg}style")


def test_three_of_the_other_runs_lie_outside_the_first_ones_interval():
    known = json.loads((pictures.TARGET / "runs.json").read_text(encoding="utf-8"))
    (_, low, high), *others = known["runs"]
    assert sum(not low <= score <= high for score, _, _ in others) == 3


def test_looks_at_levels_of_their_own_stay_within_five_in_a_hundred_and_others_do_not():
    fixed, shared = pictures.false_claims()
    assert max(shared) <= 0.05 < max(fixed)
