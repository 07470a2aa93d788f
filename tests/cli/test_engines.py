"""Each command that reads predictions says the same with a real Ray cluster of two nodes as without."""

import json

import pyarrow.parquet as pq
import pytest

from calibrant import Policy
from calibrant.base.cluster import connect
from calibrant.cli import main
from tests.helpers.ray_nodes import nodes
from tests.predictions.test_passes import draw, in_shards

pytest.importorskip("ray", reason="pip install 'calibrant[cluster]'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),  # Ray's own words to itself
]


@pytest.fixture(scope="module")
def cluster():
    """Connected once: workers then know what they have imported from one test to the next."""
    with nodes(2) as found, connect("the tests", found.address):
        yield found


@pytest.fixture
def run(cluster, capsys):
    """A function that runs a command with one engine and gives its exit code and its JSON."""

    def run(engine, *words):
        options = [] if engine == "local" else ["--engine", "ray", "--address", cluster.address]
        with pytest.raises(SystemExit) as stop:
            main([*map(str, words), *options, "--json", "-q"])
        return stop.value.code, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.json"
    Policy.fit(draw(seed=7), target_risk=0.1, by="site", sets=0.9).save(path)
    return path


@pytest.fixture
def files(tmp_path):
    in_shards(tmp_path / "shards", draw(scale=2.0))
    return tmp_path / "shards"


def agree(ours, theirs):
    """Whether two documents are the same, up to the rounding of sums."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for name in ours:
            agree(ours[name], theirs[name])
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            agree(one, other)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    else:
        assert ours == theirs


def test_check(run, policy, files):
    words = ["check", files, "--policy", policy, "--by-group", "site", "--require", "ece <= 5%"]
    words += ["--require", "policy.risk <= 12%"]
    (code, one), (ray_code, ray) = (run(engine, *words) for engine in ("local", "ray"))
    assert code == ray_code
    agree(ray, one)


def test_audit_with_a_policy(run, policy, files):
    words = ["audit", files, "--policy", policy, "-o", "none", "--replicates", "50"]
    (_, one), (_, ray) = (run(engine, *words) for engine in ("local", "ray"))
    assert ray["policy"]["text"] == one["policy"]["text"]
    agree(ray["policy"], one["policy"])


def test_apply(run, policy, files, tmp_path):
    (_, one), (_, ray) = (
        run(engine, "apply", policy, files, "-o", tmp_path / f"{engine}.parquet") for engine in ("local", "ray")
    )
    agree(ray, one)
    assert pq.read_table(tmp_path / "ray.parquet").equals(pq.read_table(tmp_path / "local.parquet"))


def test_monitor(run, policy, files, tmp_path):
    for engine in ("local", "ray"):
        run(engine, "monitor", policy, files, "--state", tmp_path / f"{engine}.json")
    one, ray = (json.loads((tmp_path / f"{engine}.json").read_text()) for engine in ("local", "ray"))
    for state in (one, ray):
        del state["checksum"]
    assert ray["batches"][0]["samples"] == len(draw())
    agree(ray, one)
