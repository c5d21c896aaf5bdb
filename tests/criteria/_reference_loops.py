"""Criteria with a reference as obvious loops: what tests/criteria/test_reference.py holds them against.

`FORMULAS[name](criterion, x, r, (positives, negatives), (labels, others, own))`: anchors `x`, reference `r`, of each anchor the rows of
its positives and of its negatives. Numbers such as margins are read from the criterion.
"""

import math

import torch

from utilities.reference import Reference
from utilities.tuples import Classes

# flags under which a case has active and inactive terms, or terms that are off by default
FLAGS = {
    "snr": {"loss_snr_reg_lambda": 0.3},
    "snr_contrastive": {"loss_snr_contrastive_regularizer_weight": 0.2},
    "npair": {"loss_npair_l2": 0.1},
    "margin": {"loss_margin_nu": 0.2},
    "smoothap": {"loss_smoothap_temperature": 0.2},
    "recallatk": {"loss_recallatk_temperature": 0.2, "loss_recallatk_ks": [1, 2, 5]},
    "histogram": {"loss_histogram_nbins": 9},
}


def partners(labels, others, own) -> tuple[list[list[int]], list[list[int]]]:
    """Of each anchor the rows of the reference that are its positives, and its negatives; its own image is neither."""
    own = [-1] * len(labels) if own is None else [int(row) for row in own]
    positives, negatives = [], []
    for a, label in enumerate(labels):
        rows = [j for j in range(len(others)) if j != own[a]]
        positives.append([j for j in rows if others[j] == label])
        negatives.append([j for j in rows if others[j] != label])
    return positives, negatives


def distance(u, v):
    return (u - v).square().sum().sqrt()


def cosine(u, v):
    return u @ v / u.norm() / v.norm()


def mean(terms):
    return sum(terms) / len(terms) if terms else 0.0


def mean_active(terms):
    terms = [term for term in terms if term > 0]
    return mean(terms)


def triplets(found):
    """(a, p, n), as the stand-in miner gives them."""
    return [(a, p, n) for a, (ps, ns) in enumerate(zip(*found, strict=True)) for p in ps for n in ns]


def sets(found):
    return [(a, ps, ns) for a, (ps, ns) in enumerate(zip(*found, strict=True)) if ps and ns]


def contrastive(c, x, r, found, context):
    all_triplets = triplets(found)
    far = [torch.relu(distance(x[a], r[p]) - c.pos_margin) for a, p, _ in all_triplets]
    return mean(far) + mean([torch.relu(c.neg_margin - distance(x[a], r[n])) for a, _, n in all_triplets])


def triplet(c, x, r, found, context):
    return mean([torch.relu(distance(x[a], r[p]) ** 2 - distance(x[a], r[n]) ** 2 + c.margin) for a, p, n in triplets(found)])


def margin(c, x, r, found, context):
    terms, betas = [], 0.0
    for a, p, n in triplets(found):
        beta = c.beta[context[0][a]]
        terms += [torch.relu(distance(x[a], r[p]) - beta + c.margin), torch.relu(beta - distance(x[a], r[n]) + c.margin)]
        betas = betas + beta
    active = sum(bool(term > 0) for term in terms)
    return (sum(terms) + c.nu * betas) / active if active else 0.0


def quadruplet(c, x, r, found, context):
    labels, others, own = context
    first, second = [], []
    chosen = triplets(found)
    if chosen:
        anchors, _, negatives = torch.tensor(chosen).unbind(1)
        strangers, _ = Classes(labels, Reference.of(x, labels, r, others, own)).draw_strangers(anchors, negatives)  # the criterion's draws
        for (a, p, n), m in zip(chosen, strangers.tolist(), strict=True):
            first.append(torch.relu(distance(x[a], r[p]) - distance(x[a], r[n]) + c.margin_alpha_1))
            if set(others.tolist()) - {int(labels[a]), int(others[n])}:
                assert others[m] not in (labels[a], others[n])
                apart = distance(r[n], r[m]) if n != m else 0.0
                second.append(torch.relu(distance(x[a], r[p]) - apart + c.margin_alpha_2))
    return mean(first) + mean(second)


def snr(c, x, r, found, context):
    ratio = lambda a, j: (x[a] - r[j]).var() / x[a].var()  # noqa: E731
    chosen = triplets(found)
    terms = [torch.relu(ratio(a, p) - ratio(a, n) + c.margin) for a, p, n in chosen]
    return mean_active(terms) + c.reg_lambda * mean([x[a].sum().abs() for a, _, _ in chosen])


def norms(x):
    return sum(row.norm() for row in x) / len(x)


def npair(c, x, r, found, context):
    terms = [torch.log1p(sum(torch.exp(x[a] @ r[n] - x[a] @ r[ps[-1]]) for n in ns)) for a, ps, ns in sets(found)]
    return mean(terms) + getattr(c, "npair_l2" if hasattr(c, "npair_l2") else "l2") * norms(x)


