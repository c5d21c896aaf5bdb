"""The table of the losses: each one's formula as obvious loops in float64, the flags that it is tried under, its peer
elsewhere.

A loss that compares samples: `formula(criterion, x, r, partner_rows, (labels, reference_labels, own_rows))`, with
anchors `x`, reference `r`, and `partner_rows` the rows of each anchor's positives and those of its negatives. A loss of
the batch as a whole, most with class vectors: `formula(criterion, x, labels)`. Numbers such as margins are read from
the criterion.
"""

import math

import torch
from pytorch_metric_learning import distances, losses

from criteria.contextual import SLOPE
from utilities.reference import Reference
from utilities.tuples import Classes


def partners(labels, reference_labels, own_rows) -> tuple[list[list[int]], list[list[int]]]:
    """Of each anchor the rows of the reference that are its positives, and its negatives; its own image is neither."""
    own_rows = [-1] * len(labels) if own_rows is None else [int(row) for row in own_rows]
    positives = []
    negatives = []
    for a, label in enumerate(labels):
        rows = [j for j in range(len(reference_labels)) if j != own_rows[a]]
        positives.append([j for j in rows if reference_labels[j] == label])
        negatives.append([j for j in rows if reference_labels[j] != label])
    return positives, negatives


def distance(u, v):
    """With no gradient where the points coincide."""
    squared = (u - v).square().sum()
    return squared.sqrt() if squared > 0 else squared


def cosine(u, v):
    return u @ v / u.norm() / v.norm()


def mean(terms):
    return sum(terms) / len(terms) if terms else 0.0


def mean_active(terms):
    terms = [term for term in terms if term > 0]
    return mean(terms)


def triplets(partner_rows):
    """(a, p, n), as the stand-in miner gives them."""
    return [(a, p, n) for a, (ps, ns) in enumerate(zip(*partner_rows, strict=True)) for p in ps for n in ns]


def of_pairs(values, x, r, partner_rows):
    """The values of all positive and of all negative pairs."""
    return [[values(x[a], r[j]) for a, js in enumerate(kind) for j in js] for kind in partner_rows]


def noise_ratio(u, v):
    return (u - v).var() / u.var()


def sets(partner_rows):
    return [(a, ps, ns) for a, (ps, ns) in enumerate(zip(*partner_rows, strict=True)) if ps and ns]


def contrastive(c, x, r, partner_rows, context):
    all_triplets = triplets(partner_rows)
    far = [torch.relu(distance(x[a], r[p]) - c.pos_margin) for a, p, _ in all_triplets]
    return mean(far) + mean([torch.relu(c.neg_margin - distance(x[a], r[n])) for a, _, n in all_triplets])


def triplet(c, x, r, partner_rows, context):
    return mean(
        [
            torch.relu(distance(x[a], r[p]) ** 2 - distance(x[a], r[n]) ** 2 + c.margin)
            for a, p, n in triplets(partner_rows)
        ]
    )


def margin(c, x, r, partner_rows, context):
    terms = []
    betas = 0.0
    for a, p, n in triplets(partner_rows):
        beta = c.beta[context[0][a]]
        terms += [
            torch.relu(distance(x[a], r[p]) - beta + c.margin),
            torch.relu(beta - distance(x[a], r[n]) + c.margin),
        ]
        betas = betas + beta
    active = sum(bool(term > 0) for term in terms)
    return (sum(terms) + c.nu * betas) / active if active else 0.0


def quadruplet(c, x, r, partner_rows, context):
    labels, reference_labels, own_rows = context
    first = []
    second = []
    chosen = triplets(partner_rows)
    if chosen:
        anchors, _, negatives = torch.tensor(chosen).unbind(1)
        # the criterion's draws
        strangers, _ = Classes(labels, Reference.build(x, labels, r, reference_labels, own_rows)).draw_strangers(
            anchors, negatives
        )
        for (a, p, n), m in zip(chosen, strangers.tolist(), strict=True):
            first.append(torch.relu(distance(x[a], r[p]) - distance(x[a], r[n]) + c.margin_alpha_1))
            if set(reference_labels.tolist()) - {int(labels[a]), int(reference_labels[n])}:
                assert reference_labels[m] not in (labels[a], reference_labels[n])
                stranger_distance = distance(r[n], r[m]) if n != m else 0.0
                second.append(torch.relu(distance(x[a], r[p]) - stranger_distance + c.margin_alpha_2))
    return mean(first) + mean(second)


def snr(c, x, r, partner_rows, context):
    chosen = triplets(partner_rows)
    terms = [torch.relu(noise_ratio(x[a], r[p]) - noise_ratio(x[a], r[n]) + c.margin) for a, p, n in chosen]
    return mean_active(terms) + c.reg_lambda * mean([x[a].sum().abs() for a, _, _ in chosen])


def norms(x):
    return sum(row.norm() for row in x) / len(x)


def npair(c, x, r, partner_rows, context):
    terms = [
        torch.log1p(sum(torch.exp(x[a] @ r[n] - x[a] @ r[ps[-1]]) for n in ns)) for a, ps, ns in sets(partner_rows)
    ]
    return mean(terms) + getattr(c, "npair_l2" if hasattr(c, "npair_l2") else "l2") * norms(x)


def angular(c, x, r, partner_rows, context):
    t = math.tan(math.radians(c.alpha)) ** 2
    terms = []
    u = x / x.norm(dim=1, keepdim=True)
    v = r / r.norm(dim=1, keepdim=True)
    for a, ps, ns in sets(partner_rows):
        exponents = [4 * t * (u[a] + v[ps[-1]]) @ v[n] - 2 * (1 + t) * u[a] @ v[ps[-1]] for n in ns]
        terms.append(torch.log1p(sum(torch.exp(e) for e in exponents)))
    return npair(c, x, r, partner_rows, context) + c.npair_ang_weight * mean(terms)


