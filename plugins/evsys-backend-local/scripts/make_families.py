# ruff: noqa: INP001, T201 - a script that reports on a terminal
"""Makes the small random checkpoints under `tests/models/families`, one for each supported family.

Weights come from transformers, adapters from peft, logits, logprobs and gradients from torch; nothing of evsys takes part.

    python scripts/make_families.py tests/models/families

runs in an environment with torch, transformers and peft (`nox -s oracles` says how to get one). Each folder then holds

* `config.json` and `model.safetensors`, as `save_pretrained` writes them,
* `adapter/`, a LoRA adapter as peft writes it, with both matrices random,
* `expected.safetensors`: `tokens` `[T]`; `logits` `[T, vocab]` of the base model; `logprobs` `[T - 1]` of each next token
  under base and adapter; `weights` `[T - 1]`; and the gradients of `-sum(weights * logprobs)` by the adapter's names.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read at import: nothing is looked up

import peft
import torch
import transformers
from safetensors.torch import save_file

VOCAB, LENGTH = 259, 20
COMMON: dict[str, Any] = {"vocab_size": VOCAB, "num_hidden_layers": 2, "max_position_embeddings": 256}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}
FAMILIES: dict[str, transformers.PreTrainedConfig] = {
    # Grouped queries, an output head of its own, positions stretched as in Llama 3.1.
    "llama": transformers.LlamaConfig(
        **COMMON,
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=2,
        num_key_value_heads=1,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        rope_parameters=LLAMA3,
    ),
    # Three query heads a key head, tied, another base of the positions.
    "smollm2": transformers.LlamaConfig(
        **COMMON,
        hidden_size=24,
        intermediate_size=20,
        num_attention_heads=3,
        num_key_value_heads=1,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    ),
    # A window shorter than the sequence, heads wider than the stream divided by their number.
    "mistral": transformers.MistralConfig(
        **COMMON,
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=6,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # Biases of q, k and v.
    "qwen2": transformers.Qwen2Config(
        **COMMON,
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
    # Norms of q and k, heads of a width of their own.
    "qwen3": transformers.Qwen3Config(
        **COMMON,
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def randomise(module: torch.nn.Module, *, linear: float, generator: torch.Generator) -> None:
    """Large enough that every part matters: matrices and biases around 0, gains of norms around 1."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.2 * noise)
            else:
                parameter.copy_(linear * noise)


def logprobs_of(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Logprob of each token but the first, ``[T - 1]``."""
    logits = model(input_ids=tokens[None]).logits[0, :-1]
    return torch.log_softmax(logits, -1).gather(1, tokens[1:, None])[:, 0]


def make(name: str, config: transformers.PreTrainedConfig, folder: Path, seed: int) -> None:
    """Write one family's folder."""
    generator = torch.Generator().manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    )
    randomise(model, linear=0.3, generator=generator)
    model.eval()
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    tokens = torch.randint(0, VOCAB, (LENGTH,), generator=generator)
    with torch.no_grad():
        logits = model(input_ids=tokens[None]).logits[0].clone()

    # The name of the base inside the adapter is a path of the machine that ran this.
    model.name_or_path = f"families/{name}"
    settings = peft.LoraConfig(r=2, lora_alpha=6, target_modules=TARGETS, task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, settings)
    with torch.no_grad():
        for key, parameter in adapted.named_parameters():
            if "lora_" in key:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)
    weights = torch.rand(LENGTH - 1, generator=generator)
    logprobs = logprobs_of(adapted, tokens)
    (-(weights * logprobs).sum()).backward()
    gradients = {
        key.replace(".default", ""): parameter.grad.contiguous()
        for key, parameter in adapted.named_parameters()
        if "lora_" in key
    }
    expected = {
        "tokens": tokens,
        "logits": logits,
        "logprobs": logprobs.detach(),
        "weights": weights,
        **gradients,
    }
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{name}: {size / 1e3:.0f} kB, logits up to {logits.abs().max():.1f}")


def main() -> None:
    """Write all families."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}")
    for seed, (name, config) in enumerate(FAMILIES.items()):
        make(name, config, folder / name, seed)


if __name__ == "__main__":
    main()
