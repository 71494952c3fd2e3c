import json
import re
import shutil

import pytest

from evsys.errors import ConfigError
from evsys_backend_local.models.byte_tokenizer import write_byte_tokenizer
from evsys_backend_local.models.export import export_model
from evsys_backend_local.models.fetch import fetch
from evsys_backend_local.models.load import load_weights
from evsys_backend_local.models.report import check_model, report_lines
from evsys_backend_local.models.safetensors import write_safetensors


@pytest.fixture
def home(families, tmp_path):
    """A whole model folder: weights, tokenizer and template."""

    def make(family="mistral"):
        folder = tmp_path / family
        shutil.copytree(families / family, folder)
        write_byte_tokenizer(folder)
        return folder

    return make


def line(report, name):
    (found,) = [text for text in report_lines(report) if text.startswith(name)]
    return found


def test_a_folder_that_can_be_trained_tells_family_sizes_context_and_memory(home):
    report = check_model(str(home()))
    assert report.supported
    assert report.header.family.name == "Mistral"
    assert (report.layout, report.stored) == ("Hugging Face folder", ("F32",))
    assert (report.tokenizer, report.chat_template) == ("tokenizer.json", True)
    assert "2 blocks of width 16, 4 heads of 8 over 2" in line(report, "sizes")
    assert "each sees the last 6" in line(report, "context")
    assert "at 256 tokens" in line(report, "training")
    assert line(report, "supported").endswith("yes")


def test_what_is_no_model_is_told_as_that_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("GGUF is a format", encoding="utf-8")
    (tmp_path / "notes.md").write_text("none", encoding="utf-8")
    empty = tmp_path / "empty"
    empty.mkdir()
    for place, what in (
        (empty, "neither config.json nor a .gguf file"),
        (tmp_path / "notes.md", "not a GGUF file"),
    ):
        report = check_model(str(place))
        assert (report.layout, report.header, report.supported) == ("no model", None, False)
        (problem,) = report.problems
        assert what in problem
        assert "a folder with config.json" in problem
        assert [text.split()[0] for text in report_lines(report)] == [
            "model",
            "layout",
            "problem",
            "supported",
        ]
    assert check_model(str(tmp_path / "notes.txt")).layout == "GGUF file"  # it begins as one, and is damaged


def test_weights_that_were_cut_off_are_told_though_their_header_is_whole(home):
    folder = home()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    report = check_model(str(folder))
    assert not report.supported
    assert re.search(r"damaged: it has \d+ bytes and its arrays need \d+; copy", report.problems[0])


def test_a_relative_path_works(home, monkeypatch):
    monkeypatch.chdir(home().parent)
    assert check_model("mistral").supported
    assert check_model("./mistral").supported


def test_a_longer_context_needs_more_memory_and_one_beyond_the_models_is_refused(home):
    folder = home()
    (folder / "config.json").write_text(
        json.dumps({**json.loads((folder / "config.json").read_text()), "max_position_embeddings": 4096}),
        encoding="utf-8",
    )
    short, long = (check_model(str(folder), context=tokens).training for tokens in (512, 4096))
    assert long.context == 4096
    assert long.lora_bytes > short.lora_bytes + 50e6
    assert long.full_bytes > short.full_bytes + 50e6
    with pytest.raises(ConfigError, match="context of 5000 tokens is more than the 4096"):
        check_model(str(folder), context=5000)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"architectures": ["Gemma3ForCausalLM"]}, "architecture Gemma3ForCausalLM.*Tinker protocol"),
        ({"vocab_size": 5}, r"2 arrays have another shape: model\.embed_tokens\.weight has .*expected \(5, "),
        ({"tie_word_embeddings": True, "vocab_size": 5}, r"1 array has another shape: model\.embed_tokens"),
        ({"num_hidden_layers": 3}, r"9 arrays are missing: model\.layers\.2"),
        ({"intermediate_size": 25}, "6 arrays have another shape: .*expected"),
        ({"vocab_size": 10**9}, "takes at most 2,000,000,000"),
    ],
)
def test_a_model_that_cannot_be_trained_says_why(home, change, problem):
    folder = home()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **change}), encoding="utf-8")
    report = check_model(str(folder))
    assert not report.supported
    assert len(report.problems) in (1, 2)
    assert re.search(problem, " ".join(report.problems))
    assert line(report, "supported").endswith("no")
    assert json.dumps(report.to_dict())


