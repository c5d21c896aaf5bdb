"""The samplers with a memory through a whole training on the embedded characters."""

import pytest
import torch

import datasampler
import main
import parameters
from datasampler._memory import MemorySampler

SAMPLERS = [name for name, module in datasampler.REGISTRY.modules().items() if issubclass(module.Sampler, MemorySampler)]
CORESETS = [name for name in SAMPLERS if "coreset" in name]


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLERS)
def test_batches_come_from_their_pools_and_the_storage_follows_the_network(name, tmp_path, monkeypatch):
    sampler_class = datasampler.REGISTRY.module(name).Sampler
    created, pools, epochs, updates = [], [], [], []

    def spy(method, keep, of=MemorySampler):
        real = getattr(of, method)

        def spied(self, *args):
            result = real(self, *args)
            keep(self, args, result)
            return result

        monkeypatch.setattr(of, method, spied)

    spy("create_storage", lambda sampler, args, _: created.append(sampler.storage.clone()))
    spy("draw_pools", lambda sampler, args, drawn: pools.append(drawn.clone()), sampler_class)
    spy("precompute_indices", lambda sampler, args, _: epochs.append(sampler.epoch.clone()))
    spy("replace_storage_entries", lambda sampler, args, _: updates.append((args[0].clone(), args[1].clone())))

    run = main.main(parameters.read([
        "--dataset", "glyphs", "--arch", "conv4_normalize", "--embed_dim", "64", "--loss", "multisimilarity", "--data_sampler", name,
        "--bs", "112", "--samples_per_class", "4", "--lr", "0.001", "--decay", "0", "--n_epochs", "2", "--kernels", "1", "--no_train_metrics",
        "--evaluation_metrics", "e_recall@1", "--save_path", str(tmp_path), "--no_records", "--plot_every", "0",
    ]))  # fmt: skip

    storage = run.parts["sampler"].storage
    assert len(created) == 1 and len(pools) == len(epochs) == 2 and created[0].shape == storage.shape == (storage.shape[0], 64)
    trained = torch.cat(epochs)
    assert [sorted(indices.tolist()) for _, indices in updates] == [sorted(batch.tolist()) for batch in trained], (
        "what was chosen is trained"
    )
    for of_epoch, chosen in zip(pools, epochs, strict=True):
        anchors = chosen.view(len(chosen), -1, 4)[:, :, 0] if name in CORESETS else chosen
        of_epoch = of_epoch.expand(len(chosen), -1)
        assert all(torch.isin(batch, pool).all() for pool, batch in zip(of_epoch, anchors, strict=True))
    expected = created[0].clone()
    for embeddings, indices in updates:
        for embedding, index in zip(embeddings, indices, strict=True):
            expected[index] = embedding
    assert torch.equal(storage, expected)
    assert not torch.equal(epochs[0], epochs[1])
    assert run.state["last"]["test"]["e_recall@1"] > 0.75
