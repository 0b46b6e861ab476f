"""Problems: vocabulary, tokenizer, generation, datasets, input pipeline.

Nothing is imported here: the vocabulary and the tokenizer, which the models
need, are plain Python; the rest needs TensorFlow and TensorFlow Datasets.
"""
