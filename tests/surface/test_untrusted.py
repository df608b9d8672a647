"""What others made is read, never run: code and pickles in model folders, paths and links in archives, names in files."""

from __future__ import annotations

import io
import json
import pickle
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.model_files import LLAMA, gguf_bytes, safetensors_bytes
from tests.surface.cli import call
from tests.unit.measure.test_measure_record import record, step
from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.measure.records import import_record, write_record
from whichgpu.workload.model_files.gguf import read_gguf
from whichgpu.workload.model_files.safetensors import read_safetensors
from whichgpu.workload.models import find_model

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "vocab_size": 100, "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}, "trust_remote_code": True,
}  # fmt: skip
CSV = "instance_name,location,price,cpu,memory,gpu_vendor,gpu_count,gpu_name,gpu_memory,spot,disk_size\n" + (
    "g4dn.xlarge,us-east-1,0.526,4,16,nvidia,1,T4,16,False,\n"
)


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "was-run"


@pytest.fixture
def folder(tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder whose code and pickles leave a mark when run."""
    code = f"from pathlib import Path\nPath({str(mark)!r}).touch()\nclass Config: pass\nclass Model: pass\ndef make(): pass\n"
    for name in (
        "evil.py",
        "configuration_evil.py",
        "modeling_evil.py",
        "__init__.py",
        "setup.py",
        "conftest.py",
        "sitecustomize.py",
    ):
        (tmp_path / name).write_text(code)
    for name in ("pytorch_model.bin", "model.pt", "training_args.bin", "model.safetensors.bin"):
        (tmp_path / name).write_bytes(pickle.dumps(Evil(mark)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_traps_would_spring(folder: Path, mark: Path) -> None:
    pickle.loads((folder / "model.pt").read_bytes())
    assert mark.exists()


def test_a_folder_with_code_and_pickles_is_only_read(folder: Path, mark: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for name in (str(folder), "./config.json", "."):
        assert call("fit", name, "--gpu", "L4").code == 0
    assert not mark.exists()


def test_a_folder_of_pickles_alone_is_refused(folder: Path, mark: Path) -> None:
    for name in (str(folder), "./pytorch_model.bin", "./model.pt", "evil", "evil.py", "./evil.py"):
        assert call("fit", name, "--gpu", "L4").code == 2
    assert not mark.exists()


def test_files_never_name_code_to_run(folder: Path, mark: Path) -> None:
    request = {"task": "train", "model": "python:evil:make", "gpu": "L4"}
    (folder / "requests.jsonl").write_text(json.dumps(request) + "\n")
    assert not json.loads(call("estimate", "--requests", "requests.jsonl").out.splitlines()[0])["ok"]
    (folder / "plan.toml").write_text('[[model]]\nname = "python:evil:make"\nrate = "1/s"\n')
    assert call("plan", "plan.toml").code == 2
    (folder / "plan.toml").write_text('[[job]]\ntask = "train"\nmodel = "python:evil:make"\ndeadline = "24h"\n')
    assert call("plan", "plan.toml").code == 2
    (folder / "trace.csv").write_text("time,prompt,output\n0,=cmd(),python:evil:make\n")
    assert call("estimate", "serve", "llama-3.1-8b", "--gpu", "L4", "--trace", "trace.csv").code == 2
    assert not mark.exists()


@pytest.mark.parametrize("model", ["python:evil:make", "hf:org/name", "/etc/passwd", "./config.json", "config.json"])
def test_a_record_names_built_in_models_only(model: str, folder: Path, mark: Path, catalog: Catalog) -> None:
    from datetime import date

    (folder / "config.json").write_text(json.dumps(CONFIG))
    path = write_record(record(step(0.05, model=model)), folder / "theirs.json")
    with pytest.raises(UsageError) as refused:
        import_record(path, catalog, load_calibration(), date(2026, 11, 20), folder / "records")
    assert refused.value.kind == "record-impossible"
    assert not mark.exists()


@pytest.mark.parametrize("shard", ["../out.safetensors", "/etc/out.safetensors", "sub/out.safetensors", "..", ".", "", "out.bin"])
def test_index_may_name_only_files_in_its_own_folder(shard: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out.safetensors").write_bytes(safetensors_bytes())
    index = tmp_path / "in" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(UsageError) as refused:
        read_safetensors(index)
    assert refused.value.kind == "bad-safetensors"


def test_parts_of_a_gguf_are_read_only_from_its_own_folder(tmp_path: Path) -> None:
    part = tmp_path / "m-00001-of-00002.gguf"
    part.write_bytes(gguf_bytes({**LLAMA, "split.count": 2, "split.no": 0, "general.name": "../../etc/passwd"}))
    with pytest.raises(UsageError) as refused:
        read_gguf(part)
    assert str(tmp_path / "m-00002-of-00002.gguf") in str(refused.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path, catalog: Catalog) -> None:
    import os

    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UsageError):
        find_model(str(tmp_path / "config.json"), catalog)


def archive(name: str, mode: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        file.writestr(info, CSV)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "mode"),
    [("../../aws.csv", 0), ("/etc/aws.csv", 0), ("a/../../aws.csv", 0), ("C:\\aws.csv", 0), ("..\\aws.csv", 0),
     ("aws.csv", stat.S_IFLNK | 0o777)],
)  # fmt: skip
def test_links_and_paths_out_of_an_archive_are_refused(name: str, mode: int, tmp_path: Path) -> None:
    (tmp_path / "catalog.zip").write_bytes(archive(name, mode))
    reply = call("catalog", "import", str(tmp_path / "catalog.zip"))
    assert reply.code == 3
    assert "leads out of it" in reply.err
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix) == ["catalog.zip"]


def test_valid_archive_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "catalog.zip").write_bytes(archive("v2/aws.csv"))
    assert call("catalog", "import", str(tmp_path / "catalog.zip")).code == 0


def test_endless_line_is_refused_before_memory_fills(tmp_path: Path) -> None:
    import gzip
    import tracemalloc
    from datetime import date

    from whichgpu.api.prices.store import catalog_import

    with gzip.open(tmp_path / "colo.csv.gz", "wb") as file:
        file.write(b"provider,gpu,price\n")
        for _ in range(64):
            file.write(bytes(1 << 20))
    (tmp_path / "warm.csv").write_text("provider,gpu,price\ncolo,L4,1\n")
    catalog = Catalog()
    catalog_import(tmp_path / "warm.csv", catalog=catalog, today=date(2026, 11, 15), folder=tmp_path / "store")
    tracemalloc.start()
    try:
        answer = catalog_import(tmp_path / "colo.csv.gz", catalog=catalog, today=date(2026, 11, 15), folder=tmp_path / "store")
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()
    assert [row.problem.id for row in answer.snapshots if row.problem] == ["error.import-too-large"]


def test_help_says_that_a_factory_runs_code() -> None:
    assert "python:MODULE:FACTORY, which runs that code (never on a server)" in " ".join(call("fit", "--help").out.split())