def angular(c, x, r, found, context):
    t, terms = math.tan(math.radians(c.alpha)) ** 2, []
    u, v = x / x.norm(dim=1, keepdim=True), r / r.norm(dim=1, keepdim=True)
    for a, ps, ns in sets(found):
        exponents = [4 * t * (u[a] + v[ps[-1]]) @ v[n] - 2 * (1 + t) * u[a] @ v[ps[-1]] for n in ns]
        terms.append(torch.log1p(sum(torch.exp(e) for e in exponents)))
    return npair(c, x, r, found, context) + c.npair_ang_weight * mean(terms)


def lifted(c, x, r, found, context):
    terms = []
    for a, ps, ns in sets(found):
        far = torch.log(sum(torch.exp(distance(x[a], r[p])) for p in ps))
        terms.append(torch.relu(far + torch.log(sum(torch.exp(c.neg_margin - distance(x[a], r[n])) for n in ns))))
    return mean(terms) + c.l2 * norms(x)


def multisimilarity(c, x, r, found, context):
    total = 0.0
    for a, (ps, ns) in enumerate(zip(*found, strict=True)):
        kept_p, kept_n = [x[a] @ r[p] for p in ps], [x[a] @ r[n] for n in ns]
        if not kept_p or not kept_n:
            continue
        lowest, highest = min(kept_p), max(kept_n)
        kept_p, kept_n = [s for s in kept_p if s - c.margin < highest], [s for s in kept_n if s + c.margin > lowest]
        if kept_p:
            total = total + torch.log(1 + sum(torch.exp(-c.pos_weight * (s - c.thresh)) for s in kept_p)) / c.pos_weight
        if kept_n:
            total = total + torch.log(1 + sum(torch.exp(c.neg_weight * (s - c.thresh)) for s in kept_n)) / c.neg_weight
    return total / len(x)


def histogram(c, x, r, found, context):
    width, densities = 2 / (c.n_nodes - 1), []
    for chosen in found:
        nodes, count = [0.0] * c.n_nodes, 0
        for a, js in enumerate(chosen):
            for j in js:
                similarity = (x[a] @ r[j]).clamp(-1, 1)
                count += 1
                for k in range(c.n_nodes):
                    share = 1 - abs(similarity - (-1 + k * width)) / width
                    nodes[k] = nodes[k] + share * bool(share > 0)
        densities.append([node / max(count, 1) for node in nodes])
    positives, negatives = densities
    return sum(negatives[k] * sum(positives[: k + 1]) for k in range(c.n_nodes))


def fastap(c, x, r, found, context):
    width, precisions = 4 / c.num_bins, []
    for a, (ps, ns) in enumerate(zip(*found, strict=True)):
        if not ps:
            continue
        of_positives, of_all = [0.0] * (c.num_bins + 1), [0.0] * (c.num_bins + 1)
        for j in ps + ns:
            squared = 2 - 2 * cosine(x[a], r[j])
            for k in range(c.num_bins + 1):
                share = 1 - abs(squared - k * width) / width
                if share > 0:
                    of_all[k] = of_all[k] + share
                    of_positives[k] = of_positives[k] + share * (j in ps)
        totals = [sum(of_all[: k + 1]) for k in range(c.num_bins + 1)]
        value = sum(of_positives[k] * sum(of_positives[: k + 1]) / totals[k] for k in range(c.num_bins + 1) if totals[k] > 0)
        precisions.append(value / len(ps))
    return 1 - mean(precisions) if precisions else 0.0


def nca(c, x, r, found, context):
    terms = []
    for a, (ps, ns) in enumerate(zip(*found, strict=True)):
        mass = [torch.exp(-c.scale * (x[a] - other).square().sum()) for other in r]
        if ps:
            terms.append(-torch.log(sum(mass[p] for p in ps) / sum(mass[j] for j in ps + ns)))
    return mean(terms)


def ntxent(c, x, r, found, context):
    terms = []
    for a, (ps, ns) in enumerate(zip(*found, strict=True)):
        mass = [torch.exp(cosine(x[a], other) / c.temperature) for other in r]
        terms += [-torch.log(mass[p] / (mass[p] + sum(mass[n] for n in ns))) for p in ps]
    return mean(terms)


def supcon(c, x, r, found, context):
    terms = []
    for a, (ps, ns) in enumerate(zip(*found, strict=True)):
        mass = [torch.exp(cosine(x[a], other) / c.temperature) for other in r]
        if ps:
            terms.append(mean([-torch.log(mass[p] / sum(mass[j] for j in ps + ns)) for p in ps]))
    return mean(terms)


