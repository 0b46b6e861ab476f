"""A page to ask a trained model, and to look inside it."""