def lifted(c, x, r, partner_rows, context):
    terms = []
    for a, ps, ns in sets(partner_rows):
        far = torch.log(sum(torch.exp(distance(x[a], r[p])) for p in ps))
        terms.append(torch.relu(far + torch.log(sum(torch.exp(c.neg_margin - distance(x[a], r[n])) for n in ns))))
    return mean(terms) + c.l2 * norms(x)


def each_anchor(values, reduce=mean):
    """A loss from the `reduce`d terms of the anchors: `term(criterion, values of positives, of negatives)` is one, a
    list, or None.
    """

    def made(term):
        def loss(c, x, r, partner_rows, context):
            terms = [
                term(c, *([values(x[a], r[j]) for j in kind] for kind in both))
                for a, both in enumerate(zip(*partner_rows, strict=True))
            ]
            return reduce([one for of in terms if of is not None for one in (of if isinstance(of, list) else [of])])

        return loss

    return made


def log1p_sum(terms):
    return torch.log(1 + sum(terms)) if terms else 0.0


def soft_multisimilarity(c, ps, ns):
    near = log1p_sum([torch.exp(-c.pos_weight * (s - c.thresh)) for s in ps]) / c.pos_weight
    return near + log1p_sum([torch.exp(c.neg_weight * (s - c.thresh)) for s in ns]) / c.neg_weight


@each_anchor(torch.dot)
def multisimilarity(c, ps, ns):
    """With an infinite margin all pairs count, of an anchor that lacks a kind too."""
    if c.margin == math.inf:
        return soft_multisimilarity(c, ps, ns)
    if not ps or not ns:
        return 0.0
    return soft_multisimilarity(c, [s for s in ps if s - c.margin < max(ns)], [s for s in ns if s + c.margin > min(ps)])


def histogram(c, x, r, partner_rows, context):
    width = 2 / (c.nbins - 1)
    densities = []
    for chosen in partner_rows:
        nodes = [0.0] * c.nbins
        count = 0
        for a, js in enumerate(chosen):
            for j in js:
                similarity = (x[a] @ r[j]).clamp(-1, 1)
                count += 1
                for k in range(c.nbins):
                    share = 1 - abs(similarity - (-1 + k * width)) / width
                    nodes[k] = nodes[k] + share * bool(share > 0)
        densities.append([node / max(count, 1) for node in nodes])
    positives, negatives = densities
    return sum(negatives[k] * sum(positives[: k + 1]) for k in range(c.nbins))


@each_anchor(cosine, lambda terms: 1 - mean(terms) if terms else 0.0)
def fastap(c, ps, ns):
    width = 4 / c.num_bins
    partner_rows = ([0.0] * (c.num_bins + 1), [0.0] * (c.num_bins + 1))
    if not ps:
        return None
    for place, s in enumerate(ps + ns):
        for k in range(c.num_bins + 1):
            share = 1 - abs(2 - 2 * s - k * width) / width
            for nodes in partner_rows[: 1 + (place < len(ps))] if share > 0 else ():  # of all, and of positives
                nodes[k] = nodes[k] + share
    totals, hits = ([sum(nodes[: k + 1]) for k in range(c.num_bins + 1)] for nodes in partner_rows)
    return sum(partner_rows[1][k] * hits[k] / totals[k] for k in range(c.num_bins + 1) if totals[k] > 0) / len(ps)


@each_anchor(lambda u, v: (u - v).square().sum())
def nca(c, ps, ns):
    near, far = ([torch.exp(-c.scale * d) for d in kind] for kind in (ps, ns))
    return -torch.log(sum(near) / sum(near + far)) if ps else None


@each_anchor(cosine)
def ntxent(c, ps, ns):
    near, far = ([torch.exp(s / c.temperature) for s in kind] for kind in (ps, ns))
    return [-torch.log(mass / (mass + sum(far))) for mass in near]


@each_anchor(cosine)
def supcon(c, ps, ns):
    near, far = ([torch.exp(s / c.temperature) for s in kind] for kind in (ps, ns))
    return mean([-torch.log(mass / sum(near + far)) for mass in near]) if ps else None


@each_anchor(cosine, mean_active)
def circle(c, ps, ns):
    if not ps or not ns:
        return None
    near = [-c.gamma * torch.relu(1 + c.m - s.detach()) * (s - 1 + c.m) for s in ps]
    far = [c.gamma * torch.relu(s.detach() + c.m) * (s - c.m) for s in ns]
    exponent = torch.logsumexp(torch.stack(near), 0) + torch.logsumexp(torch.stack(far), 0)
    return torch.log1p(torch.exp(-exponent.abs())) + exponent.clamp(min=0)


def snr_contrastive(c, x, r, partner_rows, context):
    near, far = of_pairs(noise_ratio, x, r, partner_rows)
    active = mean_active([d - c.pos_margin for d in near]) + mean_active([c.neg_margin - d for d in far])
    return active + c.regularizer_weight * mean([row.sum().abs() for row in x])


def soft_rank(s, rivals, temperature):
    """Of a value among rivals, of which it may be one itself."""
    return 1 + sum(torch.sigmoid((other - s) / temperature) for other in rivals if other is not s)


@each_anchor(torch.dot)
def smoothap(c, ps, ns):
    return (
        1 - mean([soft_rank(s, ps, c.temperature) / soft_rank(s, ps + ns, c.temperature) for s in ps]) if ps else None
    )


def recallatk(c, x, r, partner_rows, context):
    @each_anchor(torch.dot)
    def terms(c, ps, ns):
        ranks = [soft_rank(s, ps + ns, c.temperature) for s in ps]
        terms = []
        for k in [k for k in c.ks if k < len(r)] if ps else []:
            hits = sum(torch.sigmoid((k - rank) / c.k_temperature) for rank in ranks)
            terms.append(1 - hits.clamp(max=k) / min(k, len(ps)))
        return terms

    return terms(c, x, r, partner_rows, context)


