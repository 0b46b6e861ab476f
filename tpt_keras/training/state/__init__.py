"""What a training leaves in its folder, and resumes from."""
