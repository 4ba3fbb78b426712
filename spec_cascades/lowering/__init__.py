"""Programs compiled and not run: for a TPU that is not there, and what the optimised code does in its loops."""
