"""An arm on record as the file of the next experiment."""

from evsys_record.files import write_json
from evsys_record.leaves import arm_leaves
from evsys_runtime.experiment.insight.follow_up_config import Resolved

RUN = {
    "data": {
        "path": "train.jsonl",
        "transforms": [{"kind": "sample", "params": {"n": 100}}, {"kind": "jsonl_to_chat"}],
    },
    "algorithm": {"kind": "sft", "params": {"steps": 2}},
}


def test_a_value_is_changed_wherever_the_record_says_that_it_stands(tmp_path):
    write_json(
        tmp_path / "resolved.json",
        {"metadata": {}, "benchmarks": [], "arms": [{"arm": "a", "run": RUN}]},
    )
    past = Resolved(tmp_path)
    for path, value in (("data.transforms[0].params.n", 50), ("algorithm.params.steps", 4)):
        assert path in arm_leaves(RUN)
        file = past.file("a", hypothesis="", repeats=1, values={path: value})
        was, run = file["runs"]
        assert (was, file["metadata"]["baseline"]) == (RUN, "a")
        assert run["name"] == f"{path.rpartition('.')[2]}-{value}"
        assert arm_leaves(run) == {**arm_leaves(RUN), path: value}
    assert past.file("a", hypothesis="", repeats=1)["run"] == RUN
