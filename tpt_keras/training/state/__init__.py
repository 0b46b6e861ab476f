"""The state of a training in its folder, from which it resumes."""
