"""From a plan's settings to everything it has to say."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from spec_cascades import runlog
from spec_cascades.checks import ConfigError
from spec_cascades.config import plain
from spec_cascades.planning import chips, comparing, measured, speed
from spec_cascades.planning.chips import Chip
from spec_cascades.planning.comparing import Compared
from spec_cascades.planning.pair import Model, pair
from spec_cascades.planning.roofline import Fit, Roofline, fit
from spec_cascades.planning.settings import Plan
from spec_cascades.planning.speed import Asked, Costs

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 11)
"""Tokens a call of the target whose time is shown."""


class Method(NamedTuple):
    """One method's prediction. gamma, break_even: of those that draft, else None; break_even also where no
    acceptance is enough. seconds: of a batch of answers; speed_up: the target alone's over it.
    """

    name: str
    share: float | None
    gamma: int | None
    break_even: float | None
    seconds: float
    speed_up: float


class Planned(NamedTuple):
    """A plan worked out. chip, models, fit: None where times are measured; calls: seconds of a call of the
    target by tokens a row; drafter_call: of the drafter on one; compared: None without a record.
    """

    asked: Plan
    chip: Chip | None
    models: dict[str, Model] | None
    fit: Fit | None
    calls: dict[int, float]
    drafter_call: float
    methods: list[Method]
    compared: list[Compared] | None

    def as_json(self) -> dict[str, Any]:
        """Plain data; times in seconds, sizes in bytes."""
        fields = self._asdict()
        for key in ("chip", "fit"):
            fields[key] = fields[key] and fields[key]._asdict()
        if self.models:
            fields["models"] = {role: m._asdict() for role, m in self.models.items()}
        fields["methods"] = [m._asdict() for m in self.methods]
        if self.fit:
            fields["fit"]["total"] = self.fit.total
        if self.compared is not None:
            fields["compared"] = [c._asdict() | {"off": c.off} for c in self.compared]
        return plain(fields | {"asked": asdict(self.asked)})


def run(asked: Plan) -> Planned:
    """The plan worked out. Raises ConfigError for an unknown chip, model or record."""
    path = Path(asked.chip)
    if asked.peaks is None and path.is_file():
        costs: Costs = measured.read(path, asked.models, asked.batch)
        chip = models = fits = None
        price = lambda batch: measured.read(path, asked.models, batch)
    else:
        chip, models = _chip(asked), pair(asked)
        costs = Roofline(asked, chip, models)
        fits = fit(costs, asked.gamma or asked.most_gamma)
        price = lambda batch: costs._replace(asked=replace(asked, batch=batch))
    records = runlog.read_records(Path(asked.record)) if asked.record else None
    return Planned(
        asked=asked,
        chip=chip,
        models=models,
        fit=fits,
        calls={k: costs.call("target", k) for k in WIDTHS if k <= costs.most + 1},
        drafter_call=costs.call("drafter", 1),
        methods=_methods(asked, costs),
        compared=records and comparing.compare(records, price),
    )


def _chip(asked: Plan) -> Chip:
    if asked.peaks is None and asked.chip == "cpu":
        from spec_cascades.planning import machine

        return machine.measure()
    chip = chips.named(asked.chip) if asked.peaks is None else chips.stated(asked.peaks)
    if chip.ring is None and asked.mesh.model > 1:
        raise ConfigError(
            f"chip: {chip.name} states no interconnect, which mesh.model={asked.mesh.model} needs: give "
            f"chip=NAME, one of {', '.join(chips.CHIPS)}"
        )
    return chip


def _methods(asked: Plan, costs: Costs) -> list[Method]:
    assumed, n = asked.assumed, float(asked.answer)
    each = {"target": Asked("target")}
    for name, beta in (("lossless", assumed.lossless), ("cascade", assumed.cascade)):
        exact = name == "lossless"
        gamma = asked.gamma or speed.best_gamma(costs, exact, beta, n, asked.most_gamma)
        each[name] = Asked("speculative", exact, gamma, beta)
    if not (asked.models.drafter or "").startswith("lookup"):  # what is looked up writes nothing by itself
        each |= {
            "token": Asked("token", share=assumed.token),
            "sequence": Asked("sequence", share=assumed.sequence),
            "drafter": Asked("drafter"),
        }
    alone = speed.seconds(costs, each["target"], n)
    return [m for name, one in each.items() if (m := _method(name, one, costs, n, alone))]


def _method(name: str, one: Asked, costs: Costs, n: float, alone: float) -> Method | None:
    try:
        took = speed.seconds(costs, one, n)
    except ConfigError:
        if one.method in ("target", "speculative"):
            raise
        return None  # a record of some loops only
    drafts = one.method == "speculative"
    return Method(
        name=name,
        share=None if one.method in ("target", "drafter") else one.share,
        gamma=one.gamma if drafts else None,
        break_even=speed.break_even(costs, one.lossless, one.gamma) if drafts else None,
        seconds=took,
        speed_up=alone / took,
    )
