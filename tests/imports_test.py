import ast
import pathlib
import subprocess
import sys

import pytest

import tpt_keras

PACKAGE = pathlib.Path(tpt_keras.__file__).parent
PURE = {"keras", "numpy", "tpt_keras.answer", "tpt_keras.errors"}
# What may be imported where, besides the standard library: a module of a
# package named here, too.
ALLOWED = {
    "layers": PURE | {"tpt_keras.layers"},
    "decoding": PURE | {"tpt_keras.decoding"},
    # It compiles by the backend's own means.
    "decoding/compilation.py": PURE | {"jax", "tensorflow"},
    "models": PURE
    | {
        "tpt_keras.decoding",
        "tpt_keras.files",
        "tpt_keras.layers",
        "tpt_keras.models",
        "tpt_keras.tokenizers",
        "safetensors",
    },
    "tokenizers/__init__.py": {"tpt_keras.tokenizers"},
    "tokenizers/character_tokenizer.py": PURE | {"tpt_keras.tokenizers"},
    "tokenizers/graph_tokenizer.py": {
        "tensorflow",
        "tpt_keras.answer",
        "tpt_keras.tokenizers",
    },
    "answer.py": set(),
    "tokenizers/vocabulary.py": set(),
    "errors.py": set(),
    "files.py": {"filelock", "tpt_keras.errors"},
    "serving/__init__.py": set(),
    "serving/answers.py": {"tpt_keras.answer"},
    "serving/exported_files.py": {"tpt_keras.errors"},
}


# Which rooms of ours the others may import, as BUILD.md draws it.
ROOMS = {
    "analysis": {
        "data_generators",
        "decoding",
        "layers",
        "models",
        "training",
        "visualization",
    },
    "checkpoints": {"layers", "models", "tokenizers"},
    "data_generators": {"tokenizers"},
    "language_model": {"data_generators", "layers", "models", "training"},
    "playground": {
        "analysis",
        "data_generators",
        "decoding",
        "models",
        "training.model_folder",
        "visualization",
    },
    "serving": {"decoding", "models", "tokenizers"},
    "training": {"data_generators", "models", "tokenizers", "visualization"},
    "tuning": {"data_generators", "models", "training", "visualization"},
    "visualization": set(),
}


def imported_modules(source):
    """Every module that a source file imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def is_allowed(module, allowed):
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names or any(
        f"{module}.".startswith(f"{name}.") for name in allowed
    )


def test_the_check_finds_what_it_should():
    source = "import os, keras.ops\ndef f():\n  from tensorflow.io import gfile"
    modules = list(imported_modules(source))
    assert modules == ["os", "keras.ops", "tensorflow.io.gfile"]
    assert [is_allowed(m, PURE) for m in modules] == [True, True, False]
    assert not is_allowed("keras_hub.layers", PURE)
    assert not is_allowed("tpt_keras.training", ALLOWED["models"])


@pytest.mark.parametrize("place", ALLOWED)
def test_imports_run_one_way(place):
    path = PACKAGE / place
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files
    forbidden = [
        f"{file.relative_to(PACKAGE)}: {module}"
        for file in files
        # A file's own rule replaces its folder's.
        if str(file.relative_to(PACKAGE)) not in ALLOWED or file == path
        for module in imported_modules(file.read_text())
        if not is_allowed(module, ALLOWED[place])
    ]
    assert not forbidden


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_what_is_below_them(room):
    names = (room, "answer", "errors", "files", *ROOMS[room])
    allowed = {f"tpt_keras.{name}" for name in names}
    modules = {
        module
        for file in PACKAGE.joinpath(*room.split(".")).rglob("*.py")
        for module in imported_modules(file.read_text())
        if module.startswith("tpt_keras.")
    }
    assert modules or room == "visualization"
    assert not [m for m in modules if not is_allowed(m, allowed)]


def test_only_the_tuning_knows_keras_tuner():
    importers = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        for module in imported_modules(path.read_text())
        if module.startswith("keras_tuner")
    }
    assert importers == {"tuning"}


def test_the_analysis_asks_by_public_names():
    private = [
        f"{path.name}: {node.attr}"
        for path in (PACKAGE / "analysis").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
        # What is an object's own.
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert not private


def test_every_room_has_its_rule():
    # A folder's rule holds for the folders in it, a file's for its own.
    folders = {room.replace(".", "/") for room in ROOMS}
    folders |= {place for place in ALLOWED if (PACKAGE / place).is_dir()}
    of_files = {str(pathlib.PurePath(place).parent) for place in ALLOWED}
    ruled = folders | of_files
    for path in PACKAGE.glob("*/**/__init__.py"):
        folder = path.parent.relative_to(PACKAGE)
        parents = set(map(str, folder.parents))
        assert str(folder) in ruled or parents & folders, folder
        ruled.discard(str(folder))
    assert ruled <= {"."}


HEAVY = [
    "tensorflow_datasets",
    "keras_tuner",
    "matplotlib",
    "plotly",
    "sklearn",
    "streamlit",
    "tensorboard",
    "sympy",
    "mathematics_dataset",
]


def run_python(script):
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=PACKAGE.parent,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_importing_the_package_is_cheap():
    heavy = ["keras", "tensorflow", *HEAVY]
    loaded = run_python(
        "import sys, tpt_keras\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    assert loaded == "[]"


@pytest.mark.slow
def test_using_a_model_imports_only_what_keras_does():
    # Keras imports matplotlib where it finds it.
    loaded = run_python(
        "import sys, keras\n"
        "before = set(sys.modules)\n"
        "import tpt_keras\n"
        "tpt_keras.Transformer, tpt_keras.load_model\n"
        "assert 'tpt_keras.models.transformer' in sys.modules\n"
        f"print([m for m in {HEAVY} if m in set(sys.modules) - before])"
    )
    assert loaded == "[]"
