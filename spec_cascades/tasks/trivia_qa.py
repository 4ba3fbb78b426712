"""TriviaQA: quiz questions, answered from memory; every alias of the answer is right."""

from functools import partial

from spec_cascades.tasks import reading
from spec_cascades.tasks.base import Data, Item, Row, View


def item(row: Row) -> Item:
    """References are the normalised aliases and what people answered, as the published script takes them."""
    answer = row["Answer"] if "Answer" in row else row["answer"]
    get = lambda *names: next((answer[n] for n in names if n in answer), [])
    aliases = reading.strings(get("NormalizedAliases", "normalized_aliases"))
    aliases = aliases or reading.strings(get("Aliases", "aliases"))
    question = row["Question"] if "Question" in row else row["question"]
    value = reading.text(get("Value", "value"))
    return Item(reading.text(question), value, (aliases or [value]) + reading.strings(get("HumanAnswers")))


DATA = Data(
    name="trivia_qa",
    kind="question answering",
    tfds="trivia_qa/unfiltered.nocontext:1.1.0",
    layout="JSON with Data, a list with Question and Answer (Value, NormalizedAliases)",
    licence="none stated for the questions (Apache-2.0: the code)",
    split="validation",
    train="train",
    lengths=(64, 32),
    shots=1,
    max_new_tokens=32,
    metric="trivia_em",
    paper="Gemma: number of shots not seen",
    cut="solved examples; never the question",
    encdec=View("trivia question: {question}"),
    few_shot=View("Question: {question}\nAnswer:", stop=("\n",)),
    chat=View("Answer in a few words, without a sentence around them.\n\n{question}"),
    read=partial(reading.by_suffix, key="Data"),
    item=item,
    sample={
        "Question": "Which river runs through Elm?",
        "QuestionId": "s_0",
        "Answer": {
            "Value": "River Ash",
            "Aliases": ["River Ash", "The Ash"],
            "NormalizedAliases": ["river ash", "ash"],
        },
    },
)
