import functools
import json

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tpt_keras.analysis import report
from tpt_keras.models import PRESETS
from tpt_keras.models import count_weights
from tpt_keras.models.stored import BEST_MODEL_FILE
from tpt_keras.models.stored import MODEL_FILE
from tpt_keras.training import train as training_module
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.state.model_folder import read_config


@pytest.fixture
def replicate(run_tiny, tmp_path):
    return functools.partial(
        run_tiny,
        "replicate",
        "--variants=transformer,tp_transformer_c",
        "--scale=0.03125",
        "--warmup_steps=0",
        "--examples=10",
        f"--replication_dir={tmp_path / 'replication'}",
    )


@pytest.mark.slow
def test_more_seeds_continue_a_replication(
    replicate, tmp_path, without_graphs, monkeypatch
):
    folder = tmp_path / "replication"
    result = replicate("--seeds=1").succeeded()
    assert result.stdout.endswith(f"{folder / 'report.md'}\n")
    report = json.loads((folder / "report.json").read_text())
    names = ["transformer-0", "tp_transformer_c-0"]
    assert [model["name"] for model in report["models"]] == names
    assert report["means"] == []

    # Finished trainings are not repeated.
    trained = []
    build = training_module.make_trainer

    def make_trainer(*arguments):
        trained.append(arguments)
        return build(*arguments)

    monkeypatch.setattr(training_module, "make_trainer", make_trainer)
    result = replicate("--seeds=2").succeeded()
    assert len(trained) == 2
    assert "tp_transformer_c-1 (4 of 4)" in result.stdout
    losses = [
        read_metrics(folder / f"transformer-{seed}")[-1]["loss"]
        for seed in range(2)
    ]
    assert losses[0] != losses[1]
    first, second = json.loads((folder / "report.json").read_text())["means"]
    assert second["name"] == "tp_transformer_c-0, mean of 2 seeds"
    for result in first["splits"].values():
        assert result["low"] <= result["accuracy"] <= result["high"]
    assert "TP-Transformer (published: " in (folder / "report.md").read_text()


@pytest.mark.slow
def test_models_of_equal_weights_differ_in_their_filter(replicate, tmp_path):
    replicate(
        "--seeds=1",
        "--hparams=hidden_dim=12,dropout=0.1",
        # Heads that divide this size, and not that of the scale.
        "--num_heads=3",
        "--max_weights=9000",
        "--variants=transformer,transformer_gated_per_head",
    ).succeeded()
    report = json.loads((tmp_path / "replication/report.json").read_text())
    for model in report["models"]:
        assert 0.98 * 9000 < model["weights"] <= 9000
        config = read_config(model["path"])["model"]
        assert (config["hidden_dim"], config["dropout"]) == (12, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("replicate", MODULE),
        ("study", MODULE),
        ("dual_attention", MODULE),
        ("scan", "scan"),
        ("variable_binding", "variable_binding"),
    ],
)
def test_every_flagfile_is_valid(
    run, monkeypatch, place_value_data, tmp_path, name, modules
):
    trained, easier = {}, tmp_path / "easier"
    for preset in PRESETS:
        (easier / f"{preset}-0").mkdir(parents=True)
        (easier / f"{preset}-0" / MODEL_FILE).touch()

    def train(config, training, folder, preset, **kwargs):
        trained[preset] = count_weights(config)
        assert training.run.init_from == str(easier / f"{preset}-0")

    monkeypatch.setattr(training_module, "train", train)
    monkeypatch.setattr(report, "write_report", lambda *args, **kwargs: None)
    result = run(
        "replicate",
        f"--flagfile={name}.cfg",
        f"--modules={modules}",
        f"--data_dir={place_value_data}",
        "--seeds=1",
        f"--init_from={easier}",
        f"--replication_dir={tmp_path}",
    ).succeeded()
    assert result.stdout.startswith(f"{tmp_path / 'transformer-0'} (1 of ")
    if name != "replicate":
        assert min(trained.values()) > 0.98 * max(trained.values())


@pytest.mark.parametrize(
    ("flag", "parts"),
    [
        ("--max_weights=900", ["--max_weights", "transformer"]),
        ("--variants=lstm", ["'lstm'", "tp_transformer_c"]),
        ("--num_heads=7", ["--num_heads", "7", "transformer"]),
        ("--init_from=nowhere", ["nowhere/transformer-0"]),
    ],
)
def test_invalid_flags_are_refused(replicate, tmp_path, flag, parts):
    assert_refused(replicate(flag), *parts)
    assert not (tmp_path / "replication").exists()


def test_unfinished_trainings_to_continue_from_are_refused(replicate, tmp_path):
    first = tmp_path / "easier" / "transformer-0"
    first.mkdir(parents=True)
    (first / BEST_MODEL_FILE).touch()
    found = replicate(f"--init_from={first.parent}")
    assert_refused(found, str(first), MODEL_FILE)
    assert not (tmp_path / "replication").exists()
