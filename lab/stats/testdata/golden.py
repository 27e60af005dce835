"""Writes golden.json beside itself: what SciPy and statsmodels make of the same
data. Run it with any Python that has numpy, scipy and statsmodels:

    python3 golden.py

The data are drawn from a fixed seed and rounded to six decimals, so that both
sides read the same numbers from the file.
"""

import json
import os

import numpy as np
import scipy
import scipy.stats as st
import statsmodels
from statsmodels.stats.multitest import multipletests

rng = np.random.default_rng(20)


def walsh(x):
    """All means of two values, each with itself too."""
    i, j = np.triu_indices(len(x))
    return (x[i] + x[j]) / 2


def hodges_lehmann(x):
    return float(np.median(walsh(np.asarray(x))))


def signed_ranks(x, axis=-1):
    """Sum of the ranks of the positive values, middle ranks for ties; zeros are
    ranked and counted half to each side, which moves both tails alike."""
    ranks = st.rankdata(np.abs(x), axis=axis)
    return np.sum(ranks * (np.sign(x) + 1) / 2, axis=axis)


def sign_flip(x):
    """Exact two-sided p over all 2^n patterns of signs. permutation_test with one
    sample and permutation_type="samples" swaps nothing, so both members of each
    pair are given: (x, 0) and their swap differ by the sign of the difference."""
    x = np.asarray(x)

    def statistic(a, b, axis=-1):
        return signed_ranks(a - b, axis=axis)

    r = st.permutation_test(
        (x, np.zeros_like(x)), statistic, permutation_type="samples",
        vectorized=True, n_resamples=np.inf, alternative="two-sided", batch=1 << 12,
    )
    return float(r.pvalue)


def percentile(x, level):
    """Plain bootstrap percentile interval of the Hodges-Lehmann centre."""

    def centre(sample, axis):
        i, j = np.triu_indices(sample.shape[-1])
        return np.median((sample[..., i] + sample[..., j]) / 2, axis=axis)

    r = st.bootstrap(
        (np.asarray(x),), centre, vectorized=True, n_resamples=40000, batch=2000,
        confidence_level=level, method="percentile", rng=np.random.default_rng(1),
    )
    return [float(r.confidence_interval.low), float(r.confidence_interval.high)]


samples = {
    "two": rng.normal(0.02, 0.01, 2),
    "five": rng.normal(0.02, 0.03, 5),
    "normal12": rng.normal(0.02, 0.03, 12),
    "normal15": rng.normal(0.0, 0.03, 15),
    "heavy14": 0.02 * rng.standard_t(3, 14) + 0.015,
    "outlier13": np.append(rng.normal(0.03, 0.02, 12), 1.0986),
    "onesided12": np.abs(rng.normal(0.03, 0.01, 12)),
    "ties10": np.array([1, 1, -1, 2, 2, 2, -3, 3, 4, 4]) / 100,
    "zeros9": np.array([0, 0, 1, 2, -1, 3, 4, 5, 5]) / 100,
}

out = {
    "made": {
        "by": f"golden.py: numpy {np.__version__}, scipy {scipy.__version__}, statsmodels {statsmodels.__version__}",
        "centre": "numpy.median of all Walsh averages",
        "p": "scipy.stats.permutation_test, all patterns, signed ranks",
        "wilcoxon": "scipy.stats.wilcoxon(method='exact'); only without ties and zeros",
        "percentile": "scipy.stats.bootstrap(method='percentile'), 40000 resamples, level 0.95",
        "quantiles": "numpy.quantile(method='linear') at 0, 0.1, 0.25, 0.5, 0.9, 1",
        "holm": "statsmodels.stats.multitest.multipletests(method='holm')",
        "student": "scipy.stats.t.ppf",
        "large": "scipy.stats.wilcoxon(method='exact') of 300 values, centre as above",
    },
    "samples": {},
    "holm": [],
    "student": [],
}

for name, x in samples.items():
    x = np.round(x, 6)
    s = {
        "x": x.tolist(),
        "centre": hodges_lehmann(x),
        "p": sign_flip(x),
        "quantiles": [float(np.quantile(x, q)) for q in (0, 0.1, 0.25, 0.5, 0.9, 1)],
    }
    if len(set(np.abs(x))) == len(x) and 0 not in x:
        s["wilcoxon"] = float(st.wilcoxon(x, method="exact").pvalue)
    if len(x) >= 9 and name != "outlier13":
        s["percentile"] = percentile(x, 0.95)
    out["samples"][name] = s

for p in ([0.01, 0.04, 0.03, 0.005], [0.0004, 0.5, 0.5, 0.02, 0.9, 0.0004], [0.2], [0.6, 0.7]):
    out["holm"].append({"p": p, "adjusted": multipletests(p, method="holm")[1].tolist()})

for df in (1, 2, 3, 5, 11, 23, 24, 100):
    for q in (0.6, 0.9, 0.975, 0.995):
        out["student"].append([q, df, float(st.t.ppf(q, df))])

large = np.round(rng.normal(0.0075, 0.03, 300), 9)
out["large"] = {
    "x": large.tolist(),
    "centre": hodges_lehmann(large),
    "p": float(st.wilcoxon(large, method="exact").pvalue),
}

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden.json"), "w") as f:
    json.dump(out, f, indent=1)
    f.write("\n")