def hyperbolic(c, x, r, partner_rows, context):
    """By the distance's other form, 1/sqrt(c) arcosh(1 + 2c |p - q|^2 / ((1 - c p^2) (1 - c q^2))) of points of the
    ball.
    """

    def point(u):
        norm = u.norm().clamp(max=c.clip_r)
        return torch.tanh(c.c**0.5 * norm) / c.c**0.5 * u / u.norm()

    def apart(u, v):
        p = point(u)
        q = point(v)
        return torch.acosh(1 + 2 * c.c * (p - q).square().sum() / ((1 - c.c * p @ p) * (1 - c.c * q @ q))) / c.c**0.5

    def views(labels):
        return [sum(int(labels[b]) == int(labels[a]) for b in range(a)) for a in range(len(labels))]

    labels, reference_labels, own_rows = context
    of_batch = views(labels)
    of_others = views(reference_labels)
    groups = {}
    for a, (ps, ns) in enumerate(zip(*partner_rows, strict=True)):
        own_row = -1 if own_rows is None else int(own_rows[a])
        for p in ps:
            rivals = [n for n in ns if own_row < 0 or of_others[n] in (of_others[own_row], of_others[p])]
            logits = torch.stack([-apart(x[a], r[j]) / c.temperature for j in [p, *rivals]])
            groups.setdefault((of_batch[a], of_others[p]), []).append(torch.logsumexp(logits, 0) - logits[0])
    return sum(mean(terms) for terms in groups.values())


def pml(c, x, r, partner_rows, context):
    """Its ContrastiveLoss: unit vectors, margins 0 and 1, means over what is active."""
    u = x / x.norm(dim=1, keepdim=True)
    v = r / r.norm(dim=1, keepdim=True) if len(r) else r
    near, far = of_pairs(distance, u, v, partner_rows)
    return mean_active(near) + mean_active([torch.relu(1 - d) for d in far])


@each_anchor(cosine)
def tupletmargin(c, ps, ns):
    narrowed = [torch.cos(torch.acos(s.clamp(-1 + 1e-7, 1 - 1e-7)) - c.margin) for s in ps]
    return [torch.log(1 + sum((torch.exp(c.scale * (n - s)) for n in ns), 0 * s)) for s in narrowed]


def of_one_anchor(kind, c, of_positives, of_negatives):
    """The loss that gpw's weights are named after, of one anchor's cosines; None where it has no slope."""
    if kind == "contrastive":
        return sum(-s for s in of_positives) + sum((s - c.threshold).clamp(min=0) for s in of_negatives)
    if kind == "triplet":
        return sum((n - p + c.margin).clamp(min=0) for p in of_positives for n in of_negatives)
    if kind == "binomial":
        near = [torch.log1p(torch.exp(c.pos_scale * (c.threshold - s))) for s in of_positives]
        return mean(near) + mean([torch.log1p(torch.exp(c.neg_scale * (s - c.threshold))) for s in of_negatives])
    if kind == "lifted":
        if not of_positives or not of_negatives:
            return None
        return (
            torch.log(sum(torch.exp(-s) for s in of_positives)) + torch.log(sum(torch.exp(s) for s in of_negatives))
        ).clamp(min=0)
    positive = log1p_sum([torch.exp(-c.pos_scale * (s - c.threshold)) for s in of_positives]) / c.pos_scale
    return positive + log1p_sum([torch.exp(c.neg_scale * (s - c.threshold)) for s in of_negatives]) / c.neg_scale


def gpw(kind):
    """The weights are that loss's derivatives by automatic differentiation."""

    @each_anchor(cosine)
    def loss(c, ps, ns):
        leaves = [s.detach().clone().requires_grad_() for s in ps + ns]
        named = of_one_anchor(kind, c, leaves[: len(ps)], leaves[len(ps) :])
        if not torch.is_tensor(named) or not named.requires_grad:
            return 0.0
        slopes = torch.autograd.grad(named, leaves, allow_unused=True)
        return sum(slope * s for slope, s in zip(slopes, ps + ns, strict=True) if slope is not None)

    return loss


def intrapair_variance(c, x, r, partner_rows, context):
    of_positives, of_negatives = of_pairs(cosine, x, r, partner_rows)
    middle = mean(of_positives)
    other = mean(of_negatives)
    below = mean([((1 - c.pos_eps) * middle - s).clamp(min=0) ** 2 for s in of_positives])
    return below + mean([(s - (1 + c.neg_eps) * other).clamp(min=0) ** 2 for s in of_negatives])


def lifted_original(c, x, r, partner_rows, context):
    positives, negatives = partner_rows
    terms = []
    for a, ps in enumerate(positives):
        for p in ps:
            near = [torch.exp(c.neg_margin - distance(x[a], r[n])) for n in negatives[a]]
            near += [torch.exp(c.neg_margin - distance(x[b], r[p])) for b in range(len(x)) if p in negatives[b]]
            apart = distance(x[a], r[p])
            terms.append((apart + torch.log(sum(near))).clamp(min=0) ** 2 / 2 if near else 0 * apart)
    return mean(terms)


def weighted(violations, temperature):
    active = [v for v in violations if v > 0]
    weights = [torch.exp(temperature * v.detach()) for v in active]
    return sum(w * v for w, v in zip(weights, active, strict=True)) / sum(weights) if active else 0.0


@each_anchor(distance)
def rankedlist(c, ps, ns):
    far = weighted([d - (c.alpha - c.margin) for d in ps], c.pos_temperature)
    return (1 - c.imbalance) * far + c.imbalance * weighted([c.alpha - d for d in ns], c.neg_temperature)


def threshold_consistent(c, x, r, partner_rows, context):
    near, far = of_pairs(cosine, x, r, partner_rows)
    below = [c.pos_margin - s for s in near if s <= c.pos_margin]
    above = [s - c.neg_margin for s in far if s >= c.neg_margin]
    return c.pos_weight * mean(below) + c.neg_weight * mean(above)


