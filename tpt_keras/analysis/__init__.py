"""What a trained model attends to, binds and carries. Nothing is imported."""
