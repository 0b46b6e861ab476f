"""Problems: generation, datasets, input pipeline. Nothing is imported here."""
