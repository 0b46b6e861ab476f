"""Runs the commands, as `tpt_keras` does: `python -m tpt_keras`."""

from tpt_keras.experiments.__main__ import main

main()
