"""Where JAX keeps programs."""

import keras
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("of JAX alone", allow_module_level=True)

import jax

from tpt_keras.training.jax_program_cache import MAX_BYTES
from tpt_keras.training.jax_program_cache import keep_programs


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's folder for caches; what the tests have set is set again."""
    names = "jax_compilation_cache_dir", "jax_compilation_cache_max_size"
    values = [getattr(jax.config, name) for name in names]
    jax.config.update(names[0], None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tmp_path
    for name, value in zip(names, values):
        jax.config.update(name, value)


def test_programs_are_kept_in_the_users_cache(home):
    keep_programs()
    folder = home / "tpt_keras" / "programs"
    assert jax.config.jax_compilation_cache_dir == str(folder)
    assert jax.config.jax_compilation_cache_max_size == MAX_BYTES
    # A program is trusted.
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_was_not_written_to_its_end_is_removed(home):
    folder = home / "tpt_keras" / "programs"
    folder.mkdir(parents=True)
    names = {"whole-cache", "whole-atime", "half-cache"}
    for name in names:
        (folder / name).write_bytes(b"12345678")
    keep_programs()
    left = {path.name for path in folder.iterdir()}
    assert left - {".lockfile"} == names - {"half-cache"}


def test_what_the_user_has_set_remains(home):
    jax.config.update("jax_compilation_cache_dir", str(home / "mine"))
    keep_programs()
    assert jax.config.jax_compilation_cache_dir == str(home / "mine")
    assert not list(home.iterdir())


def test_a_cache_that_cannot_be_written_is_none(home):
    (home / "tpt_keras").write_text("no folder")
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None
