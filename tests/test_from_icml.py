"""The page of the ICML repository: files in the shape of its losses and miners run after the changes that it names."""

import importlib
import re
from pathlib import Path

import pytest
import torch

import batch_mining
import criteria
import parameters
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/from_icml.md").read_text(encoding="utf-8")
HEAD = '''"""A loss in the shape of the ICML repository."""
import torch
import batchminer
ALLOWED_MINING_OPS = {allowed}
REQUIRES_BATCHMINER = {miner}
REQUIRES_OPTIM = {optim}
class Criterion(torch.nn.Module):
'''
SOFTMAX = (
    HEAD.format(allowed=None, miner=False, optim=True)
    + """
    def __init__(self, opt):
        super().__init__()
        self.par = opt
        self.lr = opt.loss_softmax_lr
        self.class_map = torch.nn.Parameter(torch.ones(opt.n_classes, opt.embed_dim) / 3)
        self.shift = torch.zeros(1).to(opt.device)
    def forward(self, batch, labels, **kwargs):
        logits = torch.nn.functional.linear(batch, self.class_map) + self.shift
        return torch.nn.CrossEntropyLoss()(logits, labels.to(torch.long).to(self.par.device))
"""
)
TRIPLETS = (
    HEAD.format(allowed="list(batchminer.BATCHMINING_METHODS.keys())", miner=True, optim=False)
    + """
    def __init__(self, opt, batchminer):
        super().__init__()
        self.batchminer, self.margin = batchminer, opt.loss_triplet_margin
    def forward(self, batch, labels, **kwargs):
        if isinstance(labels, torch.Tensor): labels = labels.cpu().numpy()
        sampled_triplets = self.batchminer(batch, labels)
        near = torch.stack([(batch[t[0]] - batch[t[1]]).norm() for t in sampled_triplets])
        far = torch.stack([(batch[t[0]] - batch[t[2]]).norm() for t in sampled_triplets])
        return torch.relu(near - far + self.margin).mean()
"""
)
ANGULAR = (
    HEAD.format(allowed=["npair"], miner=True, optim=False)
    + """
    def __init__(self, opt, batchminer):
        super().__init__()
        self.batchminer = batchminer
    def forward(self, batch, labels, **kwargs):
        anchors, positives, negatives = self.batchminer(batch, labels)
        anchors, positives, negatives = batch[anchors], batch[positives], batch[negatives]
        inner = anchors[:, None, :].bmm((negatives - positives[:, None, :]).permute(0, 2, 1)).squeeze(1)
        return torch.log(torch.exp(inner).sum(1) + 1).mean()
"""
)


def changes():
    """(line there, line here) of the page's table."""
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", PAGE[PAGE.index("Lines to change") :], re.MULTILINE)[1:]
    return [(re.findall(r"`([^`]+)`", icml), re.findall(r"`([^`]+)`", ours)) for icml, ours in rows]


def changed(text):
    """A file with the page's changes."""
    table = {icml[0]: ours for icml, ours in changes() if icml}
    text = text.replace("import batchminer\n", "")
    for line in (
        "ALLOWED_MINING_OPS = list(batchminer.BATCHMINING_METHODS.keys())",
        "sampled_triplets = self.batchminer(batch, labels)",
    ):
        text = text.replace(line, table[line][0])
    assert table["….to(self.par.device)"] == ["….to(batch.device)"]
    text = text.replace(".to(self.par.device)", ".to(batch.device)")
    assert table["self.name = ….to(opt.device)"] == ['self.register_buffer("name", …)']
    text = re.sub(r"self\.(\w+) = (.*)\.to\(opt\.device\)", r'self.register_buffer("\1", \2)', text)
    call = "anchors, positives, negatives = self.batchminer(batch, labels)\n"
    return text.replace(call, f"{call}        {table[call.strip()][0]}\n")


@pytest.fixture
def criterion(tmp_path, monkeypatch):
    """A loss of a file in another folder."""

    def make(name, text, **flags):
        (tmp_path / f"{name}.py").write_text(text)
        return criteria.select(name, n_classes=3, embed_dim=4, **flags)

    monkeypatch.setattr(criteria, "__path__", [*criteria.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    return make


X = torch.randn(9, 4, generator=torch.Generator().manual_seed(2))
Y = torch.arange(3).repeat_interleave(3)


def test_the_files_run_after_the_changes(criterion):
    loss = criterion("icml_softmax", changed(SOFTMAX))(X, Y)
    assert loss.item() == pytest.approx(torch.log(torch.tensor(3.0)).item())
    flags = {"loss_triplet_distance": "euclidean"}
    ours = criteria.select("triplet", batchminer=batch_mining.select("all"), **flags)
    theirs = criterion("icml_triplet", changed(TRIPLETS), batchminer=batch_mining.select("all"))
    assert theirs(X, Y).item() == pytest.approx(ours(X, Y).item(), rel=1e-5)
    npair = criteria.select(
        "npair", batchminer=batch_mining.select("npair"), loss_npair_l2=0, arch="conv4", batch_mining="npair"
    )
    angular = criterion("icml_angular", changed(ANGULAR), batchminer=batch_mining.select("npair"), batch_mining="npair")
    values = []
    for loss in (npair, angular):
        torch.manual_seed(1)
        values.append(loss(X, Y).item())
    assert values[1] == pytest.approx(values[0], rel=1e-5)


def test_without_the_changes_one_line_names_the_file(criterion):
    with pytest.raises(
        UserError,
        match="criteria/icml_raw.py cannot be imported: line 3: ModuleNotFoundError: No module named 'batchminer'",
    ):
        criterion("icml_raw", SOFTMAX)


def test_the_differing_defaults_are_those_of_the_page():
    defaults = parameters.read([])
    assert defaults.miner_distance_upper_cutoff is defaults.miner_rho_distance_upper_cutoff is None
    assert defaults.source_path == "./Datasets"
    for flag in ("--source_path", "--miner_distance_upper_cutoff", "--miner_rho_distance_upper_cutoff"):
        assert f"`{flag}`" in PAGE
