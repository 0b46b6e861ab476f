"""A user's own text pairs through every command."""

import json

import pytest

pytestmark = pytest.mark.slow

TINY = (
    "--preset=tp_transformer_tiny",
    "--hparams=hidden_dim=16,intermediate_dim=32,num_heads=2,num_layers=1",
)
TRAINING = (
    "--train_steps=4",
    "--steps_per_checkpoint=2",
    "--steps_per_evaluation=2",
    "--batch_size=8",
    "--validation_examples=5",
)


@pytest.fixture
def pairs(tmp_path):
    """A file of words outside the vocabulary of mathematics."""
    path = tmp_path / "cafés.tsv"
    lines = [f"Où est № {n}?\t{n}e étage\n" for n in range(60)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def ran(result):
    assert result.status == 0, result
    return result.stdout


def test_text_pairs_through_every_command(run, pairs, tmp_path):
    data = (
        "--dataset=text_pairs",
        f"--data_dir={pairs}",
        "--dataset_options=test_share=0.25,split_seed=3",
    )
    model_dir = tmp_path / "model"
    ran(run("train", *TINY, *data, *TRAINING, f"--model_dir={model_dir}"))
    rows = [
        json.loads(line)
        for line in (model_dir / "metrics.jsonl").read_text().splitlines()
    ]
    assert f"test/{pairs.stem}" in rows[-1]
    output = ran(run("evaluate", f"--model_dir={model_dir}"))
    assert pairs.stem in output
    assert "test" in output

    page = tmp_path / "report.html"
    ran(run("report", f"--model_dirs={model_dir}", f"--output={page}"))
    report = json.loads(page.with_suffix(".json").read_text())
    (split,) = report["models"][0]["splits"].items()
    assert split[0] == "test"
    assert split[1]["examples"] == 15

    question = "Où est № 7?"
    export_dir = tmp_path / "export"
    ran(run("export", f"--model_dir={model_dir}", f"--export_dir={export_dir}"))
    answers = [
        ran(run("solve", model, f"--question={question}"))
        for model in (f"--model_dir={model_dir}", f"--saved_model={export_dir}")
    ]
    assert answers[0] == answers[1]
    output = ran(run("quiz", *data, f"--model_dir={model_dir}", "--count=3"))
    assert "of 3 answers right" in output


def test_text_pairs_in_a_search(run, pairs, tmp_path):
    folder = tmp_path / "search"
    arguments = (
        "--variants=tp_transformer",
        "--num_layers=1",
        "--num_heads=2",
        "--min_weights=2000",
        "--max_weights=6000",
        "--max_trials=1",
        "--dataset=text_pairs",
        f"--data_dir={pairs}",
        f"--tuning_dir={folder}",
    )
    ran(run("tune", *arguments, *TRAINING))
    assert (folder / "report.md").is_file()
