import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from evsys.errors import ConfigError, DataError, StoreError
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.state import save_weights
from evsys_backend_local.models import export, replacing
from evsys_backend_local.models.adapter import read_adapter
from evsys_backend_local.models.export import config_of, export_model
from evsys_backend_local.models.families import BY_ARCHITECTURE
from evsys_backend_local.models.hf_config import config_header
from evsys_backend_local.models.load import load_weights, read_header
from evsys_backend_local.models.report import check_model
from evsys_backend_local.models.resolve import load_base
from evsys_backend_local.models.safetensors import SafetensorsFile
from evsys_runtime.rendering.resolve import load_renderer
from evsys_runtime.rendering.templates import CHATML
from evsys_runtime.rendering.tokenizers import ByteTokenizer, load_tokenizer

FAMILIES = ["llama", "smollm2", "mistral", "qwen2", "qwen3"]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "exported"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_merged_model_computes_what_base_and_adapter_computed(families, family, out):
    home = families / family
    export_model(str(home / "adapter"), out, base=str(home))
    merged, base = Engine(load_base(out), workers=1), Engine(load_base(home), workers=1)
    saved = read_adapter(home / "adapter")
    model = base.create_adapter(rank=saved.rank, alpha=saved.alpha)
    model.load_params(dict(saved.arrays), what="x")
    tokens = [np.random.default_rng(0).integers(0, 259, 30)]
    ours = merged.compute_logprobs(merged.base, tokens)[0][1:]
    np.testing.assert_allclose(ours, base.compute_logprobs(model, tokens)[0][1:], atol=2e-5)
    assert np.abs(ours - base.compute_logprobs(base.base, tokens)[0][1:]).max() > 0.1
    merged.close()
    base.close()


def test_the_config_of_a_folder_is_kept_but_for_the_type_of_the_weights(families, out):
    export_model(str(families / "llama"), out, dtype="bfloat16")
    before = json.loads((families / "llama" / "config.json").read_text(encoding="utf-8"))
    after = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert after == {**before, "dtype": "bfloat16", "torch_dtype": "bfloat16"}
    file = SafetensorsFile(out / "model.safetensors")
    assert {file.kind(name) for name in file} == {"BF16"}
    assert file.metadata == {"format": "pt"}
    assert (out / "model.safetensors").stat().st_mode & 0o444 == 0o444


def test_an_adapter_names_its_base_model(families, tmp_path, out):
    engine = Engine(load_base((families / "qwen3").resolve()), workers=1)
    save_weights(engine.create_adapter(rank=2), tmp_path / "adapter")
    done = export_model(str(tmp_path / "adapter"), out)
    assert (done.base, done.merged) == (str((families / "qwen3").resolve()), "adapter")
    assert done.bytes == sum(path.stat().st_size for path in out.iterdir())
    np.testing.assert_array_equal(load_base(out).params.flat, engine.weights.params.flat)  # B is zero
    engine.close()


def test_whole_weights_of_a_run_are_exported_over_the_model_that_its_manifest_names(out, tmp_path):
    engine = Engine(load_base("evsys/tiny"), workers=1)
    model = engine.create_full()
    model.params.flat[...] += 0.25
    checkpoint = tmp_path / "checkpoints" / "5"
    save_weights(model, checkpoint)
    with pytest.raises(ConfigError, match="base model of these weights is unknown.*--base"):
        export_model(str(checkpoint), out)
    text = json.dumps({"manifest": {"model": {"name": "evsys/tiny"}}})
    (checkpoint / "manifest.json").write_text(text, encoding="utf-8")
    assert export_model(str(checkpoint), out).merged == "whole weights"
    np.testing.assert_array_equal(load_base(out).params.flat, model.params.flat)
    engine.close()


