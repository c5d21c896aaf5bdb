"""W&B's offline files, read as what its page would be made of."""

import json
from typing import NamedTuple


def _messages(data):
    """The protobuf messages of a .wandb file, a LevelDB log: blocks of 32 KiB, records cut into first, middle and last
    parts.
    """
    position = 7
    parts = []
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            # the rest of a block is padding
            position += 32768 - position % 32768
            continue
        length = int.from_bytes(data[position + 4 : position + 6], "little")
        kind = data[position + 6]
        parts.append(data[position + 7 : position + 7 + length])
        position += 7 + length
        # kinds of fragments: 1 is a whole record, 4 its last part
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


def _nested(items):
    """W&B's items as a dictionary, nested keys joined by a slash; values are JSON."""
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


class Offline(NamedTuple):
    """One offline file: history by step, definitions of metrics by name, artifacts by type."""

    identity: str
    config: dict
    history: dict
    summary: dict
    metadata: object
    metrics: dict
    artifacts: dict


def offline_runs(folder):
    """The offline files of a run folder, in the order of their start."""
    from wandb.proto import wandb_internal_pb2

    runs = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns):
        run = Offline(None, {}, {}, {}, None, {}, {})
        for data in _messages(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("history"):
                run.history[record.history.step.num] = _nested(record.history.item)
            if record.HasField("summary"):
                run.summary.update(_nested(record.summary.update))
            if record.HasField("metric"):
                run.metrics[record.metric.name or record.metric.glob_name] = record.metric
            artifact = record.artifact if record.HasField("artifact") else record.request.log_artifact.artifact
            if artifact.type:
                run.artifacts.setdefault(artifact.type, []).append(artifact)
            if record.HasField("run"):
                run.config.update(_nested(record.run.config.update))
                run = run._replace(identity=record.run.run_id, metadata=record.run)
        runs.append(run)
    return runs


def read_back(folder):
    """(run id, configuration, history rows by step, summary) of every offline run in a folder, in the order of their
    start.
    """
    runs = offline_runs(folder)
    assert all(run.metadata.run_group == "G" and run.metadata.project == "P" for run in runs)
    return [(run.identity, run.config, run.history, run.summary) for run in runs]