COSTS = {
    "O": lambda c, r: r,
    "Iu": lambda c, r: (1 + r) * torch.log(1 + r),
    "Ib": lambda c, r: (c.b * r - torch.log(1 + c.b * r)) / c.b**2,
    "Ds": lambda c, r: torch.log(1 + r),
    "Dq": lambda c, r: 1 - 1 / (1 + r) ** c.alpha,
}


@each_anchor(cosine)
def pnp(c, ps, ns):
    before = [sum(torch.sigmoid((n - s) / c.temperature) for n in ns) + 0 * s for s in ps]
    return mean([COSTS[c.variant](c, value) for value in before]) if ps else None


LEVELS = torch.tensor([[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1], [4, 2, 1], [5, 3, 1]])  # of six classes


def soft_h_ap(c, similarities, shared, n_levels):
    """Of one anchor, by the other samples' similarities and by how many levels they share; None without relatives."""
    relevance = [level / n_levels / shared.count(level) if level else 0.0 for level in shared]
    total = 0.0
    for k in [k for k, level in enumerate(shared) if level]:
        hits = relevance[k]
        rank = 1.0
        for j in [j for j in range(len(shared)) if j != k]:
            t = similarities[j] - similarities[k]
            hits += min(relevance[j], relevance[k]) if t >= 0 else 0
            if shared[j] >= shared[k]:
                rank = rank + float(t >= 0)
            elif t > c.delta:
                rank = rank + c.rho * (t - c.delta) + c.offset
            else:
                rank = rank + 1 / (1 + torch.exp(-t / c.temperature)) + (c.start if t > 0 else 0)
        total = total + hits / rank
    return total / sum(relevance) if sum(relevance) else None


def happier(levels):
    def loss(c, x, r, partner_rows, context):
        labels, reference_labels, _ = context
        terms = []
        for a, rows in enumerate(ps + ns for ps, ns in zip(*partner_rows, strict=True)):
            shared = [int((levels[labels[a]] == levels[reference_labels[j]]).sum()) for j in rows]
            terms.append(soft_h_ap(c, [x[a] @ r[j] for j in rows], shared, levels.shape[1]))
        ranking = mean([1 - term for term in terms if term is not None])
        logits = lambda c, row, y: [row @ w / w.norm() / c.cluster.temperature for w in c.cluster.proxies]  # noqa: E731
        return (1 - c.weight) * ranking + c.weight * cross_entropy(logits)(c, x, labels)

    return loss


