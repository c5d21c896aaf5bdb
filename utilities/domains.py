"""Classes of several domains, of which each has a classifier of its own:
foreign classes are as if they were not there.
"""

import torch


class OwnDomain(torch.nn.Module):
    """Hides from each sample the classes of other domains, once `set_domains` says which are these;
    before, it hides nothing.

    Args:
        separate: whether each domain is to have a classifier of its own (`--separate_classifiers`).
    """

    def __init__(self, separate: bool):
        super().__init__()
        self.separate = separate
        self.domains = None

    def set_domains(self, domains: torch.Tensor) -> None:
        """The number of each class's domain, `(C,)`."""
        self.domains = domains

    def forward(self, logits: torch.Tensor, labels: torch.Tensor, hidden: float = -torch.inf) -> torch.Tensor:
        """`logits` `(B, C)`, `hidden` where the class is of another domain than that of the sample's label `(B,)`."""
        if self.domains is None:
            return logits
        domains_of_samples = self.domains.index_select(0, labels)
        return logits.masked_fill(domains_of_samples[:, None] != self.domains, hidden)

    def compared(self, labels: torch.Tensor) -> torch.Tensor | None:
        """0 and 1 for each class `(C,)`: whether a sample's domain has it; None where nothing is hidden."""
        if self.domains is None:
            return None
        domains_of_samples = self.domains.index_select(0, labels)
        return (domains_of_samples[:, None] == self.domains).any(0)
