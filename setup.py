"""Packaging of tpt_keras. The tested versions are in constraints.txt."""

import pathlib
import re

import setuptools

HERE = pathlib.Path(__file__).parent
VERSION = re.search(
    r'__version__ = "(.+?)"', (HERE / "tpt_keras" / "__init__.py").read_text()
).group(1)

# The folder of the trained solver, also in the package.
SOLVER = "saved_models.tp_transformer_mathematics"

# The imports of each optional part of the package.
EXTRAS = {
    # The figures and pages, the computations behind them, and the Bayesian
    # tuner. Keras imports scikit-learn wherever it finds it, which takes half
    # a second.
    "analysis": [
        "matplotlib>=3.8",
        "scikit-learn>=1.5",
    ],
    # Loads models from the Hugging Face Hub, and saves them there.
    "hub": ["huggingface_hub>=0.30"],
    # Trains and answers on JAX.
    "jax": ["jax>=0.6"],
    # Answers with ONNX graphs, and makes them on PyTorch.
    "onnx": [
        "onnxruntime>=1.22",
        "onnxscript>=0.5",
    ],
    # Exports for TF Serving, and a client for it.
    "serving": [
        "requests>=2.32",
        "tensorflow-serving-api>=2.20",
        "urllib3>=2.0",
    ],
    # Trains and answers on PyTorch, and reads the released checkpoints.
    "torch": ["torch>=2.4"],
}

# Builds the site of the documentation.
DOCS = [
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.6,<10",
    "mkdocstrings[python]>=0.30",
]

TEST = [
    *DOCS,
    *(package for extra in EXTRAS.values() for package in extra),
    "hypothesis",
    "ipykernel",
    "mypy",
    "nbclient",
    "nbformat",
    "packaging",
    "pandas",
    "pillow",
    "protobuf",
    "pytest",
    "pytest-xdist",
    "pyyaml",
    "ruff",
    "selenium",
    "setuptools",
]

setuptools.setup(
    name="tpt_keras",
    version=VERSION,
    description="The TP-Transformer for Keras 3",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    project_urls={"Paper": "https://arxiv.org/abs/1910.06611"},
    keywords=[
        "keras",
        "transformer",
        "tp-transformer",
        "attention",
        "tensor product representations",
        "mathematics dataset",
        "mathematical reasoning",
    ],
    packages=[
        *setuptools.find_packages(include=["tpt_keras", "tpt_keras.*"]),
        # Without its benchmarks, which a clone runs.
        "tpt_keras.experiments",
        f"tpt_keras.{SOLVER}",
    ],
    # A package named `experiments` would collide with others.
    package_dir={
        "tpt_keras.experiments": "experiments",
        f"tpt_keras.{SOLVER}": SOLVER.replace(".", "/"),
    },
    package_data={
        "tpt_keras": ["py.typed"],
        "tpt_keras.experiments": ["configs/*"],
        f"tpt_keras.{SOLVER}": ["*.json", "*.md", "*.safetensors"],
        "tpt_keras.serving": ["config/*"],
        "tpt_keras.visualization": ["pages/*"],
    },
    entry_points={
        "console_scripts": ["tpt_keras = tpt_keras.experiments.__main__:main"]
    },
    python_requires=">=3.11",
    install_requires=[
        "absl-py>=2.1",
        "filelock>=3.13",
        "grpcio>=1.53",
        # tensorflow-datasets imports it without declaring it.
        "importlib_resources>=6.0",
        "keras>=3.13",
        "keras-tuner>=1.4.8",
        "mathematics_dataset>=1.0.1",
        "numpy>=2.0",
        "optree>=0.13",
        "safetensors>=0.4",
        "sympy>=1.12",
        "tensorboard>=2.20",
        "tensorflow>=2.20",
        "tensorflow-datasets>=4.9.10",
        "tqdm>=4.60",
    ],
    extras_require={
        **EXTRAS,
        "docs": DOCS,
        "test": TEST,
        "dev": [*TEST, "pre-commit"],
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
