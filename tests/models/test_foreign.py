"""Code and weights from outside: nothing runs without a yes, timm's networks are its own, weights fit or do not."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from calibrant.base import torchvision_operators
from calibrant.models import build, names
from calibrant.models.foreign import UntrustedCodeError, foreign_code, head_of, require_trust
from tests.helpers.errors import facts
from tests.helpers.networks import RUN, SEGMENTATION, on_meta, saved

torchvision_operators.ensure()
import timm  # noqa: E402
import torchvision  # noqa: E402

PAYLOAD = """
from pathlib import Path
Path("executed").touch()
from torch import nn
def make(**options):
    Path("called").touch()
    return nn.Linear(2, 3)
"""


@pytest.fixture
def payload(tmp_path, monkeypatch):
    """A module in the current folder that leaves a file when it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payload_module.py").write_text(PAYLOAD)
    yield tmp_path
    sys.modules.pop("payload_module", None)


def test_a_factory_is_not_imported_without_a_yes(payload):
    with pytest.raises(UntrustedCodeError, match="--trust-code") as caught:
        build("payload_module:make", trust_code=False)
    assert str(payload / "payload_module.py") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path.name for path in payload.iterdir()} == {"payload_module.py"}
    assert "payload_module" not in sys.modules
    assert str(payload) not in sys.path
    assert isinstance(build("payload_module:make"), nn.Linear)  # in a program of one's own it is
    assert (payload / "called").exists()


@pytest.mark.parametrize(
    "name",
    [
        "torch.hub:load", "torchvision.models:resnet18", "os:system", "builtins:exec", "calibrant.models:build",
        "no_such_package.module:make", "timm/hf-hub:someone/model", "timm/HF_HUB:someone/model",
        "timm/local-dir:/tmp/model", "timm/someone/model",
    ],
)  # fmt: skip
def test_what_is_not_in_a_registry_is_foreign(name):
    assert name.partition("/")[2 if name.startswith("timm/") else 0].partition(":")[0] in foreign_code(name)
    with pytest.raises(UntrustedCodeError):
        build(name, trust_code=False)


@pytest.mark.parametrize("option", ["checkpoint_path", "model_name", "cache_dir", "pretrained_cfg",
                                    "pretrained_cfg_overlay", "pretrained_strict"])  # fmt: skip
def test_options_that_lead_timm_elsewhere_are_foreign(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UntrustedCodeError, match=facts(option)):
        build("timm/test_resnet", trust_code=False, **{option: "x.pth"})


def test_registries_need_no_trust():
    assert [name for name in names() if foreign_code(name) is not None] == []
    assert foreign_code("timm/resnet18.a1_in1k", {"pretrained": True, "in_chans": 1}) is None
    require_trust("mlp", {}, False)


@pytest.mark.parametrize("name", [":", "module:", ":function"])
def test_a_name_that_can_import_nothing_is_no_name(name):
    assert foreign_code(name) is None
    with pytest.raises(ValueError, match=facts(name)):
        build(name, trust_code=False)


