"""Hand-made files in the layouts that the data sets are published in, two examples or more each."""

import gzip
import json

JSONL = {
    "xsum": ("document", "summary"),
    "gsm8k": ("question", "answer"),
    "natural_questions_open": ("question", "answer"),
}
STORY = "Rain fell on Elm.\n\nThe river rose, {0} said.\n\n@highlight\n\nRain fell\n\n@highlight\n\nIt rose\n"
SOLUTION = "He has 2 + {0} = <<2+{0}={1}>>{1} hens.\n#### {1},000"


def _lines(path, rows):
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    return path


def mbpp_rows(numbers=range(1, 975)):
    return [
        {
            "task_id": n,
            "text": f"Write a function to add {n} to a number.",
            "code": f"def plus_{n}(x):\r\n    return x + K + {n} - 1",
            "test_setup_code": "K = 1",
            "test_list": [f"assert plus_{n}({i}) == {n + i}" for i in range(3)],
            "challenge_test_list": [],
        }
        for n in numbers
    ]


def _wmt(folder, tag):
    english, german = (
        [f"The sun {tag} rises.", "It is late {question}."],
        ["Die Sonne geht auf.", "Es ist spät."],
    )
    more = range(4 if tag else 0)
    for side, lines in (
        ("en", english + [f"I see {n}." for n in more]),
        ("de", german + [f"Ich {n}." for n in more]),
    ):
        (folder / f"news{tag}.{side}").write_text("\n".join(lines) + "\n", "utf-8")
    return folder / f"news{tag}.en"


def _cnn(folder, tag):
    (folder / f"stories{tag}").mkdir()
    for n in range(2):
        (folder / f"stories{tag}" / f"{n}.story").write_text(STORY.format(f"{tag}{n}"), "utf-8")
    return folder / f"stories{tag}"


def _humaneval(folder, tag):
    rows = [
        {
            "task_id": f"Test/{n}",
            "prompt": f'import math\n\n\ndef f{n}(x):\n    """Doubles x."""\n',
            "canonical_solution": "    y = 2 * x\n    return y\n",
            "entry_point": f"f{n}",
            "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(2) == 4\n",
        }
        for n in range(2)
    ]
    data = "\n".join(map(json.dumps, rows)) + "\n"
    (folder / f"he{tag}.jsonl.gz").write_bytes(gzip.compress(data.encode()))
    return folder / f"he{tag}.jsonl.gz"


def _squad(folder, tag):
    qas = [
        {
            "question": f"Who built {tag}?",
            "id": "1",
            "answers": [{"text": "the Normans", "answer_start": 0}, {"text": "Normans", "answer_start": 4}],
            "is_impossible": False,
        },
        {
            "question": f"Who sold {tag}?",
            "id": "2",
            "answers": [],
            "plausible_answers": [{"text": "Normans", "answer_start": 4}],
            "is_impossible": True,
        },
    ]
    paragraphs = [{"context": f"the Normans built {tag} here.", "qas": qas}]
    whole = {"version": "v2.0", "data": [{"title": "Elm", "paragraphs": paragraphs}]}
    (folder / f"squad{tag}.json").write_text(json.dumps(whole), "utf-8")
    return folder / f"squad{tag}.json"


def _web(folder, tag):
    rows = [
        {"qId": "0", "qText": f"who is {tag}?", "answers": ["Ada Byron", "Countess of Lovelace"]},
        {
            "url": "u",
            "utterance": f"where is {tag}?",
            "targetValue": '(list (description "New York") (description Elm))',
        },
    ]
    (folder / f"web{tag}.json").write_text(json.dumps(rows), "utf-8")
    return folder / f"web{tag}.json"


def _trivia(folder, tag):
    answer = {
        "Value": "River Ash",
        "Aliases": ["River Ash", "The Ash!"],
        "NormalizedAliases": ["river ash", "ash"],
        "HumanAnswers": ["the Ash-river"],
    }
    rows = [
        {"Question": f"Which {tag} river is {n}?", "QuestionId": str(n), "Answer": answer} for n in range(2)
    ]
    (folder / f"trivia{tag}.json").write_text(json.dumps({"Data": rows, "Version": 1.0}), "utf-8")
    return folder / f"trivia{tag}.json"


def _simple(name):
    rows = {
        "xsum": lambda tag: [
            {"document": f"Rain {tag} fell.\nIt fell on Elm {n}.", "summary": f"It rained in {n}."}
            for n in (1, 2)
        ],
        "gsm8k": lambda tag: [
            {"question": f"How many hens, {tag} {n}?", "answer": SOLUTION.format(n, n + 2)} for n in range(12)
        ],
        "natural_questions_open": lambda tag: [
            {"question": f"when was {tag} {n} built", "answer": ["1821", "in 1821"]} for n in (1, 2)
        ],
        "spec_bench": lambda tag: [
            {"question_id": 81, "category": "writing", "turns": ["Write a letter.", "Make it longer."]},
            {
                "question_id": 161,
                "category": "translation",
                "turns": ["Translate: Hallo"],
                "reference": ["Hello"],
            },
        ],
        "mbpp": lambda tag: mbpp_rows(),
    }[name]
    return lambda folder, tag: _lines(folder / f"{name}{tag}.jsonl", rows(tag))


WRITERS = {
    **{name: _simple(name) for name in (*JSONL, "spec_bench", "mbpp")},
    "wmt14_en_de": _wmt,
    "cnn_dailymail": _cnn,
    "humaneval": _humaneval,
    "squad_v2": _squad,
    "web_questions": _web,
    "trivia_qa": _trivia,
}


def write(name, folder, tag=""):
    """A file (or folder) of the data set; another tag gives other questions. Returns its path as text."""
    return str(WRITERS[name](folder, tag))
