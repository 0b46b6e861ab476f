"""Commands; `tpt_keras` lists them."""
