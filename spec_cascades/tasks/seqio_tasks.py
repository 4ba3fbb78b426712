"""Every task in seqio's TaskRegistry: importing this module registers them (it needs the extra [data]).

`spec_cascades_NAME` is the encoder-decoder view, `spec_cascades_NAME_few_shot` the other; mixtures are
`spec_cascades_summarisation`, `spec_cascades_qa` and `spec_cascades_all`. Data come from TFDS, texts are
tokenised by T5's vocabulary; `register` puts another one, or a file in the published layout, in their place.
Examples are cached by seqio's own tools before they are tokenised.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from spec_cascades.metrics import scoring, text
from spec_cascades.tasks import registry
from spec_cascades.tasks.base import Data, Item
from spec_cascades.tasks.settings import Task

T5_VOCABULARY = "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"
VIEWS = ("encdec", "few_shot")
MIXTURES = {
    "spec_cascades_summarisation": ("cnn_dailymail", "xsum"),
    "spec_cascades_qa": ("squad_v2", "web_questions", "natural_questions_open", "trivia_qa"),
    "spec_cascades_all": tuple(name for name, data in registry.TASKS.items() if data.tfds),
}


def register(
    name: str,
    view: str = "encdec",
    path: str | None = None,
    train_path: str | None = None,
    vocabulary: Any = None,
    shots: int | None = None,
) -> Any:
    """Adds a task to seqio's TaskRegistry, in place of the one of its name, and returns it.

    Features are inputs and targets, EOS appended after trimming; `reference` (JSON) goes along for metrics.
    path: the evaluated split as published, train_path: the training split, instead of TFDS; vocabulary:
    one of seqio's, T5's by default; shots: of the few_shot view. Trimming takes the end of the inputs: that
    is the context in the encdec view, but the question in few_shot, which wants room for all of it. Coding
    tasks have no metric here, since that would run programs. Raises ConfigError for an unknown name.
    """
    import seqio

    data = registry.get(name)
    vocabulary = vocabulary or seqio.SentencePieceVocabulary(T5_VOCABULARY)
    splits = [data.split] + [data.train] * bool(data.train and (train_path or path is None or data.order))
    source = lambda split, shuffle_files, seed=None: _dataset(
        lambda: _examples(data, view, split, path, train_path, shots), shuffle_files, seed
    )
    full = full_name(name, view)
    seqio.TaskRegistry.remove(full) if full in seqio.TaskRegistry.names() else None
    task = seqio.TaskRegistry.add(
        full,
        source=seqio.FunctionDataSource(dataset_fn=source, splits=splits),
        preprocessors=[
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={
            "inputs": seqio.Feature(vocabulary=vocabulary, add_eos=view == "encdec"),
            "targets": seqio.Feature(vocabulary=vocabulary, add_eos=True),
        },
        postprocess_fn=_postprocess(data, view),
        metric_fns=[_metric(data)] if data.metric not in ("pass@1", "none") else [],
    )
    _mix(full)
    return task


def _mix(task: str) -> None:
    """Makes the mixtures that hold a task anew, since they keep the one that they were made of."""
    import seqio

    for name, parts in MIXTURES.items():
        members = [full_name(part) for part in parts]
        if task in members and set(members) <= set(seqio.TaskRegistry.names()):
            seqio.MixtureRegistry.remove(name) if name in seqio.MixtureRegistry.names() else None
            seqio.MixtureRegistry.add(name, members, default_rate=1)


def full_name(name: str, view: str = "encdec") -> str:
    """What the registry calls a task."""
    return f"spec_cascades_{name}" + ("" if view == "encdec" else f"_{view}")


def sequence_length(name: str) -> dict[str, int]:
    """Tokens of inputs and targets in the encoder-decoder view, as `get_dataset` takes them."""
    return dict(zip(("inputs", "targets"), registry.get(name).lengths, strict=True))


def register_all() -> None:
    """Adds every task in both views, and the mixtures. No data and no vocabulary are read yet."""
    for name in registry.TASKS:
        for view in VIEWS:
            register(name, view)


def _examples(
    data: Data, view: str, split: str, path: str | None, train_path: str | None, shots: int | None
) -> Iterator[dict[str, str]]:
    """Examples as texts; those of the training split are shown without solved examples before them."""
    train = split == data.train
    task = Task(
        name=data.name,
        view=view,
        path=train_path if train and train_path else path,
        shots_path=None if train else train_path,
        split=split if path is None or data.order else None,
        shots=0 if train else shots,
    )
    prompts, items = registry.prompts(task)
    for prompt, item in zip(prompts, items, strict=True):
        yield {"inputs": prompt.text, "targets": item.target, "reference": _reference(item)}


def _reference(item: Item) -> str:
    return json.dumps(item.reference, ensure_ascii=False)


def _dataset(examples: Callable[[], Iterator[dict[str, str]]], shuffle: bool, seed: int | None) -> Any:
    import tensorflow as tf

    signature = {key: tf.TensorSpec((), tf.string) for key in ("inputs", "targets", "reference")}
    found = tf.data.Dataset.from_generator(examples, output_signature=signature)
    return found.shuffle(100_000, seed=seed) if shuffle else found


def _postprocess(data: Data, view: str) -> Callable[..., Any]:
    extract = registry.extractor(Task(name=data.name), data.view(view).stop)

    def postprocess(output: str, is_target: bool = False, example: Any = None) -> Any:
        """A prediction as the metric wants it; a target as its reference."""
        return json.loads(example["reference"]) if is_target and example else extract(output)

    return postprocess


def _metric(data: Data) -> Callable[[list[Any], list[str]], dict[str, float]]:
    def bleu(targets: list[str], predictions: list[str]) -> dict[str, float]:
        return {"bleu": text.score(predictions, targets).bleu}

    def means(targets: list[Any], predictions: list[str]) -> dict[str, float]:
        scores = scoring.score(data.metric, predictions, targets)
        return {name: sum(values) / len(values) for name, values in scores.items()}

    return bleu if data.metric == "bleu" else means


register_all()
