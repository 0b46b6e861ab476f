"""The commands one after another, as the demo calls them."""

import json

import pytest

from tests.conftest import MODULE
from tests.experiments.command import run_alone
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.models.stored import load_model

pytestmark = pytest.mark.slow

TINY_TRAINING = (
    "--preset=tp_transformer_tiny",
    "--hparams=hidden_dim=16,intermediate_dim=32,num_layers=1,num_heads=2",
    "--train_steps=2",
    "--steps_per_checkpoint=1",
    "--steps_per_evaluation=2",
    "--batch_size=8",
)


def lines_of(result):
    """The lines of a command that succeeds, without control characters."""
    lines = result.quiet().stdout.splitlines()
    assert all(line.isprintable() for line in lines), result.stdout
    return lines


def test_from_nothing_to_answers(run, tmp_path):
    data = (f"--modules={MODULE}", f"--data_dir={tmp_path / 'data'}")
    model_dir = tmp_path / "model"
    model = f"--model={model_dir}"
    export_dir = tmp_path / "saved_models" / "tiny"
    prepare = (
        *("prepare_data", *data, "--train_examples=90"),
        *("--evaluation_examples=12", "--num_workers=1"),
    )
    lines = lines_of(run(*prepare))
    assert any(str(tmp_path / "data") in line for line in lines)
    lines_of(run(*prepare))

    train = (
        *("train", *TINY_TRAINING, *data),
        *(f"--model_dir={model_dir}", "--validation_examples=10"),
    )
    # In a process of its own, as a user does.
    assert len(lines_of(run_alone(*train))) <= 8
    assert len(lines_of(run(*train))) == 1
    config = json.loads((model_dir / "config.json").read_text())
    assert config["preset"] == "tp_transformer_tiny"
    assert (model_dir / "model.keras").is_file()
    assert (model_dir / "learning_curves.png").is_file()

    assert len(lines_of(run("evaluate", model))) == 2
    evaluations = (model_dir / "evaluations.jsonl").read_text()
    results = list(map(json.loads, evaluations.splitlines()))
    assert [(r["module"], r["split"], r["examples"]) for r in results] == [
        (MODULE, "interpolate", 12),
        (MODULE, "extrapolate", 12),
    ]

    beam = ("--beam_width=2", "--max_answer_length=7")
    export = ("export", model, f"--export_dir={export_dir}", *beam)
    assert lines_of(run(*export))[-1] == str(export_dir / "1")
    generator = Generator(load_model(model_dir), BeamSampler(2), 7)
    check_answers(run, export_dir, generator, data)


def check_answers(run, saved_model, generator, data):
    questions = ["What is the tens digit of 31859?", "1 + 1"]
    # In a process of its own, which does not import the model's classes.
    lines = lines_of(
        run_alone(
            "solve",
            f"--saved_model={saved_model}",
            *(f"--question={question}" for question in questions),
        )
    )
    assert lines == [answer.text for answer in generator.answer(questions)]
    *lines, count = lines_of(
        run("quiz", f"--saved_model={saved_model}", *data, "--count=4")
    )
    assert len(lines) == 8
    num_right = 0
    for line in lines[1::2]:
        given, target = line.split("answer:")[1].split("target:")
        target, mark = target.split()
        assert mark == ("right" if given.strip() == target else "WRONG")
        num_right += mark == "right"
    assert count.startswith(f"{num_right} of 4 ")


def test_text_pairs_of_a_user(run, tmp_path, without_graphs):
    """Words outside the vocabulary of mathematics."""
    pairs = tmp_path / "cafés.tsv"
    lines = [f"Où est № {n}?\t{n}e étage\n" for n in range(60)]
    pairs.write_text("".join(["question\tanswer\n", *lines]), encoding="utf-8")
    data = (
        "--dataset=text_pairs",
        f"--data_dir={pairs}",
        "--dataset_options=test_share=0.25,split_seed=3",
    )
    model_dir = tmp_path / "model"
    model = f"--model={model_dir}"
    train = (*TINY_TRAINING, *data, "--validation_examples=5")
    lines_of(run("train", *train, f"--model_dir={model_dir}"))
    rows = (model_dir / "metrics.jsonl").read_text().splitlines()
    assert f"test/{pairs.stem}" in json.loads(rows[-1])
    read, line = lines_of(run("evaluate", model))
    assert f"{pairs}: 60 pairs" in read
    assert line.startswith(pairs.stem)

    page = tmp_path / "report.md"
    lines_of(run("report", f"--models={model_dir}", f"--output={page}"))
    report = json.loads(page.with_suffix(".json").read_text())
    assert report["models"][0]["splits"]["test"]["examples"] == 17
    assert not report["published"]
    *_, count = lines_of(run("quiz", *data, model, "--count=3"))
    assert count.endswith("of 3 answers right")
