"""Imports go one way: read from the sources, so that nothing has to be imported to be checked."""

import ast
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "spec_cascades"
MODULES = {
    ".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): p
    for p in sorted(PACKAGE.rglob("*.py"))
}
HEAVY = {
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax",
    "seqio",
    "tensorflow",
    "matplotlib",
    "torch",
    "transformers",
}


@cache
def imports(name, top_only=False):
    """Full dotted names that a module imports; `top_only` leaves out those inside functions."""
    tree = ast.parse(MODULES[name].read_text())
    nodes = _outside_functions(tree) if top_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(name, node)
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return frozenset(found)


def _absolute(name, node):
    if not node.level:
        return node.module
    package = name.split(".") if MODULES[name].name == "__init__.py" else name.split(".")[:-1]
    parts = package[: len(package) - node.level + 1] + ([node.module] if node.module else [])
    return ".".join(parts)


def _outside_functions(node):
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _outside_functions(child)


def own(name, top_only=False):
    """What a module imports of this package, without the package's name: {"probs", "decode.loop"}."""
    inside = {
        x.removeprefix("spec_cascades.") for x in imports(name, top_only) if x.startswith("spec_cascades.")
    }
    known = {m.removeprefix("spec_cascades.") for m in MODULES}
    return {x for x in inside if x in known}


def under(*parts):
    """Modules of these files and folders."""
    return [m for m in MODULES if any(f"{m}.".startswith(f"spec_cascades.{part}.") for part in parts)]


def roots(names):
    return {x.split(".")[0] for x in names}


ALLOWED = {
    "typing": set(),
    "axes": {"typing"},
    "probs": {"typing", "axes"},
    "rules": {"typing", "probs"},
    "verify": {"typing", "axes", "probs", "rules"},
    "int8": {"typing"},
    "cache": {"typing", "axes", "int8"},
    "finding": {"typing"},
    "models": {"typing", "axes", "cache", "finding", "int8", "models"},
    "decode": {"typing", "axes", "probs", "rules", "verify", "cache", "finding", "decode"},
    "sharding": {"typing", "axes", "config", "decode", "models", "sharding"},
    "kernels": {"typing", "axes", "cache", "models", "probs", "rules", "verify", "kernels"},
    "lowering": {"typing", "config", "decode", "models", "probs", "sharding", "lowering"},
}


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_the_heart_imports_downwards_only(part):
    assert under(part)
    for module in under(part):
        assert roots(own(module)) <= ALLOWED[part], module


@pytest.mark.parametrize("part", ["metrics", "tasks", "report"])
def test_measuring_knows_no_model(part):
    assert under(part)
    for module in under(part):
        assert not roots(own(module)) & {"models", "decode", "probs", "rules", "verify", "cache", "engine"}, (
            module
        )
        assert "jax" not in roots(imports(module)), module


def test_nobody_imports_the_command_line():
    for module in MODULES:
        assert "cli" not in own(module), module
        if module not in ["spec_cascades.cli", *under("commands")]:
            assert "commands" not in roots(own(module)), module


LIGHT = (
    *"config cli commands tokenizers metrics report tasks sweep evaluate merging records".split(),
    *"splitting tradeoffs reading gin_files reproduce replay.settings replay.store".split(),
    *"replay.measured replay.table audit.settings audit.cells audit.chi_square audit.table".split(),
    *"trace.tokens trace.showing trace.terminal trace.page simulate costs tuning".split(),
    *"profiling planning hosts".split(),
)


@pytest.mark.parametrize("part", LIGHT)
def test_light_modules_import_nothing_heavy_on_the_way_in(part):
    """Neither themselves nor through what they import when they are imported."""
    todo, seen = under(part), set()
    assert todo
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            # The plot is drawn with matplotlib's own module, which the report imports when it draws.
            allowed = {"matplotlib"} if module == "spec_cascades.report.plot" and part == "report" else set()
            assert not roots(imports(module, True)) & (HEAVY - allowed), (part, module)
            todo += [f"spec_cascades.{x}" for x in own(module, True)] + [module.rpartition(".")[0] or module]


def test_nothing_is_unpickled():
    for module, path in MODULES.items():
        assert not roots(imports(module)) & {"pickle", "dill", "cloudpickle", "shelve", "joblib"}, module
        assert "allow_pickle=True" not in path.read_text(), module
