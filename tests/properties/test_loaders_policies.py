"""Whatever bytes a policy, a sketch, an ONNX model or a file of inputs has: a value, or a ValueError of one line."""

import functools
import json
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from calibrant import Policy, Predictions
from calibrant.export import export_onnx
from calibrant.export.inputs import read_inputs
from calibrant.metrics import ConfidenceSketch
from calibrant.selective.policy.file import from_dict, to_dict

onnx = pytest.importorskip("onnx")

LONGEST = 10.0  # seconds, on a loaded machine
quickly = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


# ---- valid files -----------------------------------------------------------------------------------------------------
@functools.cache
def policies():
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((500, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    groups = {"site": rng.choice(["a", "b"], 500)}
    data = Predictions.from_logits(logits, labels, class_names=list("wxyz"), groups=groups)
    fitted = [
        Policy.fit(data, 0.3, calibrator=calibrator)
        for calibrator in ("none", "temperature", "ensemble", "vector", "isotonic")
    ]
    fitted.append(Policy.fit(data, 0.3, group="site", calibrator="none", score="normalised_max_logit"))
    fitted += [Policy.fit(data, 0.3, calibrator="none", sets=0.9, set_method=m) for m in ("raps", "class-conditional")]
    fitted.append(Policy.fit(data, 0.4, group="site", calibrator="none", by_class=True))
    fitted.append(Policy.fit(data, calibrator="none", costs=1 - np.eye(4), target_cost=0.6))
    fitted.append(Policy.fit(data, calibrator="none", promise="recall=x:0.8"))
    return [json.dumps(to_dict(policy), indent=2).encode() for policy in fitted]


def content(make):
    """The bytes of a file that something writes."""

    @functools.cache
    def read(folder):
        path = folder / "valid"
        make(path)
        return path.read_bytes()

    return read


def save_sketch(path):
    generator = torch.Generator().manual_seed(0)
    sketch = ConfidenceSketch()
    sketch.update(torch.randn(60, 3, generator=generator), torch.randint(0, 3, (60,), generator=generator))
    sketch.save(path)


def save_model(path):
    helper, numbers = onnx.helper, np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", n]) for name, n in (("x", 4), ("z", 3))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="first"), helper.make_node("Identity", ["y"], ["z"])]
    weights = [onnx.numpy_helper.from_array(numbers, "w")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], weights)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    path.write_bytes(model.SerializeToString())


def save_inputs(path):
    with open(path, "wb") as file:
        np.savez(file, x=np.arange(12.0).reshape(3, 4), n=np.arange(3))


SKETCH, MODEL, INPUTS = content(save_sketch), content(save_model), content(save_inputs)


# ---- damage ----------------------------------------------------------------------------------------------------------
@st.composite
def damages(draw):
    """What happens to a file: a list of places (as shares of its length), each with what is done there."""
    place = st.floats(0, 1, exclude_max=True)
    change = st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 7)),
        st.tuples(st.just("set"), st.sampled_from([0, 1, 9, 10, 34, 48, 57, 91, 123, 127, 128, 255])),
        st.tuples(st.just("cut"), st.integers(1, 40)),
        st.tuples(st.just("end"), st.just(0)),
        st.tuples(st.just("repeat"), st.integers(1, 200)),
        st.tuples(st.just("insert"), st.binary(min_size=1, max_size=24)),
    )
    return draw(st.lists(st.tuples(place, change), min_size=1, max_size=5))


def damaged(data, changes):
    data = bytearray(data)
    for share, (kind, value) in changes:
        at = int(share * len(data))
        if not data:
            break
        if kind == "flip":
            data[at] ^= 1 << value
        elif kind == "set":
            data[at] = value
        elif kind == "cut":
            del data[at : at + value]
        elif kind == "end":
            del data[at:]
        elif kind == "repeat":
            data[at:at] = data[at : at + value]
        else:
            data[at:at] = value
    return bytes(data)


def attempt(load, path):
    """What a loader gives, or None if it refuses as it should."""
    start = time.monotonic()
    try:
        return load(path)
    except ValueError as error:
        text = str(error)
        assert "\n" not in text
        assert 0 < len(text) < 1000
    finally:
        assert time.monotonic() - start < LONGEST
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("loaders")


