"""Decides whether a ratio, measured in several rounds, meets its bar. The verdict is "met" or "NOT met" only if noise
cannot reverse it: the whole confidence interval of the median must be on one side of the bar. Needs only Python."""

import math

ROUNDS_MIN = 3
CONFIDENCE = 0.9


def interval(ratios):
    """Returns the narrowest pair of the sorted ratios that contains the true median with probability CONFIDENCE, for
    any distribution: a ratio is as likely above the median as below it. For four or fewer ratios, returns the smallest
    and the largest, which contain it in at most 7 of 8 cases."""
    ordered, count, cut = sorted(ratios), len(ratios), 0
    while 2 * (cut + 2) <= count:
        outside = 2 * sum(math.comb(count, below) for below in range(cut + 2)) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        cut += 1
    return ordered[cut], ordered[count - 1 - cut]


def judge(ratios, max_ratio=math.inf, min_ratio=-math.inf):
    """Returns the verdict on a ratio that must be at most `max_ratio`, or at least `min_ratio`."""
    if len(ratios) < ROUNDS_MIN:
        return "cannot be told of so few rounds"
    low, high = interval(ratios)
    if high <= max_ratio and low >= min_ratio:
        return "met"
    return "NOT met" if low > max_ratio or high < min_ratio else "cannot be told"


def paired(ours, theirs):
    """Returns the ratio of each round, which cancels effects on both."""
    return [a / b for a, b in zip(ours, theirs)]
