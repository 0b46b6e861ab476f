# Two commands from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python -m
TPT_KERAS := $(VENV)/bin/tpt_keras
DEMO_MODULE := numbers__place_value
DEMO_MODEL := models/demo
DEMO_EXPORT := saved_models/demo
EXPORTED := $(DEMO_MODEL)/.exported
SOLVER := saved_models/tp_transformer_mathematics
# Modules of six areas whose problems are generated in seconds.
SOLVER_MODULES := algebra__linear_1d,arithmetic__mul,calculus__differentiate,comparison__closest,measurement__conversion,numbers__gcd
# Each process starts with half of the tests, and an idle one takes over half of
# the other's rest: most files run in one process, which makes fixtures once.
PYTEST := $(RUN) pytest -n 2 --dist worksteal
# On JAX and PyTorch: the folders of pure Keras, and the files that are marked.
PURE_TESTS := $(addprefix tests/,layers analysis models decoding checkpoints language_model)
marked = $(shell grep --recursive --files-with-matches --include=*_test.py mark.$(1) tests)

RANGE_TESTS := $(addprefix tests/,layers/tp_multi_head_attention_test.py \
	models/transformer_test.py models/stored_test.py training/train_test.py \
	tuning/tune_test.py serving/export_test.py serving/saved_model_test.py)

# If it is set, every process compiles all modules for ten seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-slow test-both test-exhaustive on-tensorflow \
	on-jax on-torch test-newest test-oldest docs notebooks lint clean

setup: $(VENV)/.installed

# pip installs torch, because it reads where the machine keeps its wheels; uv
# installs the rest, three times as fast. Modules are compiled when they are
# imported; most never are.
$(VENV)/.installed: setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet --no-compile --constraint constraints.txt uv torch
	$(VENV)/bin/uv pip install --python $(VENV) --constraint constraints.txt \
		--editable ".[test]"
	touch $@

# Finished steps are kept: run again, it resumes.
demo: setup
	$(TPT_KERAS) prepare_data --modules=$(DEMO_MODULE) --data_dir=data \
		--train_examples=200000 --evaluation_examples=2500
	$(TPT_KERAS) train --flagfile=experiments/configs/demo.cfg \
		--data_dir=data --model_dir=$(DEMO_MODEL)
	$(TPT_KERAS) evaluate --model=$(DEMO_MODEL) \
		--splits=interpolate,extrapolate
	test -d $(DEMO_EXPORT) -a $(EXPORTED) -nt $(DEMO_MODEL)/model.keras || \
		$(TPT_KERAS) export --model=$(DEMO_MODEL) \
		--export_dir=$(DEMO_EXPORT)
	touch $(EXPORTED)
	$(TPT_KERAS) quiz --saved_model=$(DEMO_EXPORT) \
		--modules=$(DEMO_MODULE) --data_dir=data
	$(TPT_KERAS) prepare_data --modules=$(SOLVER_MODULES) \
		--data_dir=data/solver --train_examples=3 --evaluation_examples=20
	$(TPT_KERAS) quiz --model=$(SOLVER) \
		--modules=$(SOLVER_MODULES) --data_dir=data/solver --count=3
	@echo "Learning curves: $(DEMO_MODEL)/learning_curves.png"
	@echo "The commands are in $(VENV)/bin: $(VENV)/bin/tpt_keras lists them."

# The quick tests, and the slow ones: killed processes, several workers, chains
# of commands. Both at once import modules and make fixtures once. The
# exhaustive ones try all combinations, and the benchmarks.
test: CHOICE := not slow
test-slow: CHOICE := slow and not exhaustive
test-both: CHOICE := not exhaustive
test-exhaustive: CHOICE := exhaustive
test test-slow: on-tensorflow on-jax
test-both test-exhaustive: on-tensorflow on-jax on-torch

on-tensorflow: setup
	KERAS_BACKEND=tensorflow $(PYTEST) -m "$(CHOICE)" tests

on-jax: setup
	KERAS_BACKEND=jax $(PYTEST) -m "$(CHOICE)" $(PURE_TESTS) $(call marked,jax)

# Its threads wait actively, and would wait for those of the other process.
on-torch: setup
	OMP_NUM_THREADS=1 KERAS_BACKEND=torch $(PYTEST) \
		-m "$(CHOICE) and not slow or torch and $(CHOICE)" \
		$(PURE_TESTS) $(call marked,torch)

# Some quick tests on the newest packages that setup.py allows, and on the oldest,
# in build/: make test-newest PYTHON=python3.13
test-newest: RESOLUTION := highest
test-oldest: RESOLUTION := lowest-direct
test-newest test-oldest: setup
	$(VENV)/bin/uv venv --clear --python=$(PYTHON) build/$(RESOLUTION)
	$(VENV)/bin/uv pip install --python=build/$(RESOLUTION) \
		--resolution=$(RESOLUTION) ".[analysis,hub,jax,serving]" \
		"hypothesis>=6.100" "pandas>=2.2.2" "pytest>=8" "pyyaml>=6.0.1"
	KERAS_BACKEND=tensorflow build/$(RESOLUTION)/bin/python -m pytest \
		-W default -m "not slow" $(RANGE_TESTS)
	KERAS_BACKEND=jax build/$(RESOLUTION)/bin/python -m pytest \
		-W default -m "not slow" $(filter tests/layers/% tests/models/%,$(RANGE_TESTS))

# The site, in site/. A warning is an error.
docs: setup
	$(RUN) mkdocs build --strict

# Executes the notebooks of docs/ in place.
notebooks: setup
	$(VENV)/bin/python docs/notebooks/execute.py

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(RUN) mypy

clean:
	rm -rf $(VENV) data models onnx site $(DEMO_EXPORT) $(SOLVER)/[0-9]* build *.egg-info .mypy_cache .pytest_cache
