"""The playground: a page that asks a model and shows its attention."""