@pytest.mark.parametrize("ending", ["raise SystemExit(0)", "import sys; sys.exit('bye')", "raise BaseException('odd')"])
@pytest.mark.parametrize("where", ["on import", "when called", "on access"])
def test_code_that_ends_the_process_is_an_error(ending, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = {
        "on import": ending,
        "when called": f"def make(): {ending}",
        "on access": f"def __getattr__(name):\n    if not name.startswith('__'): {ending}",
    }[where]
    Path("ending_module.py").write_text(text + "\n")
    try:
        with pytest.raises(ValueError, match=facts("ending_module:make")):
            build("ending_module:make")
    finally:
        sys.modules.pop("ending_module", None)
    assert str(tmp_path) not in sys.path


def test_a_request_to_end_is_no_error_of_the_model(tmp_path, monkeypatch):
    """SIGTERM becomes a SystemExit with 143 wherever the process is."""
    monkeypatch.chdir(tmp_path)
    Path("asked_module.py").write_text("def make(): raise SystemExit(143)\n")
    with pytest.raises(SystemExit):
        build("asked_module:make")
    sys.modules.pop("asked_module", None)


class Hostile:
    def __reduce__(self):
        return Path.touch, (Path("executed"),)


def test_weights_in_torchs_cache_are_not_unpickled(tmp_path, monkeypatch):
    """A file in the place of torchvision's download: torch.hub would unpickle it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    cache = tmp_path / "home" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save({"fc.weight": Hostile()}, cache / "resnet18-f37072fd.pth")
    torch.load(cache / "resnet18-f37072fd.pth", weights_only=False)
    Path("executed").unlink()  # so it is hostile indeed
    with pytest.raises(ValueError, match=facts("s weights", "IMAGENET1K_V1")):
        build("resnet18", weights="torchvision:IMAGENET1K_V1")
    assert not Path("executed").exists()


def test_a_factory_gives_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "from torch import nn\ndef make(num_classes=4, width=3): return nn.Linear(width, num_classes)\n"
    Path("own_factory.py").write_text(text + "ready = nn.ReLU()\nnumber = 3\ndef text(): return 'x'\n")
    assert build("own_factory:make").out_features == 4
    model = build("own_factory:make", num_classes=5, width=2)
    assert build("own_factory:make", num_classes=5, width=2, weights=saved(Path("a.pt"), model)).bias.equal(model.bias)
    assert isinstance(build("own_factory:ready"), nn.ReLU)
    for name, options, words in [
        ("own_factory:", {}, "own_factory:"),
        ("no_such_module:make", {}, "no_such_module"),
        ("own_factory:nothing", {}, "nothing"),
        ("own_factory:number", {}, "int"),
        ("own_factory:text", {}, "str"),
        ("own_factory:make", {"depth": 3}, "depth"),
        ("own_factory:make", {"stem": "32"}, "stem"),
        ("own_factory:ready", {"num_classes": 3}, "num_classes"),
    ]:
        with pytest.raises(ValueError, match=facts(name.partition(":")[0], words)):
            build(name, **options)
    sys.modules.pop("own_factory", None)


@pytest.mark.parametrize(
    ("file", "wrapped"),
    [
        ("a.safetensors", lambda state: state),
        ("a.pt", lambda state: state),
        ("a.pth", lambda state: {"epoch": 3, "state_dict": state}),
        ("b.pt", lambda state: {f"module.{key}": value for key, value in state.items()}),
        ("c.pt", lambda state: {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}),
    ],
)
def test_weights_come_back(tmp_path, file, wrapped):
    model = build("resnet20", num_classes=7, seed=1)
    model(torch.randn(5, 3, 8, 8))  # moves batch norm's running values
    images = torch.randn(2, 3, 8, 8)
    again = build("resnet20", num_classes=7, weights=str(saved(tmp_path / file, model, wrapped)), seed=2)
    assert torch.equal(again.eval()(images), model.eval()(images))


def test_the_head_is_left_out_on_demand(tmp_path):
    model = build("small_cnn", num_classes=9, seed=1)
    path = saved(tmp_path / "a.safetensors", model)
    with pytest.raises(ValueError, match=facts("9", "4", "num_classes")):
        build("small_cnn", num_classes=4, weights=path)
    made = build("small_cnn", num_classes=4, seed=2, weights=path, head="drop")
    assert torch.equal(made[0].weight, model[0].weight)
    assert torch.equal(made[14].weight, build("small_cnn", num_classes=4, seed=2)[14].weight)
    headless = saved(tmp_path / "b.pt", model, lambda state: {k: v for k, v in state.items() if k[:2] != "14"})
    assert torch.equal(build("small_cnn", weights=headless, head="drop")[0].weight, model[0].weight)
    with pytest.raises(ValueError, match=facts("b.pt", "14")):
        build("small_cnn", weights=headless)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in [*RUN, *SEGMENTATION, *names("detection")] if "101" not in name])
def test_the_head_is_all_that_changes_with_the_classes(name):
    few, many = (on_meta(name, num_classes=classes).state_dict() for classes in (5, 6))
    changed = {key.rpartition(".")[0] for key in few if few[key].shape != many[key].shape}
    assert changed == set(head_of(on_meta(name)))


def test_files_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hostile.pt").write_bytes(pickle.dumps(Hostile()))
    pickle.loads(Path("hostile.pt").read_bytes())
    Path("executed").unlink()  # so it is hostile indeed
    torch.save({"fc.weight": Hostile()}, "packed.pt")
    torch.save({"fc": 3}, "number.pt")
    Path("broken.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    model = build("resnet20")
    whole = saved(Path("whole.pt"), model).read_bytes()
    Path("half.pt").write_bytes(whole[: len(whole) // 2])
    saved(Path("keys.pt"), model, lambda state: {f"net.{key}": value for key, value in state.items()})
    saved(Path("nan.pt"), model, lambda state: state | {"fc.bias": torch.full([10], torch.nan)})
    saved(Path("grey.pt"), build("resnet20", in_channels=1))
    for file, words in [
        ("none.pt", ()),
        ("hostile.pt", ()),
        ("packed.pt", ()),
        ("number.pt", ()),
        ("broken.safetensors", ()),
        ("half.pt", ()),
        ("keys.pt", ("fc.bias", "net.fc.bias")),
        ("nan.pt", ("fc.bias",)),
        ("grey.pt", ("trunk.conv1.weight", "[16, 1, 3, 3]", "[16, 3, 3, 3]")),
    ]:
        with pytest.raises(ValueError, match=facts(file, *words)) as caught:
            build("resnet20", weights=file)
        assert "\n" not in str(caught.value)
    assert not Path("executed").exists()


def test_weights_of_torchvision_go_through_torchvision(monkeypatch):
    asked = []
    state = torchvision.models.resnet18().state_dict()
    given = lambda self, *_, **__: asked.append(self.name) or state  # noqa: E731
    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", given)
    model = build("resnet18", num_classes=5, weights="torchvision:IMAGENET1K_V1", head="drop")
    assert asked == ["IMAGENET1K_V1"]
    assert torch.equal(model.layer4[1].conv2.weight, state["layer4.1.conv2.weight"])


#: The smallest of several families, which timm has for tests.
SMALL = ["test_resnet", "test_vit", "test_efficientnet", "test_convnext"]


def same(first: nn.Module, second: nn.Module) -> bool:
    ours, theirs = first.state_dict(), second.state_dict()
    return list(ours) == list(theirs) and all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("name", SMALL)
def test_the_network_is_timms(name):
    model = build(f"timm/{name}", num_classes=7, in_chans=2, seed=3)
    torch.manual_seed(3)
    theirs = timm.create_model(name, num_classes=7, in_chans=2)
    assert type(model) is type(theirs)
    assert model.training
    assert same(model, theirs)
    assert not same(build(f"timm/{name}", num_classes=7, in_chans=2, seed=4), theirs)
    images = torch.randn(3, 2, 160, 160)
    logits = model.eval()(images)
    assert logits.shape == (3, 7)
    torch.testing.assert_close(logits, theirs.eval()(images))


def test_a_name_may_carry_the_tag_of_weights_that_are_not_loaded():
    assert same(build("timm/test_resnet.r160_in1k", seed=1), build("timm/test_resnet", seed=1))


@pytest.mark.parametrize("name", SMALL)
def test_the_head_is_the_layer_that_timm_names(name):
    model = timm.create_model(name)
    assert head_of(model) == (model.default_cfg["classifier"],)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("timm/resnet11t", {}, facts("timm", "resnet11t", "resnet14t")),
        ("timm/Resnet_18", {}, facts("timm", "Resnet_18", "resnet18")),
        ("timm/", {}, facts("timm")),
        ("timm/resnet10t.none", {}, facts("timm/resnet10t.none", "RuntimeError")),
        ("timm/test_resnet", {"depth": 3}, facts("timm/test_resnet", "TypeError", "depth")),
        ("timm/test_resnet", {"stem": "32"}, facts("32", "stem='32'")),
        ("timm/test_resnet", {"num_classes": 1}, facts("num_classes", "1")),
        ("timm/test_resnet", {"weights": "torchvision:V1"}, facts("torchvision")),
    ],
)
def test_what_timm_does_not_have_is_refused_in_one_sentence(name, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        build(name, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("No module named 'yaml'", name="yaml"), facts("yaml")),
        (ImportError("cannot import\nname 'x'"), facts("'x'")),
        (RuntimeError("operator torchvision::nms does not exist"), facts("timm", "torchvision::nms")),
        (ModuleNotFoundError("No module named 'timm'", name="timm"), facts("timm/test_resnet")),
    ],
)
def test_a_timm_that_cannot_be_imported_says_why(monkeypatch, error, words):
    monkeypatch.delitem(sys.modules, "timm")

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "timm":
                raise error

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.raises(ValueError, match=words) as caught:
        build("timm/test_resnet")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_fresh_interpreter_builds_one():
    """timm imports torchvision, whose operators may not load: nothing here has called `ensure` before."""
    text = """
import sys, torch
from calibrant.models import build
assert "timm" not in sys.modules and "torchvision" not in sys.modules
model = build("timm/test_resnet", num_classes=5, in_chans=1, seed=0).eval()
assert "torchvision" in sys.modules
print(list(model(torch.zeros(2, 1, 64, 64)).shape))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("[2, 5]\n", "")
