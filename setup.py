"""Packaging of tpt_keras. The tested versions are in constraints.txt."""

import pathlib
import re

import setuptools

HERE = pathlib.Path(__file__).parent
VERSION = re.search(
    r'__version__ = "(.+?)"', (HERE / "tpt_keras" / "__init__.py").read_text()
).group(1)

# A page to ask a model, whose attention is drawn with plotly.
PLAYGROUND = ["plotly>=6.0", "streamlit>=1.67"]

TEST = [
    *PLAYGROUND,
    "hypothesis",
    "jax",
    "pytest",
    "pytest-xdist",
    "pyyaml",
    "ruff",
    "selenium",
]

COMMANDS = setuptools.find_packages(include=["experiments", "experiments.*"])

setuptools.setup(
    name="tpt_keras",
    version=VERSION,
    description="The TP-Transformer for Keras and TensorFlow",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=[
        *setuptools.find_packages(include=["tpt_keras", "tpt_keras.*"]),
        *(f"tpt_keras.{name}" for name in COMMANDS),
        "tpt_keras.saved_models",
    ],
    # `experiments` alone would be everybody's name, and so would the other.
    package_dir={
        "tpt_keras.experiments": "experiments",
        "tpt_keras.saved_models": "saved_models",
    },
    package_data={
        "tpt_keras.experiments": ["configs/*.cfg"],
        # The trained models alone, and no exports beside or in them.
        "tpt_keras.saved_models": [
            f"tp_transformer_mathematics/{name}"
            for name in ("README.md", "config.json", "model.int8.npz")
        ],
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
        "google-crc32c>=1.5",
        # tensorflow-datasets imports it without asking for it.
        "importlib_resources",
        "keras>=3.13",
        # With what its Gaussian process needs.
        "keras-tuner[bayesian]>=1.4.8",
        "mathematics_dataset>=1.0.1",
        "matplotlib>=3.8",
        "numpy>=2.0",
        "requests>=2.32",
        "scikit-learn>=1.5",
        "scipy>=1.13",
        "sympy>=1.12",
        "tensorboard>=2.18",
        "tensorflow>=2.18",
        "tensorflow-datasets>=4.9.7",
        "tensorflow-serving-api>=2.18",
    ],
    extras_require={
        "test": TEST,
        # Draws the pages of attention and of accuracy.
        "analysis": ["plotly>=6.0"],
        "beam": ["apache-beam"],
        "benchmarks": ["keras-hub"],
        "playground": PLAYGROUND,
        # Writes checkpoints for the released code; reading needs nothing.
        "torch": ["torch>=2.4"],
        "dev": [*TEST, "pre-commit"],
    },
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
