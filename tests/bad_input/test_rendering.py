"""Models, tokenizers and chat templates that can't do what is asked of them."""

from __future__ import annotations

import json

import pytest
from lab import CONFIG, lines
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "lookup_weather", "parameters": {"type": "object"}}}
TURNS = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]


@pytest.fixture
def model(lab):
    """A model's folder: `model(template)` writes it and points the experiment at it."""

    def write(template: str | None = CHATML) -> None:
        vocab = {char: number for number, char in enumerate(sorted(ByteLevel.alphabet()))}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
        folder = lab.root / "model"
        folder.mkdir(exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        lab.write("model/tokenizer_config.json", json.dumps({"eos_token": "<|im_end|>"}))
        if template is not None:
            lab.write("model/chat_template.jinja", template)
        lab.config(("evsys/tiny", str(folder)))

    return write


def test_a_model_with_a_plain_template_trains(lab, model):
    model()
    lab.run().passed()


@pytest.mark.parametrize(
    ("template", "said"),
    [
        pytest.param(CHATML.replace("assistant\n{% endif", "assistant\n<plan>{% endif"), r"row 0: the chat template is unstable: message 1 of the conversation doesn't continue the prompt", id="unstable"),
        pytest.param("{% for m in messages|reverse %}{{ m.role }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}", r"is unstable", id="reversed"),
        pytest.param("{% for m in messages %}", r"chat_template\.jinja:1: chat template has a syntax error", id="syntax"),
        pytest.param("{{ raise_exception('one system message only') }}", r"chat template failed: one system message only", id="refuses"),
        pytest.param("{{ ''.__class__.__mro__ }}", r"chat template failed: access to attribute '__class__' of 'str' object is unsafe", id="escapes"),
        pytest.param("{% for a in range(99999) %}{% for b in range(9999) %}" + "x" * 1200 + "{% endfor %}{% endfor %}", r"chat template wrote more than 4000000 characters", id="endless"),
        pytest.param("", r"the chat template renders no prompt, so every token would be trained", id="empty"),
        pytest.param(CHATML.replace("{{ m.content }}", ""), r"the chat template leaves out a message of role 'user'", id="drops content"),
        pytest.param(None, r"model: the model has no chat template", id="none"),
    ],
)  # fmt: skip
def test_a_template_that_can_not_be_trained_on_is_a_fault_of_the_data(lab, model, template, said):
    model(template)
    outcome = lab.run()
    outcome.refused(4, said)
    assert "<template>" not in outcome.said
    lab.evsys("data", "preview", "config.yaml").refused(4, said)
    lab.nothing_is_half_written()


def test_another_template_is_used_at_once_with_the_same_data(lab, model):
    model()
    before = lab.evsys("data", "preview", "config.yaml", "--rows", "1")
    before.passed()
    lab.run().passed()
    model(CHATML.replace("<|im_end|>\n", "<|im_end|>"))
    after = lab.evsys("data", "preview", "config.yaml", "--rows", "1")
    after.passed()
    lab.run().passed()
    assert before.out != after.out
    assert "<|im_end|>\n<|im_start|>assistant" in before.out
    assert "<|im_end|><|im_start|>assistant" in after.out


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": TURNS, "tools": [TOOL]}, r"row 0: the chat template does not show the tool 'lookup_weather' to the model"),
        ({"messages": [TURNS[0], {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {}}]}]}, r"leaves out a part of an assistant turn, its call of the tool 'f'"),
    ],
)  # fmt: skip
def test_tools_that_the_template_would_leave_out_are_refused(lab, row, said):
    lab.write("train.jsonl", lines([row] * 8))
    lab.config(("[{kind: jsonl_to_chat}]", "[]"))
    lab.run().refused(4, said, r"use a model whose template")


def test_a_schema_of_a_tool_reaches_a_template_that_shows_it(lab, model):
    model("{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}" + CHATML)
    lab.write("train.jsonl", lines([{"messages": TURNS, "tools": [TOOL]}] * 8))
    lab.config(("[{kind: jsonl_to_chat}]", "[]"), ("evsys/tiny", str(lab.root / "model")))
    outcome = lab.evsys("data", "preview", "config.yaml", "--rows", "1")
    outcome.passed()
    assert '"lookup_weather"' in outcome.out
    lab.run().passed()