# ---- policies --------------------------------------------------------------------------------------------------------
@given(st.integers(0, 5), damages())
@quickly
def test_damaged_policies(folder, which, changes):
    path = folder / "policy.json"
    path.write_bytes(damaged(policies()[which], changes))
    policy = attempt(Policy.load, path)
    if policy is not None:
        groups = None if policy.groups is None else list(policy.groups)[:1] * 4
        assert np.isfinite(policy.decide(1e4 * np.eye(4), groups).confidence).all()


@given(st.integers(0, 5), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
@quickly
def test_a_flipped_bit_is_never_another_policy(folder, which, share, bit):
    data, path = policies()[which], folder / "policy.json"
    path.write_bytes(damaged(data, [(share, ("flip", bit))]))
    policy = attempt(Policy.load, path)
    assert policy is None or to_dict(policy) == json.loads(data)


numbers = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([10**400, -(10**400), 5e-324])
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=6), st.sampled_from(["msp", "logits", "nothing"])),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=8,
)


@given(st.integers(0, 5), st.data(), values)
@example(1, None, 5e-324)
@quickly
def test_entries_of_any_value(folder, which, data, value):
    """Any entry of a policy replaced by anything that JSON can say."""
    fields = json.loads(policies()[which])
    del fields["checksum"]
    inner, name = fields, "calibrator" if data is None else data.draw(st.sampled_from(sorted(fields)))
    while data is not None and isinstance(inner[name], dict) and inner[name] and data.draw(st.booleans()):
        inner = inner[name]
        name = data.draw(st.sampled_from(sorted(inner)))
    inner[name] = value
    policy = attempt(from_dict, fields)
    if policy is not None:
        policy.save(folder / "again.json")
        assert to_dict(Policy.load(folder / "again.json")) == to_dict(policy)


@given(values)
@quickly
def test_values_that_are_no_policies(value):
    assert attempt(from_dict, value) is None


# ---- sketches --------------------------------------------------------------------------------------------------------
@given(damages())
@quickly
def test_damaged_sketches(folder, changes):
    path, data = folder / "s.safetensors", SKETCH(folder)
    path.write_bytes(damaged(data, changes))
    sketch = attempt(ConfidenceSketch.load, path)
    assert sketch is None or sketch.summary().samples == 60


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
@quickly
def test_a_flipped_bit_is_never_another_sketch(folder, share, bit):
    path, data = folder / "s.safetensors", SKETCH(folder)
    path.write_bytes(data)
    expected = ConfidenceSketch.load(path)
    path.write_bytes(damaged(data, [(share, ("flip", bit))]))
    sketch = attempt(ConfidenceSketch.load, path)
    for name in ("cells", "base_counts", "base_sums", "moments"):
        assert sketch is None or torch.equal(getattr(sketch, name), getattr(expected, name))


# ---- models and their inputs -----------------------------------------------------------------------------------------
@given(damages())
@quickly
def test_damaged_models(folder, changes):
    source, path = folder / "m.onnx", folder / "out.onnx"
    source.write_bytes(damaged(MODEL(folder), changes))
    plain = policies()[0].replace(b'"classes": 4', b'"classes": 3')
    fields = {**json.loads(plain), "class_names": None}
    del fields["checksum"]
    path.unlink(missing_ok=True)
    done = attempt(lambda model: export_onnx(from_dict(fields), path, onnx_model=model), source)
    assert path.exists() == (done is not None)


@given(damages())
@quickly
def test_damaged_inputs(folder, changes):
    path, data = folder / "x.npz", INPUTS(folder)
    path.write_bytes(damaged(data, changes))
    found = attempt(read_inputs, path)
    if found is not None:
        assert all(array.dtype.kind in "fiub" for array in found.values())


@given(st.binary(max_size=300))
@example(b"\x93NUMPY\x01\x00\xff\xff")
@example(b"PK\x05\x06" + bytes(18))
@quickly
def test_bytes_of_any_kind(folder, data):
    path = folder / "anything"
    path.write_bytes(data)
    assert attempt(Policy.load, path) is None
    assert attempt(ConfidenceSketch.load, path) is None
    policy = from_dict(json.loads(policies()[0]))
    assert attempt(lambda model: export_onnx(policy, folder / "no.onnx", onnx_model=model), path) is None
    attempt(read_inputs, path)
