import inspect

import pytest

from tests.experiments.command import assert_refused
from tpt_keras.serving import export as export_module


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--beam_width=0"], ["beam_width", "0"]),
        (["--beam_width=two"], ["beam_width", "two"]),
        (["--max_answer_length=0"], ["max_answer_length", "0"]),
        (["--precision=float16"], ["'float16'", "bfloat16, float32"]),
    ],
)
def test_invalid_options_are_refused(
    run, trained_model_dir, tmp_path, flags, parts
):
    result = run(
        "export",
        f"--model_dir={trained_model_dir}",
        f"--export_dir={tmp_path / 'model'}",
        *flags,
    )
    assert_refused(result, *parts)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (
            [
                "--max_answer_length=7",
                "--beam_width=3",
                "--length_penalty=0.6",
                "--precision=bfloat16",
            ],
            {
                "max_answer_length": 7,
                "sampler": {"num_sequences": 3, "length_penalty": 0.6},
                "precision": "bfloat16",
            },
        ),
    ],
)
def test_flags_become_arguments(
    run, trained_model_dir, tmp_path, monkeypatch, flags, options
):
    signature = inspect.signature(export_module.export)
    calls = []

    def export(*args, **kwargs):
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        calls.append(call.arguments)
        return tmp_path / "8"

    monkeypatch.setattr(export_module, "export", export)
    result = run(
        "export",
        f"--model_dir={trained_model_dir}",
        f"--export_dir={tmp_path}",
        *flags,
    )
    assert result.status == 0
    assert result.stdout == f"{tmp_path / '8'}\n"
    [call] = calls
    assert call.pop("model").config.num_layers == 1
    expected = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name != "model"
    }
    if "sampler" in options:
        call["sampler"] = vars(call["sampler"])
    assert call == {**expected, "export_dir": str(tmp_path), **options}