def test_a_mask_that_covers_everything_is_told(lab):
    lab.code(
        "from evsys_algo_sft.sequences import render_rows\nfrom evsys_sdk import SFT, register_algorithm\n\n"
        "@register_algorithm('unmasked')\nclass Unmasked(SFT):\n    def _render(self, rows, renderer, report, limit):\n"
        "        return render_rows(rows, renderer, 'all', limit, report)\n"
    )
    lab.config(("kind: sft", "kind: unmasked"))
    outcome = lab.run()
    outcome.passed()
    assert "tokens are trained, prompts included: the mask seems to cover everything" in outcome.out


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"tokenizer.json": "{"}, r"tokenizer\.json: not a tokenizer of the tokenizers library"),
        ({"tokenizer.json": b"\x00\xff"}, r"tokenizer\.json"),
        ({"tokenizer_config.json": "[1]"}, r"tokenizer_config\.json"),
    ],
)
def test_a_damaged_tokenizer_is_named(lab, model, files, said):
    model()
    for name, content in files.items():
        lab.write(f"model/{name}", content)
    lab.run().refused(4, said)


# --- models ------------------------------------------------------------------------------------------------------------


def local(name: str) -> str:
    return CONFIG.replace("evsys/tiny", name).replace("kind: mock", "kind: local")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody/nothing", r":7:11: \$\.run\.model\.name: model 'nobody/nothing' is not in the cache .*known models: evsys/tiny, .*`evsys models fetch NAME`"),
        ("../../etc", r"model '\.\./\.\./etc' is not in the cache"),
        ("evsys/tinny", r"did you mean 'evsys/tiny'\?"),
    ],
)  # fmt: skip
def test_an_unknown_model_says_what_is_known_and_how_to_fetch_one(lab, name, said):
    lab.config(text=local(name))
    lab.run().refused(2, said)
    lab.nothing_was_written()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}, r"architecture MambaForCausalLM is not supported by the local engine"),
        ("{", r"config\.json: not JSON"),
        (None, r"no model: neither config\.json nor .*\.gguf file is in it"),
    ],
)  # fmt: skip
def test_a_model_of_an_unknown_architecture_is_refused_before_training(lab, model, config, said):
    model()
    if config is not None:
        lab.write("model/config.json", config if isinstance(config, str) else json.dumps(config))
    lab.config(text=local(str(lab.root / "model")))
    lab.run().refused(2, r":7:11: \$\.run\.model\.name: ", said)
    lab.nothing_was_written()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("lora_rank: 4", "target_modules: [q_prj]", r"unknown target modules \['q_prj'\]; choose among all-linear, q_proj"),
        ("lora_rank: 4", "lora_rank: 0", r"'lora_rank' must be >= 1, got 0"),
        ("name: evsys/tiny", "name: evsys/tiny, renderer: nope", r":7:29: \$\.run\.model\.renderer: no renderer is called 'nope'"),
        ("name: evsys/tiny", "name: evsys/tiny, init_from_checkpoint: nope", r"\.init_from_checkpoint: there is no file nope"),
        ("name: evsys/tiny", "name: evsys/tiny, init_from_checkpoint: a, load_checkpoint_path: b", r"both name a source of the weights"),
    ],
)  # fmt: skip
def test_what_a_model_can_not_be_asked_for_is_refused(lab, old, new, said):
    lab.config(text=local("evsys/tiny").replace(old, new))
    lab.run().refused(2, said)


@pytest.mark.parametrize(
    ("name", "content"), [("ck/weights", "x"), ("ck/manifest.json", "{"), ("ck/manifest.json", "{}")]
)
def test_a_folder_that_is_no_complete_checkpoint_is_named(lab, name, content):
    lab.write(name, content)
    lab.config(("name: evsys/tiny", "name: evsys/tiny, init_from_checkpoint: ck"))
    lab.run().refused(
        2, r"ck is not a complete checkpoint", r"name a folder like \.\.\./runs/<run>/checkpoints/<step>"
    )


def test_models_that_can_not_be_fetched_or_checked_say_what_can(lab):
    lab.evsys("models", "fetch", "../../x").refused(2, r"no model '\.\./\.\./x' to fetch; available: ")
    lab.evsys("models", "check", "nope").refused(2, r"model 'nope' is not in the cache")