def circle(c, x, r, found, context):
    terms = []
    for a, ps, ns in sets(found):
        sp, sn = [cosine(x[a], r[p]) for p in ps], [cosine(x[a], r[n]) for n in ns]
        from_p = [-c.gamma * torch.relu(1 + c.m - s.detach()) * (s - 1 + c.m) for s in sp]
        from_n = [c.gamma * torch.relu(s.detach() + c.m) * (s - c.m) for s in sn]
        exponent = torch.logsumexp(torch.stack(from_p), 0) + torch.logsumexp(torch.stack(from_n), 0)
        terms.append(torch.log1p(torch.exp(-exponent.abs())) + exponent.clamp(min=0))
    return mean_active(terms)


def snr_contrastive(c, x, r, found, context):
    terms = [[], []]
    for a, (ps, ns) in enumerate(zip(*found, strict=True)):
        ratio = [(x[a] - other).var() / x[a].var() for other in r]
        terms[0] += [ratio[p] - c.pos_margin for p in ps]
        terms[1] += [c.neg_margin - ratio[n] for n in ns]
    return mean_active(terms[0]) + mean_active(terms[1]) + c.regularizer_weight * mean([row.sum().abs() for row in x])


def soft_rank(s, p, rivals, temperature):
    return 1 + sum(torch.sigmoid((s[j] - s[p]) / temperature) for j in rivals if j != p)


def smoothap(c, x, r, found, context):
    terms = []
    for a, (ps, ns) in enumerate(zip(*found, strict=True)):
        s = [x[a] @ other for other in r]
        if ps:
            terms.append(1 - mean([soft_rank(s, p, ps, c.temperature) / soft_rank(s, p, ps + ns, c.temperature) for p in ps]))
    return mean(terms)


def recallatk(c, x, r, found, context):
    terms = []
    for a, (ps, ns) in enumerate(zip(*found, strict=True)):
        s = [x[a] @ other for other in r]
        ranks = [soft_rank(s, p, ps + ns, c.temperature) for p in ps]
        for k in [k for k in c.ks if k < len(r)] if ps else []:
            hits = sum(torch.sigmoid((k - rank) / c.k_temperature) for rank in ranks)
            terms.append(1 - hits.clamp(max=k) / min(k, len(ps)))
    return mean(terms)


def hyperbolic(c, x, r, found, context):
    """By the distance's other form, 1/sqrt(c) arcosh(1 + 2c |p - q|^2 / ((1 - c p^2) (1 - c q^2))) of points of the ball."""

    def point(u):
        norm = u.norm().clamp(max=c.clip_r)
        return torch.tanh(c.c**0.5 * norm) / c.c**0.5 * u / u.norm()

    def apart(u, v):
        p, q = point(u), point(v)
        return torch.acosh(1 + 2 * c.c * (p - q).square().sum() / ((1 - c.c * p @ p) * (1 - c.c * q @ q))) / c.c**0.5

    def views(labels):
        return [sum(int(labels[b]) == int(labels[a]) for b in range(a)) for a in range(len(labels))]

    labels, others, own = context
    of_batch, of_others, groups = views(labels), views(others), {}
    for a, (ps, ns) in enumerate(zip(*found, strict=True)):
        own_row = -1 if own is None else int(own[a])
        for p in ps:
            rivals = [n for n in ns if own_row < 0 or of_others[n] in (of_others[own_row], of_others[p])]
            logits = torch.stack([-apart(x[a], r[j]) / c.temperature for j in [p, *rivals]])
            groups.setdefault((of_batch[a], of_others[p]), []).append(torch.logsumexp(logits, 0) - logits[0])
    return sum(mean(terms) for terms in groups.values())


def pml(c, x, r, found, context):
    """Its ContrastiveLoss: unit vectors, margins 0 and 1, means over what is active."""
    u, v = x / x.norm(dim=1, keepdim=True), r / r.norm(dim=1, keepdim=True) if len(r) else r
    far = [distance(u[a], v[p]) for a, ps in enumerate(found[0]) for p in ps]
    return mean_active(far) + mean_active([torch.relu(1 - distance(u[a], v[n])) for a, ns in enumerate(found[1]) for n in ns])


def tupletmargin(c, x, r, found, context):
    terms = []
    for a, (ps, ns) in enumerate(zip(*found, strict=True)):
        for p in ps:
            narrowed = torch.cos(torch.acos(cosine(x[a], r[p]).clamp(-1 + 1e-7, 1 - 1e-7)) - c.margin)
            terms.append(torch.log(1 + sum((torch.exp(c.scale * (cosine(x[a], r[n]) - narrowed)) for n in ns), 0 * narrowed)))
    return mean(terms)


FORMULAS = {
    function.__name__: function
    for function in (
        angular, circle, contrastive, fastap, histogram, hyperbolic, lifted, margin, multisimilarity, nca, npair, ntxent, pml, quadruplet, recallatk,
        smoothap, snr, snr_contrastive, supcon, triplet, tupletmargin,
    )
}  # fmt: skip
