"""What `eight.py` runs: (family, method, (data, model, drafter), rows), and the shards of caches to find."""

CASES = {
    "gemma2 v3 1x8": ("gemma2", "v3", (1, 8)),
    "gemma2 lossless 2x4, drafter over 1": ("gemma2", "lossless", (2, 4, 1)),
    "gemma3 stacked, copying, v3 2x4, drafter over 2": ("gemma3", "v3", (2, 4, 2)),
    "t5 v3 2x4": ("t5", "v3", (2, 4)),
    "t5 target 8x1, three rows": ("t5", "target", (8, 1), 3),
    "llama token 1x8": ("llama", "token", (1, 8)),
}

# [rows, key heads] of a device, behind the number of layers where they are stacked. Four rows, but filled up;
# key heads 2, 8, 8, 4 of Gemma 2, 3, T5 and llama; a drafter over fewer devices holds more of them.
SHAPES = {
    "gemma2 v3 1x8": {"target": [4, 1], "drafter": [4, 1]},
    "gemma2 lossless 2x4, drafter over 1": {"target": [2, 1], "drafter": [2, 2]},
    "gemma3 stacked, copying, v3 2x4, drafter over 2": {"target": [2, 2, 2], "drafter": [2, 1, 4]},
    "t5 v3 2x4": {"target": [2, 2], "drafter": [2, 2]},
    "t5 target 8x1, three rows": {"target": [1, 8]},
    "llama token 1x8": {"target": [4, 1], "drafter": [4, 1]},
}
