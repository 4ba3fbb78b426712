"""Programs compiled and not run: for a TPU that is not there, and what their loops do."""
