"""What every loss shares: parameters, several gradients at once, the registry; a loss is written down in four files."""

import ast
from pathlib import Path

import pytest
import torch

from calibrant import losses as L
from calibrant.losses import describe, get, names
from calibrant.losses.base import COMMON
from tests.helpers.errors import facts
from tests.helpers.loss_cases import batch, gradient


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: L.LabelSmoothing(1.5), facts("alpha", "1.5")),
        (lambda: L.Focal(-1.0), facts("gamma", "-1.0")),
        (lambda: L.ACLS(variant="papr"), facts("variant", "papr", "released")),
        (lambda: L.ACLS(gradient="eq12"), facts("eq12", "paper")),
        (lambda: L.MbLS(margin=-1.0), facts("margin", "-1.0")),
        (lambda: L.CrossEntropy(reduction="avg"), facts("reduction", "avg", "mean")),
        (lambda: L.CrossEntropy(weight=torch.tensor([-1.0])), facts("weight")),
        (lambda: L.MMCE(weighted="no"), facts("weighted", "no")),
        (lambda: L.MbLS(strength=float("inf")), facts("strength", "inf")),
        (lambda: L.CrossEntropy(ignore_index=1.5), facts("ignore_index", "1.5")),
        (lambda: L.LabelSmoothing(torch.tensor([2.0, 0.1]))(*batch(2, 5)), facts("alpha", "0.1", "2")),
        (lambda: L.SoftTargetCrossEntropy(True, weight=torch.ones(5)), "it takes no class weights"),
        (lambda: L.get("nope"), facts("nope")),
        (lambda: L.get("acls", margn=3), facts("acls", "margn")),
        (lambda: L.CrossEntropy(weight=torch.ones(3))(*batch()), "has weights for 3 classes, the logits have 5"),
    ],
)
def test_bad_parameters(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_several_upstream_gradients_at_once():
    z, y = batch()
    upstream = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    for name in ("ls", "acls", "mdca"):
        leaf = z.clone().requires_grad_()
        (stacked,) = torch.autograd.grad(L.get(name)(leaf, y), leaf, upstream, is_grads_batched=True)
        torch.testing.assert_close(stacked[2], 3 * gradient(L.get(name), z, y))


def test_classes_that_are_last_are_said_to_be_moved():
    """The sentence's own remedy gives torch's cross-entropy."""
    logits, labels = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    with pytest.raises(ValueError, match=r"pass logits\.transpose\(1, 2\)$"):
        L.get("ce")(logits, labels)
    with pytest.raises(ValueError, match=facts("-1")):
        L.get("ce")(torch.randn(2, 3, 5, 7), torch.randint(7, (2, 3, 5)))
    expected = torch.nn.functional.cross_entropy(logits.reshape(-1, 7), labels.reshape(-1))
    torch.testing.assert_close(L.get("ce")(logits.transpose(1, 2), labels), expected)


def test_registry_tells_paper_equation_and_directions():
    assert L.names()[:2] == ("ce", "ls")
    for name in L.names():
        method = L.describe(name)
        assert method.paper
        assert method.equation
        assert set(method.hyper) == set(method.defaults())
        assert isinstance(L.get(name), method.loss)
    assert repr(L.get("acls", margin=6.0, reduction="sum")) == "ACLS(margin=6.0, reduction='sum')"
    assert repr(L.CrossEntropy(weight=torch.ones(3))) == "CrossEntropy(weight=[3 values])"


def test_defaults_are_those_of_the_published_tables():
    expected = {
        "acls": {"margin": 10, "lambda1": 0.1, "lambda2": 0.01, "variant": "released", "gradient": "eq13"},
        "mbls": {"margin": 10, "strength": 0.1, "variant": "released"},
        "flsd": {"gamma": 3, "variant": "released"},
        "mmce": {"strength": 1, "kernel_width": 0.4, "weighted": True, "variant": "released"},
        "ecp": {"strength": 0.1, "variant": "paper"},
        "mdca": {"strength": 1, "base": "ce", "variant": "released"},
        "cpc": {"lambda1": 0.1, "lambda2": 1.0, "variant": "released"},
        "crl": {"strength": 1, "score": "msp", "variant": "released"},
        "lr": {"alpha": 0.1},
        "ls": {"alpha": 0.05, "spread": "all"},
        "focal": {"gamma": 3},
    }
    for name, parameters in expected.items():
        assert parameters.items() <= L.describe(name).defaults().items(), name


ODD = [
    "x",
    "",
    None,
    [],
    {},
    object(),
    1 + 2j,
    b"x",
    float("nan"),
    float("inf"),
    10**400,
    -(10**400),
    "9" * 5000,
    (1, 2),
]


#: Words of Python and PyTorch, which say nothing to a user.
JARGON = (
    "iterable",
    "unexpected keyword",
    "has no attribute",
    "unhashable",
    "dtype of",
    "invalid data type",
    "argument",
)


@pytest.mark.parametrize("name", names())
def test_every_parameter_refuses_in_words(name):
    for parameter in (*describe(name).defaults(), *COMMON):
        for value in ODD:
            try:
                get(name, **{parameter: value})
            except ValueError as error:
                text = str(error)
            else:
                continue
            assert text.startswith(parameter), (parameter, value)
            assert not any(word in text for word in JARGON), text
            assert len(text) < 250, text


@pytest.mark.parametrize("name", names())
def test_unknown_parameters_are_named_with_those_that_are_known(name):
    with pytest.raises(ValueError, match=f"loss '{name}' has no parameter 'foo': expected one of .*reduction"):
        get(name, foo=1)


ROOT = Path(__file__).parents[2]
#: Code that names losses because it shows, compares or builds on some of them: choices, not lists to be kept up.
CHOICES = {
    "src/calibrant/cli/demo.py": "the losses that the demonstration draws",
    "src/calibrant/cli/train.py": "soft labels are the recipe's own, other losses train on plain ones",
    "src/calibrant/cli/lens.py": "the losses that are drawn unless others are asked for",
    "src/calibrant/cli/options.py": "examples in help texts and messages",
    "src/calibrant/cli/compare.py": "the reference that others are tested against",
    "src/calibrant/experiments": "the demonstration, ALS on cross-entropy, soft labels that are no method of their own",
    "src/calibrant/training": "cross-entropy is the default; which losses need the size of the data set",
    "src/calibrant/data": "a field of that name",
    "docs_tools/method_pages.py": "pictures that need a batch or a margin",
    "docs_tools/table2.py": "margins at which these logits show something",
    "tests/reference/smoothing.py": "ACLS Table 2",
    "tests/helpers/result_rows.py": "rows of a made-up table of results",
    "tests/helpers/recipe_data.py": "recipes of the tests",
    "tests/helpers/mask_runs.py": "runs of the tests",
    "src/calibrant/posthoc/temperature.py": "grids called after the papers that use them",
    "tests/properties": "limits that some losses have in common",
}


def code_names(path):
    """Identifiers and strings of a file, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.alias):
            yield node.id if isinstance(node, ast.Name) else node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_a_loss_is_written_down_in_four_files():
    """Its own, a line of ``losses/__init__.py``, its reference and its paper; nothing else keeps a list of losses."""
    package, places = "src/calibrant/losses", {}
    for folder in ("src", "docs_tools", "tests/reference", "tests/helpers", "tests/properties"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not any(name.startswith(choice) for choice in CHOICES):
                places[name] = set(code_names(path))
    for name in names():
        method = describe(name)
        named = {place for place, words in places.items() if {name, method.loss.__name__} & words}
        losses = {place for place in named if place.startswith(package)}  # one loss may build on another
        assert f"src/{method.loss.__module__.replace('.', '/')}.py" in losses
        assert f"{package}/__init__.py" in losses
        assert named - losses == {"tests/reference/losses.py"}, name
        assert f"{{{method.paper}," in (ROOT / "references.bib").read_text(encoding="utf-8")
