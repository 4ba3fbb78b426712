"""What metrics are called in reports. Imports nothing."""

TITLES = {
    "bleu": "BLEU",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeLsum": "ROUGE-Lsum",
    "em": "exact match",
    "f1": "F1",
    "open_em": "exact match",
    "open_f1": "F1",
    "trivia_em": "exact match",
    "trivia_f1": "F1",
    "accuracy": "accuracy",
    "pass@1": "pass@1",
    "none": "no score",
}