# ------------------------------------------------------------------------------------------------------------- the
# batch as a whole
def contextual(c, x, labels):
    labels = labels.tolist()
    n = len(x)
    rows = [c.projection.weight @ row if c.projection is not None else row for row in x]
    s = [[cosine(a, b) for b in rows] for a in rows]
    closeness = [[-(2 - 2 * value).clamp(min=0) for value in row] for row in s]

    def neighbours(size):
        """0 or 1; with a slope."""
        bounds = [sorted((value.item() for value in row), reverse=True)[size - 1] for row in closeness]
        step = lambda value, bound: float(value + c.eps >= bound) + SLOPE * (value - value.detach())  # noqa: E731
        return [[step(value, bound) for value in row] for row, bound in zip(closeness, bounds, strict=True)]

    near = neighbours(min(c.k, n))
    half = neighbours(max(min(c.k, n) // 2, 1))
    overlap = [[0] * n for _ in range(n)]
    for members in (near, [[1 - value for value in row] for row in near]):
        for i in range(n):
            size = sum(value.item() for value in members[i]) or 1
            for j in range(n):
                overlap[i][j] += sum(members[i][m] * members[j][m] for m in range(n)) / size / 2 * near[i][j]
    alike = []
    for i in range(n):
        mutual = [half[i][m] * half[m][i] for m in range(n)]
        alike.append([sum(mutual[m] * overlap[m][j] for m in range(n)) / sum(mutual) for j in range(n)])
    context = 0.0
    far = []
    close = []
    for i in range(n):
        for j in range(n):
            value = (alike[i][j] + alike[j][i]) / 2
            same = labels[i] == labels[j]
            context = context + ((1 - value) ** 2 if same else value**2) / n**2 * (i != j)
            if i != j:
                (far if same else close).append(
                    (c.pos_margin - s[i][j] if same else s[i][j] - c.neg_margin).clamp(min=0)
                )
    average = sum(sum(row) for row in s) / n**2
    contrastive = mean_active(far) + mean_active(close)
    return c.context_weight * context + c.contrastive_weight * contrastive + c.mean_weight * (average - c.mean) ** 2


def hist(c, x, labels):
    present, labels, (one, two) = sorted(set(labels.tolist())), labels.tolist(), c.layers
    apart = lambda u, w, rho: ((u / u.norm() - w / w.norm()) ** 2 / torch.exp(rho.clamp(0, 6))).sum()  # noqa: E731
    distances = [[apart(row, w, rho) for w, rho in zip(c.proxies, c.log_variances, strict=True)] for row in x]
    edges = [
        [torch.ones((), dtype=x.dtype) if k == y else torch.exp(-c.alpha * row[k]) for k in present]
        for row, y in zip(distances, labels, strict=True)
    ]
    edges = torch.stack([torch.stack(row) for row in edges])
    root = torch.diag(edges.sum(1) ** -0.5)
    graph = root @ edges @ torch.diag(1 / edges.sum(0)) @ edges.T @ root
    hidden = graph @ (x @ one.weight.T + one.bias)
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + 1e-5).sqrt() * c.norm.weight + c.norm.bias
    out = graph @ (torch.where(hidden > 0, hidden, 0.1 * hidden) @ two.weight.T + two.bias)
    terms = []
    for row, logits, y in zip(distances, out, labels, strict=True):
        of_distributions = torch.stack([-c.tau * d for d in row])
        terms.append(
            torch.logsumexp(of_distributions, 0)
            - of_distributions[y]
            + c.weight * (torch.logsumexp(logits, 0) - logits[y])
        )
    return mean(terms)


def vicreg(c, x, labels):
    places = {label: [i for i, other in enumerate(labels.tolist()) if other == label] for label in labels.tolist()}
    views = [[i for of in places.values() for i in of[: len(of) // 2 * 2][k::2]] for k in (0, 1)]
    n = len(views[0])
    dimensions = x.shape[1]
    total = 0.0
    if n:
        total = c.invariance * mean([((x[i] - x[j]) ** 2).mean() for i, j in zip(*views, strict=True)])
    for view in views if n else ():
        centred = x[view] - x[view].mean(0)
        for k in range(dimensions):
            for m in range(dimensions):
                entry = (centred[:, k] * centred[:, m]).sum() / max(n - 1, 1)
                of_variance = c.variance * (1 - (entry.clamp(min=0) + c.eps).sqrt()).clamp(min=0) / 2
                total = total + (of_variance if k == m else c.covariance * entry**2) / dimensions
    return total


def cross_entropy(logits_of):
    """mean over samples of the cross-entropy of `logits_of(criterion, x, y)`, a list of scalars."""

    def loss(c, x, labels):
        logits = [torch.stack(logits_of(c, row, int(y))) for row, y in zip(x, labels, strict=True)]
        return mean([torch.logsumexp(row, 0) - row[y] for row, y in zip(logits, labels.tolist(), strict=True)])

    return loss


def widened(own_rows, margin):
    angle = torch.acos(own_rows.clamp(-1 + 1e-7, 1 - 1e-7))
    return torch.cos(angle + margin) if angle + margin <= math.pi else own_rows - margin * math.sin(margin)


def subcenter_arcface(c, x, y):
    per_class = len(c.proxies) // c.n_classes
    cosines = [max(cosine(x, w) for w in c.proxies[k * per_class : (k + 1) * per_class]) for k in range(c.n_classes)]
    cosines[y] = widened(cosines[y], c.angular_margin)
    return [c.feature_scale * s for s in cosines]


def cosface(c, x, y):
    return [c.scale * (cosine(x, w) - c.margin * (k == y)) for k, w in enumerate(c.proxies)]


def circle_softmax(c, x, y):
    logits = []
    for k, w in enumerate(c.proxies):
        s = cosine(x, w)
        weight = max(float((1 + c.margin - s if k == y else s + c.margin).detach()), 0)
        logits.append(c.scale * weight * (s - (1 - c.margin if k == y else c.margin)))
    return logits


def center(c, x, labels):
    """The embeddings' part with the weight, the centres' without: the second is subtracted again."""
    own_rows = [c.proxies[y] for y in labels.tolist()]
    embeddings = mean([(row - w.detach()).square().sum() for row, w in zip(x, own_rows, strict=True)])
    centres = mean([(row.detach() - w).square().sum() for row, w in zip(x, own_rows, strict=True)])
    return c.weight * embeddings + centres - centres.detach()


def multiplicative(lengths_count):
    def logits(c, x, y):
        cosines = [cosine(x, w) for w in c.proxies]
        angle = torch.acos(cosines[y])
        k = math.floor(c.margin * float(angle.detach()) / math.pi)
        cosines[y] = ((-1) ** k * torch.cos(c.margin * angle) - 2 * k + c.cosine_weight * cosines[y]) / (
            1 + c.cosine_weight
        )
        return [
            c.scale * x.norm() * (w.norm() if lengths_count else 1) * s for w, s in zip(c.proxies, cosines, strict=True)
        ]

    return logits


def proxynca(own_counts):
    def loss(c, x, labels):
        terms = []
        for row, y in zip(x, labels.tolist(), strict=True):
            scale = c.scale if c.scale is not None else c.softmax_scale**0.5
            squared = [scale**2 * (row / row.norm() - p / p.norm()).square().sum() for p in c.proxies]
            terms.append(
                squared[y] + torch.log(sum(torch.exp(-s) for k, s in enumerate(squared) if own_counts or k != y))
            )
        return mean(terms)

    return loss


def proxyanchor(c, x, labels):
    positive = []
    negative = 0.0
    for k, proxy in enumerate(c.proxies):
        own_rows, reference_labels = (
            [cosine(row, proxy) for row, y in zip(x, labels.tolist(), strict=True) if (y == k) == same]
            for same in (True, False)
        )
        if own_rows:
            positive.append(log1p_sum([torch.exp(-c.alpha * (s - c.delta)) for s in own_rows]))
        negative = negative + log1p_sum([torch.exp(c.alpha * (s + c.delta)) for s in reference_labels])
    return mean(positive) + negative / len(c.proxies)


def softtriplet(c, x, labels):
    size = len(c.proxies) // c.n_classes
    centres = [w / w.norm() for w in c.proxies]
    centres = [centres[k * size : (k + 1) * size] for k in range(c.n_classes)]

    def logits(c, row, y):
        partner_rows = []
        for k, own_rows in enumerate(centres):
            s = torch.stack([row @ w / row.norm() for w in own_rows])
            partner_rows.append(c.scale * ((torch.softmax(s / c.gamma, 0) * s).sum() - c.margin_delta * (k == y)))
        return partner_rows

    pairs = [(own_rows[t], own_rows[u]) for own_rows in centres for t in range(size) for u in range(t + 1, size)]
    apart = sum(torch.sqrt(2 + 1e-5 - 2 * one @ other) for one, other in pairs)
    return cross_entropy(logits)(c, x, labels) + (
        c.reg_weight * apart / (c.n_classes * size * (size - 1)) if size > 1 else 0
    )


def p2sgrad(c, x, labels):
    return mean(
        [
            sum((cosine(row, w) - float(k == y)) ** 2 for k, w in enumerate(c.proxies)) / 2
            for row, y in zip(x, labels, strict=True)
        ]
    )


def manifold(c, x, labels):
    """The walk by its series F = (1 - alpha) sum_t (alpha S)^t."""
    n = len(x)
    nodes = [row / row.norm() for row in [*x, *c.proxies]]
    edges = [
        [torch.exp((a @ b).clamp(min=0) / 0.5) if i != j else 0 * (a @ b) for j, b in enumerate(nodes)]
        for i, a in enumerate(nodes)
    ]
    degrees = [sum(row) for row in edges]
    scaled = torch.stack(
        [torch.stack([e / (degrees[i] * degrees[j]).sqrt() for j, e in enumerate(row)]) for i, row in enumerate(edges)]
    )
    term = walk = torch.eye(len(nodes), dtype=x.dtype)
    for _ in range(200):
        term = c.alpha * scaled @ term
        walk = walk + term
    total = 0.0
    for i, y in enumerate(labels):
        own_rows = int(c.groups[y])
        of_context = [cosine(walk[i], walk[n + k]) for k in range(len(c.proxies))]
        for weight, row in ((1.0, (1 - c.alpha) * walk[i, n:]), (c.context_weight, of_context)):
            excesses = [row[k] - row[own_rows] + c.margin for k in range(len(c.proxies)) if k != own_rows]
            total = total + weight * log1p_sum([torch.exp(e) for e in excesses if e >= 0])
    return total / n


def meanfield(c, x, labels):
    """All classes' fields, those that are not in the batch too; a class without images has means of 0."""
    rows = [[j for j, y in enumerate(labels.tolist()) if y == k] for k in range(c.n_classes)]
    s = [[cosine(row, w) for w in c.proxies] for row in x]
    near = [mean([torch.exp(c.alpha * (c.margin - s[j][k])) for j in rows[k]]) for k in range(c.n_classes)]
    far = [
        [mean([torch.exp(c.beta * (s[j][k] - c.margin)) for j in rows[own_rows]]) for k in range(c.n_classes)]
        for own_rows in range(c.n_classes)
    ]
    n = sum(bool(partner_rows) for partner_rows in rows)
    own_rows = sum(torch.log(1 + torch.as_tensor(value)) for value in near) / (c.alpha * n)
    pairs = [(i, k) for i in range(c.n_classes) for k in range(c.n_classes) if i != k]
    return own_rows + sum(torch.log(1 + torch.as_tensor(far[i][k] + far[k][i])) for i, k in pairs) / (2 * c.beta * n)


# loss, formula, flags: of those that compare samples. Flags give a case active and inactive terms, or terms that are
# off by default
COMPARING = [
    ("angular", angular, {}),
    ("angular", angular, {"loss_angular_alpha": 36.0, "loss_angular_npair_ang_weight": 0.5}),
    ("circle", circle, {}),
    ("circle", circle, {"loss_circle_m": 0.25, "loss_circle_gamma": 10}),
    ("contrastive", contrastive, {}),
    ("contrastive", contrastive, {"loss_contrastive_pos_margin": 0.7, "loss_contrastive_neg_margin": 3.1}),
    ("fastap", fastap, {}),
    ("fastap", fastap, {"loss_fastap_num_bins": 1}),
    *(
        ("gpw", gpw(kind), {"loss_gpw_weights": kind})
        for kind in ("contrastive", "triplet", "binomial", "lifted", "multisimilarity")
    ),
    ("gpw", gpw("multisimilarity"), {"loss_gpw_pos_scale": 5.0, "loss_gpw_neg_scale": 7.0, "loss_gpw_threshold": 0.1}),
    ("happier", happier(LEVELS), {}),
    (
        "happier",
        happier(LEVELS),
        {"loss_happier_temperature": 0.2, "loss_happier_weight": 0.4, "loss_happier_cluster_temperature": 0.3},
    ),
    (
        "happier",
        happier(LEVELS[:, :2]),
        {"loss_happier_offset": 1.0, "loss_happier_start": 0.0, "loss_happier_rho": 3.0, "loss_happier_delta": 0.4},
    ),
    ("happier", happier(LEVELS[:, :1]), {}),
    ("histogram", histogram, {"loss_histogram_nbins": 9}),
    ("hyperbolic", hyperbolic, {}),
    ("hyperbolic", hyperbolic, {"loss_hyperbolic_c": 1.0, "loss_hyperbolic_T": 0.5}),
    ("intrapair_variance", intrapair_variance, {}),
    (
        "intrapair_variance",
        intrapair_variance,
        {"loss_intrapair_variance_pos_eps": 0.3, "loss_intrapair_variance_neg_eps": 0.7},
    ),
    ("lifted", lifted, {}),
    ("lifted", lifted, {"loss_lifted_neg_margin": -2.5, "loss_lifted_l2": 0.1}),
    ("lifted_original", lifted_original, {}),
    ("lifted_original", lifted_original, {"loss_lifted_original_neg_margin": -0.5}),
    ("margin", margin, {"loss_margin_nu": 0.2}),
    ("multisimilarity", multisimilarity, {}),
    ("multisimilarity", multisimilarity, {"loss_multisimilarity_neg_weight": 7, "loss_multisimilarity_margin": 0.4}),
    ("multisimilarity", multisimilarity, {"loss_multisimilarity_margin": math.inf}),
    ("nca", nca, {}),
    ("nca", nca, {"loss_nca_scale": 3}),
    ("npair", npair, {"loss_npair_l2": 0.1}),
    ("ntxent", ntxent, {}),
    ("ntxent", ntxent, {"loss_ntxent_temperature": 0.5}),
    ("pml", pml, {"loss_pml_class": "ContrastiveLoss"}),
    *(("pnp", pnp, {"loss_pnp_variant": variant, "loss_pnp_temperature": 0.1}) for variant in COSTS),
    ("pnp", pnp, {"loss_pnp_alpha": 1.5, "loss_pnp_temperature": 0.2}),
    ("quadruplet", quadruplet, {}),
    ("rankedlist", rankedlist, {}),
    (
        "rankedlist",
        rankedlist,
        {"loss_rankedlist_alpha": 1.4, "loss_rankedlist_neg_temperature": 3.0, "loss_rankedlist_pos_temperature": 2.0},
    ),
    ("recallatk", recallatk, {"loss_recallatk_temperature": 0.2, "loss_recallatk_ks": [1, 2, 5]}),
    ("smoothap", smoothap, {"loss_smoothap_temperature": 0.2}),
    ("snr", snr, {"loss_snr_reg_lambda": 0.3}),
    ("snr_contrastive", snr_contrastive, {"loss_snr_contrastive_regularizer_weight": 0.2}),
    (
        "snr_contrastive",
        snr_contrastive,
        {"loss_snr_contrastive_pos_margin": 0.4, "loss_snr_contrastive_neg_margin": 2.5},
    ),
    ("supcon", supcon, {}),
    ("supcon", supcon, {"loss_supcon_temperature": 0.4}),
    ("threshold_consistent", threshold_consistent, {}),
    (
        "threshold_consistent",
        threshold_consistent,
        {"loss_threshold_consistent_pos_margin": 0.3, "loss_threshold_consistent_neg_margin": -0.2},
    ),
    ("triplet", triplet, {}),
    ("tupletmargin", tupletmargin, {}),
    ("tupletmargin", tupletmargin, {"loss_tupletmargin_margin": 0.3, "loss_tupletmargin_scale": 9}),
]
# likewise, of the batch as a whole
WHOLE = [
    ("arcface", cross_entropy(subcenter_arcface), {}),
    ("arcface", cross_entropy(subcenter_arcface), {"loss_arcface_angular_margin": 2.5}),  # passes pi
    ("center", center, {}),
    ("center", center, {"loss_center_weight": 1.0}),
    ("circle_softmax", cross_entropy(circle_softmax), {}),
    (
        "circle_softmax",
        cross_entropy(circle_softmax),
        {"loss_circle_softmax_margin": 0.1, "loss_circle_softmax_scale": 4.0},
    ),
    ("contextual", contextual, {"loss_contextual_mean": 0.1}),
    ("contextual", contextual, {"loss_contextual_k": 2, "loss_contextual_eps": 0.5}),
    ("contextual", contextual, {"loss_contextual_pos_margin": 1.25}),
    ("contextual", contextual, {"loss_contextual_k": 3, "loss_contextual_projection": 7}),
    ("cosface", cross_entropy(cosface), {}),
    ("hist", hist, {"loss_hist_hidden": 4, "loss_hist_alpha": 1.1, "loss_hist_tau": 3.0, "loss_hist_weight": 0.7}),
    ("instance", cross_entropy(lambda c, x, y: [c.gamma * (x @ w) for w in c.proxies]), {"loss_instance_gamma": 3}),
    ("largemargin_softmax", cross_entropy(multiplicative(True)), {}),
    (
        "largemargin_softmax",
        cross_entropy(multiplicative(True)),
        {"loss_largemargin_softmax_margin": 3, "loss_largemargin_softmax_scale": 3.0},
    ),
    ("manifold", manifold, {"loss_manifold_n_proxies": 3}),
    ("meanfield", meanfield, {}),
    ("meanfield", meanfield, {"loss_meanfield_alpha": 2.0, "loss_meanfield_beta": 10.0, "loss_meanfield_margin": 0.3}),
    ("p2sgrad", p2sgrad, {}),
    ("proxyanchor", proxyanchor, {}),
    ("proxyanchor", proxyanchor, {"loss_proxyanchor_alpha": 5.0, "loss_proxyanchor_delta": 0.3}),
    ("proxynca", proxynca(False), {}),
    ("proxynca_pp", proxynca(True), {}),
    ("proxynca_pp", proxynca(True), {"loss_proxynca_pp_softmax_scale": 4.0}),
    ("softmax", cross_entropy(lambda c, x, y: [x @ w / w.norm() / c.temperature for w in c.proxies]), {}),
    ("softtriplet", softtriplet, {}),
    ("softtriplet", softtriplet, {"loss_softtriplet_n_centroids": 4}),
    ("sphereface", cross_entropy(multiplicative(False)), {}),
    (
        "sphereface",
        cross_entropy(multiplicative(False)),
        {"loss_sphereface_margin": 3, "loss_sphereface_cosine_weight": 0.7},
    ),
    ("subcenter_arcface", cross_entropy(subcenter_arcface), {}),
    ("vicreg", vicreg, {}),
    (
        "vicreg",
        vicreg,
        {
            "loss_vicreg_invariance": 2.0,
            "loss_vicreg_variance": 3.0,
            "loss_vicreg_covariance": 0.7,
            "loss_vicreg_eps": 0.1,
        },
    ),
]
RAW = distances.LpDistance(normalize_embeddings=False)
# the same loss in pytorch-metric-learning, given unit vectors: ours, flags, peer, its class vectors, and the tuples
# that both are given
PEERS = [
    ("circle", {}, losses.CircleLoss, None, None),
    (
        "contrastive",
        {
            "loss_contrastive_pos_margin": 0.5,
            "loss_contrastive_neg_margin": 1.3,
            "loss_contrastive_reduction": "nonzero",
        },
        lambda: losses.ContrastiveLoss(0.5, 1.3, distance=RAW),
        None,
        "none",
    ),
    ("fastap", {}, losses.FastAPLoss, None, None),
    ("intrapair_variance", {}, losses.IntraPairVarianceLoss, None, None),
    ("lifted_original", {}, lambda: losses.LiftedStructureLoss(neg_margin=1, pos_margin=0, distance=RAW), None, None),
    ("margin", {"loss_margin_beta_shared": True}, lambda: losses.MarginLoss(0.2, beta=1.2, distance=RAW), None, "all"),
    (
        "multisimilarity",
        {"loss_multisimilarity_margin": math.inf},
        lambda: losses.MultiSimilarityLoss(2, 40, 0.5),
        None,
        None,
    ),
    (
        "nca",
        {"loss_nca_scale": 2.0},
        lambda: losses.NCALoss(softmax_scale=2, distance=distances.LpDistance(normalize_embeddings=False, power=2)),
        None,
        None,
    ),
    ("ntxent", {}, losses.NTXentLoss, None, None),
    ("snr_contrastive", {}, losses.SignalToNoiseRatioContrastiveLoss, None, None),
    ("supcon", {}, losses.SupConLoss, None, None),
    ("threshold_consistent", {}, losses.ThresholdConsistentMarginLoss, None, None),
    (
        "triplet",
        {"loss_triplet_distance": "euclidean", "loss_triplet_swap": True, "loss_triplet_reduction": "nonzero"},
        lambda: losses.TripletMarginLoss(0.2, swap=True, distance=RAW),
        None,
        "all",
    ),
    (
        "triplet",
        {"loss_triplet_smooth": True},
        lambda: losses.TripletMarginLoss(0.2, smooth_loss=True, distance=distances.LpDistance(power=2)),
        None,
        "all",
    ),
    ("tupletmargin", {}, lambda: losses.TupletMarginLoss(margin=math.degrees(0.1)), None, None),
    ("vicreg", {}, lambda: lambda x, labels: losses.VICRegLoss()(x[::2], ref_emb=x[1::2]), None, None),
    ("arcface", {}, lambda: losses.ArcFaceLoss(5, 6, margin=math.degrees(0.5), scale=16), "W", None),
    ("cosface", {}, lambda: losses.CosFaceLoss(5, 6), "W", None),
    (
        "largemargin_softmax",
        {"loss_largemargin_softmax_scale": 2},
        lambda: losses.LargeMarginSoftmaxLoss(5, 6, margin=4, scale=2),
        "W",
        None,
    ),
    ("proxyanchor", {}, lambda: losses.ProxyAnchorLoss(5, 6, margin=0.1, alpha=32), "proxies", None),
    ("proxynca_pp", {}, lambda: losses.ProxyNCALoss(5, 6, softmax_scale=9), "proxies", None),
    (
        "softmax",
        {},
        lambda: losses.NormalizedSoftmaxLoss(
            5, 6, temperature=0.05, distance=distances.DotProductSimilarity(normalize_embeddings=False)
        ),
        "W",
        None,
    ),
    (
        "softtriplet",
        {"loss_softtriplet_n_centroids": 3, "loss_softtriplet_reg_weight": 0.0},
        lambda: losses.SoftTripleLoss(5, 6, centers_per_class=3, la=8, gamma=0.1, margin=0.01),
        "fc",
        None,
    ),
    ("sphereface", {"loss_sphereface_scale": 2}, lambda: losses.SphereFaceLoss(5, 6, margin=4, scale=2), "W", None),
    (
        "subcenter_arcface",
        {},
        lambda: losses.SubCenterArcFaceLoss(num_classes=5, embedding_size=6, margin=math.degrees(0.5), scale=64),
        "W",
        None,
    ),
]
# four unit embeddings with their labels and three unit class vectors: the authors' functions gave the pinned values on
# these
PINNED = torch.tensor([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0.6, 0.8]], dtype=torch.float64)
PINNED_LABELS = torch.tensor([0, 0, 1, 1])
PINNED_VECTORS = torch.nn.functional.normalize(
    torch.tensor([[1, 0.2, 0], [0, 1, 0.3], [0.1, 0, 1]], dtype=torch.float64)
)
K2 = {"loss_contextual_k": 2, "loss_contextual_eps": 0.05}
LAYERS = {
    name: value
    for i in (0, 1)
    for name, value in ((f"layers.{i}.weight", torch.eye(3)), (f"layers.{i}.bias", torch.zeros(3)))
}
OF_HIST = {"proxies": torch.eye(3), "log_variances": torch.tensor([[-1, 0, 0.5], [0.2, 0.2, 0.2], [7, 0, 0]]), **LAYERS}
HIST = {"loss_hist_alpha": 1.1, "loss_hist_hidden": 3}
OF_CIRCLE = {"proxies": torch.tensor([[1, 0.2, 0], [0, 1, 0.3], [0.1, 0, 1]])}
# loss, flags, its state, the value and statistics that the authors' code, FastReID's or Bag of Tricks' gives
PINS = [
    ("contextual", K2, {}, {"loss": 0.01948123, "context": 0.00629340, "contrastive": 0.15, "mean_cosine": 0.545}),
    ("contextual", {**K2, "loss_contextual_eps": 0.5}, {}, {"context": 0.01350908}),
    ("contextual", {**K2, "loss_contextual_pos_margin": 0.9}, {}, {"contrastive": 0.2}),
    ("hist", {**HIST, "loss_hist_tau": 32.0}, OF_HIST, {"distribution_loss": 2.0400198, "hypergraph_loss": 0.8944482}),
    ("hist", {**HIST, "loss_hist_tau": 1.0}, OF_HIST, {"distribution_loss": 0.6048190}),
    (
        "meanfield",
        {"loss_meanfield_alpha": 2.0, "loss_meanfield_beta": 10.0, "loss_meanfield_margin": 0.5},
        {"proxies": PINNED_VECTORS},
        {"loss": 0.3394990},
    ),
    ("circle_softmax", {"loss_circle_softmax_scale": 1}, OF_CIRCLE, {"loss": 1.0436040}),
    ("circle_softmax", {"loss_circle_softmax_scale": 64}, OF_CIRCLE, {"loss": 8.3478990}),
    ("center", {"loss_center_weight": 1.0}, {"proxies": torch.eye(3)}, {"loss": 0.3}),
]
