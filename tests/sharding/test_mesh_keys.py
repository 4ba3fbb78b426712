"""`mesh` at the top of a configuration is short for `models.mesh`."""

import pytest

from spec_cascades.config import ConfigError, Generate, Mesh, Models, Sweep, load

POINTS = "task: gsm8k\noutput: out\n"


def test_overrides_fill_the_mesh_of_the_models():
    assert load(Generate, None, ["mesh.model=4"]).models == Models(mesh=Mesh(1, 4))
    assert load(Generate, None, ["mesh={data: 2, model: 4, drafter: 1}"]).models.mesh == Mesh(2, 4, 1)
    assert load(Generate, None, ["models.mesh.data=2"]).models.mesh == Mesh(2)
    assert load(Generate, None, ["models.chat=true"]).models.mesh is None


def test_a_file_may_name_it_either_way_and_an_override_adds_to_it(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(POINTS + "mesh: {data: 2, model: 4}\n")
    assert load(Sweep, path).models.mesh == Mesh(2, 4)
    assert load(Sweep, path, ["mesh.drafter=2"]).models.mesh == Mesh(2, 4, 2)
    assert load(Sweep, path, ["mesh=null"]).models.mesh is None
    path.write_text(POINTS + "models: {dtype: float32, mesh: {data: 2, model: 4}}\n")
    assert load(Sweep, path, ["mesh.data=1"]).models == Models(dtype="float32", mesh=Mesh(1, 4))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("mesh.modl=4", r"unknown key 'models.mesh.modl' \(did you mean 'model'\?\)"),
        ("mesh.model=0", "models.mesh.model: 0 must be 1 or more"),
        ("mesh={model: 8, drafter: 3}", "models.mesh.drafter: 3 must be a divisor of model, 8, or null"),
        ("mesh=8", "models.mesh: 8 is not a mapping"),
    ],
)
def test_a_bad_mesh_names_the_key(override, message):
    with pytest.raises(ConfigError, match=message):
        load(Generate, None, [override])
