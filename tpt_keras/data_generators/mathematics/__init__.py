"""DeepMind's Mathematics Dataset: generator, archive and tfds datasets."""
