"""The plugin where its client isn't installed, and what can be known of a model without a server."""

from pathlib import Path

import pytest

from evsys import structure
from evsys.errors import ConfigError, PluginLoadError
from evsys.types import LoraSpec, ModelSpec
from evsys_backend_tinker import TinkerBackend, backend, client_version
from evsys_backend_tinker.config import DUMMY_KEY, TinkerConfig
from evsys_backend_tinker.providers import PROVIDERS


@pytest.fixture
def client_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the client were there; nothing in these tests imports it."""
    monkeypatch.setattr(client_version, "version", lambda _name: "0.30.4")


def _missing(name: str) -> str:
    raise client_version.PackageNotFoundError(name)


def test_without_the_client_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_version, "version", _missing)
    with pytest.raises(
        PluginLoadError, match=r"needs the package `tinker`.*pip install 'evsys-backend-tinker\[tinker\]'"
    ):
        TinkerBackend()


@pytest.mark.parametrize("found", ["0.24.1", "0.40.0", "1.0"])
def test_a_client_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, found: str):
    monkeypatch.setattr(client_version, "version", lambda _name: found)
    with pytest.raises(PluginLoadError, match=rf">=0.25,<0.40, and {found} is installed"):
        TinkerBackend()


def test_every_provider_can_be_named_and_no_other():
    for name in PROVIDERS:
        assert structure(TinkerConfig, {"provider": name}).preset is PROVIDERS[name]
    with pytest.raises(ConfigError, match="provider"):
        structure(TinkerConfig, {"provider": "elsewhere"})


def test_an_address_comes_from_the_params_then_the_provider_then_the_environment(
    client_installed, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TINKER_BASE_URL", "http://localhost:1/from-the-environment/")
    assert TinkerBackend(base_url="http://localhost:2/").base_url == "http://localhost:2"
    assert TinkerBackend(provider="evsys").base_url == "http://127.0.0.1:8410"
    assert TinkerBackend().base_url == "http://localhost:1/from-the-environment"
    monkeypatch.delenv("TINKER_BASE_URL")
    assert TinkerBackend().base_url == f"https://{backend._HOSTED}"


def test_a_key_is_sent_only_where_one_is_wanted(client_installed, monkeypatch: pytest.MonkeyPatch):
    assert TinkerBackend().key is None  # the client looks into its own credentials
    assert TinkerBackend(base_url="http://127.0.0.1:8000").key == DUMMY_KEY
    assert TinkerBackend(provider="skyrl", base_url="http://gpu.example:8000").key == DUMMY_KEY
    monkeypatch.setenv("MY_KEY", "tml-mine")
    assert TinkerBackend(api_key_env="MY_KEY").key == "tml-mine"
    monkeypatch.setenv("MY_KEY", "sk-mine")
    with pytest.raises(ConfigError, match="starts with tml-") as refused:
        _ = TinkerBackend(api_key_env="MY_KEY").key
    assert "sk-mine" not in str(refused.value)
    with pytest.raises(ConfigError, match="NO_SUCH_KEY isn't set"):
        _ = TinkerBackend(api_key_env="NO_SUCH_KEY").key


def test_an_object_adds_to_the_capabilities_of_the_class(client_installed, monkeypatch: pytest.MonkeyPatch):
    assert "deterministic" not in TinkerBackend().capabilities
    assert "deterministic" in TinkerBackend(provider="evsys").capabilities
    assert "top_logprobs" not in TinkerBackend().capabilities
    monkeypatch.setattr(client_version, "version", lambda _name: "0.38.0")
    assert "top_logprobs" in TinkerBackend().capabilities
    assert "deterministic" not in TinkerBackend.capabilities


@pytest.mark.parametrize(
    ("lora", "complaint"),
    [
        (LoraSpec(rank=None), "lora_rank: the Tinker protocol trains low-rank adapters only"),
        (LoraSpec(alpha=16.0), "lora_alpha: the Tinker protocol has no lora_alpha"),
        (
            LoraSpec(targets=("q_proj",)),
            "target_modules: the Tinker protocol trains groups of layers, so q_proj needs",
        ),
        (LoraSpec(targets=("wte",)), "target_modules: the Tinker protocol doesn't know wte"),
    ],
)
def test_what_the_protocol_cannot_train_is_said_before_a_run(
    client_installed, lora: LoraSpec, complaint: str
):
    (said,) = TinkerBackend().validate_model(ModelSpec(name="evsys/tiny", lora=lora))
    assert str(said).startswith(f"$.algorithm.params.{complaint}")


def test_a_server_of_ours_trains_single_layers_with_any_alpha(client_installed):
    model = ModelSpec(name="evsys/tiny", lora=LoraSpec(alpha=16.0, targets=("q_proj",)))
    assert list(TinkerBackend(provider="evsys").validate_model(model)) == []


def test_a_provider_that_needs_another_client_is_refused_with_the_reason(client_installed):
    (said,) = TinkerBackend(provider="fireworks").validate_model(ModelSpec(name="evsys/tiny"))
    assert said.path == "$.backend.params.provider"
    assert "Fireworks' own client" in said.message
    assert "base_url" in said.hint


def test_a_usual_model_has_no_complaints(client_installed):
    assert list(TinkerBackend().validate_model(ModelSpec(name="evsys/tiny"))) == []


def test_an_experiment_file_without_the_client_gets_the_install_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    from evsys_runtime.config.validate import load_experiment

    monkeypatch.setattr(client_version, "version", _missing)
    path = tmp_path / "config.yaml"
    path.write_text(
        "version: 1\nname: x\nrun:\n"
        "  data: {source_kind: in_memory, rows: [{messages: [{role: user, content: a}, {role: assistant, content: b}]}]}\n"
        "  model: {name: evsys/tiny}\n  algorithm: {kind: sft, params: {steps: 1}}\n  backend: {kind: tinker}\n",
        encoding="utf-8",
    )
    with pytest.raises(PluginLoadError, match="pip install"):
        load_experiment(path)
