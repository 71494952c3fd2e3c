from importlib.metadata import version

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from evsys import Registry
from evsys._plugins import requirements as module
from evsys._plugins.requirements import requirements_of
from evsys.errors import PluginIncompatibleError

HERE = version("evsys-core")
THING = "class Thing:\n    def __call__(self, rows):\n        return rows\n"


def installed(site, *requires: str, source: str = THING) -> Registry:
    site.install(
        "evsys-test-a", {"evsys.transforms": {"thing": "site_a:Thing"}}, {"site_a": source}, requires=requires
    )
    return Registry(allow=["evsys-test-a"])


@pytest.mark.parametrize(
    "requirement",
    [
        f"evsys-core=={HERE}",
        "evsys-core>=0.0.1",
        "evsys-core (>=0.0.1,<900)",
        "Evsys_Core >= 0",
        "evsys-core",
        "evsys-core!=900.*",
        "evsys-core[some]>=0",
        "evsys-nowhere>=3",
        "numpy>=900",  # an installer's business, and nothing that evsys knows more about
        "evsys-core>=900 ; python_version < '3'",
        "evsys-core>=900 ; extra == 'more'",
        "evsys-core>=900.0rc1",  # more than numbers: not judged
        "evsys-core===900",
        "evsys-core @ https://example.org/evsys_core.whl",
    ],
)
def test_requirements_that_are_met_or_not_judged_are_fine(site, requirement):
    assert installed(site, requirement).get("transform", "thing").__name__ == "Thing"


@pytest.mark.parametrize(
    ("requirement", "told", "side"),
    [
        ("evsys-core>=900", ">=900", "evsys-core"),
        ("evsys-core ~= 900.1", "~= 900.1", "evsys-core"),
        ("evsys-core==900.*", "==900.*", "evsys-core"),
        ("evsys-core>=0,>900.1", ">=0,>900.1", "evsys-core"),
        ("evsys-core<0.0.1", "<0.0.1", "evsys-test-a"),
        ("evsys-core~=0.0.1", "~=0.0.1", "evsys-test-a"),
        ("evsys-core==0.0.1", "==0.0.1", "evsys-test-a"),
        ("evsys_core <= 0.0", "<= 0.0", "evsys-test-a"),
        (f"evsys-core!={HERE}", f"!={HERE}", "evsys-test-a"),
    ],
)
def test_a_plugin_made_for_another_core_says_which_side_to_upgrade(site, requirement, told, side):
    with pytest.raises(PluginIncompatibleError) as caught:
        installed(site, requirement).get("transform", "thing")
    assert str(caught.value) == (
        f"transform evsys-test-a/thing (1.0) was made for evsys-core{told}, and evsys-core {HERE} is installed; "
        f"upgrade {side}"
    )


def test_a_plugin_made_for_another_toolkit_says_so_too(site):
    site.install("evsys-test-toolkit", "", version="2.1")
    with pytest.raises(
        PluginIncompatibleError, match="made for evsys-test-toolkit>=3, and .* 2.1 is installed"
    ):
        installed(site, "evsys-test-toolkit>=3").get("transform", "thing")


def test_that_it_does_not_fit_is_known_before_its_code_runs(site):
    registry = installed(site, "evsys-core>=900", source="raise RuntimeError('that would confuse everybody')")
    with pytest.raises(PluginIncompatibleError):
        registry.get("transform", "thing")


def test_what_stands_below_the_header_is_no_requirement(site):
    info = site.install("evsys-test-a", "", requires=("evsys-core>=0",))
    with (info / "METADATA").open("a", encoding="utf-8") as file:
        file.write("\nRequires-Dist: evsys-core>=900\n")
    assert requirements_of("evsys-test-a") == [("evsys-core", ">=0", "")]
    (info / "METADATA").unlink()
    assert requirements_of("evsys-test-a") == requirements_of("evsys-test-unknown") == []


RELEASES = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
CLAUSES = st.one_of(
    st.tuples(st.sampled_from(["==", "!=", "<=", ">=", "<", ">"]), RELEASES).map("".join),
    st.tuples(st.sampled_from(["==", "!="]), RELEASES, st.just(".*")).map("".join),
    RELEASES.filter(lambda release: "." in release).map("~={}".format),
)


@given(RELEASES, CLAUSES)
@example("0", "~=0.0.0")
def test_versions_are_compared_as_packaging_does(here, clause):
    operator, wanted, prefix = module._CLAUSE.fullmatch(clause).groups()
    numbers = [tuple(map(int, text.split("."))) for text in (here, wanted)]
    held = module._holds(numbers[0], operator, numbers[1], is_prefix=bool(prefix))
    assert held == SpecifierSet(clause).contains(Version(here))