def test_the_built_in_model_becomes_a_folder_with_its_tokenizer_and_template(out):
    lines = []
    export_model("evsys/tiny", out, progress=lines.append)
    assert any("0.8 M weights as float32" in line for line in lines)
    loaded, tiny = load_base(out), load_base("evsys/tiny")
    assert loaded.shape == tiny.shape
    np.testing.assert_array_equal(loaded.params.flat, tiny.params.flat)
    tokenizer, bytes_ = load_tokenizer(out), ByteTokenizer()
    text = "<|im_start|>user\nthe  123 größe\n\t漢字 🎉<|im_end|>\n<|endoftext|>"
    assert tokenizer.encode(text) == bytes_.encode(text)
    assert tokenizer.decode(bytes_.encode(text)) == text
    assert tokenizer.decode([195, 40]) == bytes_.decode([195, 40]) == "\ufffd("
    assert sorted(tokenizer.eos_token_ids) == sorted(bytes_.eos_token_ids)
    assert tokenizer.vocab_size == bytes_.vocab_size
    assert (out / "chat_template.jinja").read_text(encoding="utf-8") == CHATML
    assert load_renderer(out).tokenizer.vocab_size == 259


def test_a_gguf_model_becomes_a_folder_with_a_config_of_its_own(gguf_writer, families, tmp_path, out):
    for family, architecture in (("llama", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3")):
        weights = load_weights(families / family)
        if family == "llama":  # the divisors of a model that was published so
            from evsys_backend_local.models.rope import llama3_factors

            factors = llama3_factors(8, 1e6, factor=8.0, low=1.0, high=4.0, original=8192)
            object.__setattr__(
                weights, "shape", attrs.evolve(weights.shape, rope_theta=1e6, rope_factors=factors)
            )
        home = tmp_path / f"{family}-gguf"
        home.mkdir()
        gguf_writer.write_model(home / "m.gguf", weights, architecture)
        export_model(str(home), out / family)
        loaded = load_base(out / family)
        np.testing.assert_array_equal(loaded.params.flat, weights.params.flat)
        header = read_header(home)
        assert loaded.shape.to_dict() == {
            **header.shape.to_dict(),
            "rope_factors": header.shape.rope_factors and pytest.approx(header.shape.rope_factors, rel=1e-6),
        }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_that_is_written_says_what_was_read(families, family):
    header = read_header(families / family)
    if family == "llama":  # its stretching is of no published model
        header = attrs.evolve(header, shape=attrs.evolve(header.shape, rope_factors=(4.0,) * 4))
    again = config_header(config_of(header), "x")
    assert again.shape == header.shape
    assert again.family is header.family is BY_ARCHITECTURE[config_of(header)["architectures"][0]]


def test_positions_that_no_config_expresses_are_an_error(families):
    with pytest.raises(ConfigError, match="no config.json expresses"):
        config_of(read_header(families / "llama"))


def test_companions_go_along(families, tmp_path, out):
    home = tmp_path / "base"
    shutil.copytree(families / "qwen2", home)
    for name in ("tokenizer.json", "LICENSE", "chat_template.jinja"):
        (home / name).write_text(name, encoding="utf-8")
    (home / "training_args.bin").write_text("x", encoding="utf-8")
    export_model(str(home), out)
    assert {path.name for path in out.iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json", "LICENSE", "chat_template.jinja")
    }


def test_the_base_model_is_not_replaced_by_what_was_trained_from_it(families, tmp_path):
    home = tmp_path / "base"
    shutil.copytree(families / "qwen3", home)
    before = (home / "model.safetensors").read_bytes()
    with pytest.raises(StoreError, match="base is the base model itself.*choose another folder"):
        export_model(str(families / "qwen3" / "adapter"), home, base=str(home), force=True)
    assert (home / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("inside", ["base", "adapter"])
def test_a_folder_that_holds_what_is_exported_is_not_replaced(families, tmp_path, out, inside):
    export_model(str(families / "qwen2"), out)
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    shutil.copytree(families / "qwen3", base)
    shutil.copytree(families / "qwen3" / "adapter", adapter)
    moved = (base if inside == "base" else adapter).rename(out / inside)
    base, adapter = (moved, adapter) if inside == "base" else (base, moved)
    with pytest.raises(StoreError, match=f"lies in .*{out.name}.*choose another folder"):
        export_model(str(adapter), out, base=str(base), force=True)
    assert moved.is_dir()


def test_what_is_there_is_replaced_by_force_alone_and_only_if_it_is_a_model(families, tmp_path, out):
    export_model(str(families / "qwen2"), out)
    with pytest.raises(StoreError, match="is there already.*--force"):
        export_model(str(families / "qwen3"), out)
    export_model(str(families / "qwen3"), out, force=True)
    assert read_header(out).family.name == "Qwen3"
    home = tmp_path / "thesis"
    home.mkdir()
    (home / "chapter").write_text("years", encoding="utf-8")
    with pytest.raises(StoreError, match="is not a model"):
        export_model(str(families / "qwen3"), home, force=True)
    assert (home / "chapter").exists()


def test_the_old_model_is_there_until_the_new_one_is_whole(families, tmp_path, out, monkeypatch):
    export_model(str(families / "qwen2"), out)
    seen, rename = [], Path.rename

    def failing(self, target):
        if self.is_dir():
            seen.append(read_header(out).family.name if out.exists() else "moved")
        if self.name == "model":
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(StoreError, match="Permission denied"):
        export_model(str(families / "qwen3"), out, force=True)
    assert seen == ["Qwen2", "moved", "moved"]  # aside, the new one in, and back
    monkeypatch.undo()
    assert read_header(out).family.name == "Qwen2"
    assert list(tmp_path.iterdir()) == [out]


def killed_export(source, out, at):
    """Export over ``out`` in a process that ends as by SIGKILL: `between` both moves, `before` them, or `after` them."""
    program = f"""
import os
from pathlib import Path
from evsys_backend_local.models import export, replacing
rename, put = Path.rename, replacing.put_in_place
def killed(*args):
    put(*args) if {at == "after"} else None
    os._exit(9)
if {at == "between"}:
    Path.rename = lambda self, target: os._exit(9) if self.name == "model" else rename(self, target)
else:
    export.put_in_place = killed
export.export_model({str(source)!r}, Path({str(out)!r}), force=True)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9


def check_again(families, out):
    (note,) = check_model(str(out)).notes[:1]
    assert "the model is back as it was" in note
    assert not any("back as it was" in note for note in check_model(str(out)).notes)


def export_again(families, out):
    lines = []
    with pytest.raises(StoreError, match="is there already"):
        export_model(str(families / "qwen3"), out, progress=lines.append)
    assert "the model is back as it was" in lines[0]


@pytest.mark.parametrize("look", [check_again, export_again])
def test_the_old_model_is_back_at_the_next_look_after_a_kill_between_both_moves(
    families, tmp_path, out, look
):
    export_model(str(families / "qwen2"), out)
    killed_export(families / "qwen3", out, "between")
    assert not out.exists()
    look(families, out)
    assert read_header(out).family.name == "Qwen2"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(("at", "there"), [("before", "Qwen2"), ("after", "Qwen3")])
def test_what_a_killed_export_left_is_cleared_at_the_next_look(families, tmp_path, out, at, there):
    export_model(str(families / "qwen2"), out)
    killed_export(families / "qwen3", out, at)
    assert len(list(tmp_path.iterdir())) == 2
    assert not any("back as it was" in note for note in check_model(str(out)).notes)
    assert read_header(out).family.name == there
    assert list(tmp_path.iterdir()) == [out]


def test_a_model_that_somebody_removed_does_not_come_back(families, tmp_path, out):
    export_model(str(families / "qwen2"), out)
    killed_export(families / "qwen3", out, "after")
    shutil.rmtree(out)
    export_model(str(families / "llama"), out)
    assert read_header(out).family.name == "Llama"
    assert list(tmp_path.iterdir()) == [out]


def test_of_a_clearing_that_is_killed_the_rest_is_found_again(tmp_path, monkeypatch):
    def killed(path, **options):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patched:
        with replacing.workplace(tmp_path / "out") as folder:
            (folder / "weights").write_text("many", encoding="utf-8")
            patched.setattr(replacing.shutil, "rmtree", killed)
    assert len(list(tmp_path.iterdir())) == 1
    assert replacing.give_back(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_what_others_write_now_or_call_alike_is_left_alone(tmp_path):
    with replacing.workplace(tmp_path / "a-b") as folder:
        (folder / "half").write_text("written", encoding="utf-8")
        assert replacing.give_back(tmp_path) == []
        assert (folder / "half").exists()
    home = tmp_path / ".a-notes"
    home.mkdir()
    left = tmp_path / ".a-b-12345678"  # of a-b, though its name begins as one of a does
    (left / "model.old").mkdir(parents=True)
    (left / "model").mkdir()
    (left / "evsys-lock").write_text("a-b", encoding="utf-8")
    assert replacing.give_back(tmp_path, "a") == []
    assert home.is_dir()
    assert left.is_dir()
    assert replacing.give_back(tmp_path, "a-b") == [tmp_path / "a-b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a-notes", "a-b"]


def test_an_export_that_another_one_was_quicker_than_leaves_its_model_alone(
    families, tmp_path, out, monkeypatch
):
    def export_too(line):
        if line.startswith("writing") and not out.exists():
            export_model(str(families / "qwen2"), out)

    with pytest.raises(StoreError, match="is there already") as caught:
        export_model(str(families / "qwen3"), out, progress=export_too)
    assert "--force" in caught.value.hint
    assert read_header(out).family.name == "Qwen2"

    def later(folder, target):
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    monkeypatch.setattr("evsys_backend_local.models.export.put_in_place", later)
    with pytest.raises(StoreError, match="created by another process meanwhile"):
        export_model(str(families / "qwen3"), tmp_path / "other")


def test_a_failed_export_leaves_nothing(families, tmp_path, out, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "write_safetensors", full)
    with pytest.raises(StoreError, match="No space left"):
        export_model(str(families / "qwen2"), out)
    assert list(tmp_path.iterdir()) == []


def test_no_room_on_disk_says_how_much_is_needed(families, out, monkeypatch):
    monkeypatch.setattr(export.shutil, "disk_usage", lambda path: SimpleNamespace(free=5 << 20))
    with pytest.raises(StoreError, match="only 5 MB are free"):
        export_model(str(families / "qwen2"), out)


def test_a_checkpoint_that_diverged_is_refused(families, tmp_path, out):
    engine = Engine(load_base(families / "qwen2"), workers=1)
    model = engine.create_full()
    model.params["model.norm.weight"][0] = np.nan
    save_weights(model, tmp_path / "trained")
    with pytest.raises(DataError, match=r"trained: weights model\.norm\.weight hold NaN.*earlier checkpoint"):
        export_model(str(tmp_path / "trained"), out, base=str(families / "qwen2"))
    assert not out.exists()
    engine.close()


def test_numbers_beyond_float16_are_an_error_that_names_them(families, tmp_path, out):
    engine = Engine(load_base(families / "qwen2"), workers=1)
    model = engine.create_full()
    model.params["model.norm.weight"][0] = 1e6
    save_weights(model, tmp_path / "trained")
    with pytest.raises(DataError, match=r"model\.norm\.weight holds numbers that F16 can't.*bfloat16"):
        export_model(str(tmp_path / "trained"), out, base=str(families / "qwen2"), dtype="float16")
    assert not out.exists()
    engine.close()


def test_a_source_or_base_that_does_not_exist_or_fit_is_named(families, tmp_path, out):
    with pytest.raises(ConfigError, match="nobody/nothing"):
        export_model("nobody/nothing", out)
    with pytest.raises(ConfigError, match="is not in the cache.*or name the base model with --base"):
        export_model(str(families / "llama" / "adapter"), out)  # made from a path that exists nowhere
    (tmp_path / "checkpoints" / "50").mkdir(parents=True)
    with pytest.raises(ConfigError, match="there is no folder .*checkpoints/60; .*/checkpoints holds 50"):
        export_model(str(tmp_path / "checkpoints" / "60"), out)
    with pytest.raises(ConfigError, match="there is no folder ./runs/run/checkpoints/60"):
        export_model("./runs/run/checkpoints/60", out)
    with pytest.raises(ConfigError, match="config.json is a file; name the folder"):
        export_model(str(families / "llama" / "config.json"), out)
    with pytest.raises(ConfigError, match="--base doesn't apply"):
        export_model("evsys/tiny", out, base="evsys/tiny")
    with pytest.raises(ConfigError, match="does not fit the base model"):
        export_model(str(families / "llama" / "adapter"), out, base=str(families / "qwen3"))
    with pytest.raises(ConfigError, match="no element type 'int8'"):
        export_model("evsys/tiny", out, dtype="int8")
    assert not out.exists()