def test_a_missing_tokenizer_is_a_problem_and_a_missing_template_a_note(home):
    folder = home()
    (folder / "chat_template.jinja").unlink()
    report = check_model(str(folder))
    assert report.supported
    assert report.notes[0].endswith("need a renderer of their own, named in model.renderer")
    (folder / "tokenizer.json").unlink()
    assert any("tokenizer.json" in problem for problem in check_model(str(folder)).problems)


def test_weights_of_another_type_are_a_problem(home, families):
    folder = home()
    arrays = {name: array.astype("i1") for name, array in load_weights(families / "mistral").params.items()}
    write_safetensors(folder / "model.safetensors", arrays)
    assert "weights of the type I8; F64, F32" in check_model(str(folder)).problems[0]


def test_a_gguf_file_tells_how_it_is_quantised(tmp_path, gguf_writer, families):
    weights = load_weights(families / "qwen2")
    gguf_writer.write_model(tmp_path / "m.gguf", weights, "qwen2")
    write_byte_tokenizer(tmp_path)
    report = check_model(str(tmp_path / "m.gguf"))
    assert report.supported
    assert (report.layout, report.stored) == ("GGUF file", ("F32",))
    assert "model.name takes the folder" in report.notes[0]
    assert check_model(str(tmp_path)).notes == ()


def test_a_gguf_file_alone_runs_once_it_is_fetched_and_check_says_so(
    tmp_path, gguf_writer, small_weights, model_cache
):
    file = tmp_path / "mine.gguf"
    gguf_writer.write_model(file, small_weights)
    report = check_model(str(file))
    assert report.supported
    assert line(report, "tokenizer").endswith("in the file, with a chat template")
    assert report.notes == (
        f"`evsys models fetch NAME --from-file {file}` makes it a model that model.name can name",
    )
    fetch("mine", from_file=file, progress=None)
    assert check_model("mine").supported

    (problem,) = check_model(
        str(tmp_path)
    ).problems  # a folder is named as it is, so its tokenizer must be there
    assert "there is no tokenizer" in problem
    assert "--from-file" in problem

    gguf_writer.write_model(
        file, small_weights, **{"tokenizer.ggml.pre": "dbrx", "tokenizer.chat_template": ""}
    )
    (problem,) = check_model(str(file)).problems
    assert "put the model's own tokenizer.json next to" in problem
    gguf_writer.write_model(file, small_weights, **{"tokenizer.chat_template": ""})
    assert "no chat template; name a renderer" in check_model(str(file)).notes[0]
    file.write_bytes(b"GGUF, they say")
    (problem,) = check_model(str(file)).problems
    assert "damaged" in problem or "GGUF" in problem


def test_a_quantisation_that_is_not_read_is_a_problem(tmp_path, gguf_writer, families):
    weights = load_weights(families / "qwen2")
    gguf_writer.write_model(tmp_path / "m.gguf", weights, "qwen2")
    raw = (tmp_path / "m.gguf").read_bytes()
    name = b"blk.0.ffn_gate.weight"
    at = raw.index(name) + len(name) + 4 + 16
    (tmp_path / "m.gguf").write_bytes(raw[:at] + (23).to_bytes(4, "little") + raw[at + 4 :])
    assert "quantised as IQ4_XS; F32, F16" in " ".join(check_model(str(tmp_path)).problems)


def test_a_gguf_file_that_was_cut_off_is_told_though_its_header_is_whole(tmp_path, gguf_writer, families):
    gguf_writer.write_model(tmp_path / "m.gguf", load_weights(families / "qwen2"), "qwen2")
    raw = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(raw[: len(raw) * 3 // 4])
    assert any("cut off: it has" in problem for problem in check_model(str(tmp_path / "m.gguf")).problems)
    (tmp_path / "m.gguf").write_bytes(raw)
    assert not any("cut off" in problem for problem in check_model(str(tmp_path / "m.gguf")).problems)


def test_the_built_in_model_and_its_export_are_the_same_model(tmp_path):
    built_in = check_model("evsys/tiny")
    export_model("evsys/tiny", tmp_path / "tiny", dtype="float16")
    folder = check_model(str(tmp_path / "tiny"))
    assert built_in.supported
    assert folder.supported
    assert folder.header.shape == built_in.header.shape
    assert (built_in.stored, folder.stored) == (("F16",), ("F16",))


def test_a_model_that_is_nowhere_is_an_error(model_cache):
    with pytest.raises(ConfigError, match="not in the cache"):
        check_model("no-such-model")


def test_a_folder_without_a_model_says_what_is_missing(tmp_path):
    assert "neither config.json nor a .gguf file" in check_model(str(tmp_path)).problems[0]
