"""Whether a ratio that was measured in several rounds is within its bar. "met" and "NOT met" are said only where noise
cannot turn them over: where the whole interval that holds the ratio's median is on one side of the bar. Needs nothing but
Python."""

import math

ROUNDS_MIN = 3
CONFIDENCE = 0.9


def interval(ratios):
    """The narrowest pair of the sorted ratios with their median between them in at least CONFIDENCE of all cases, whatever
    their distribution: a ratio is above the median as often as below it. Of four and fewer the smallest and the greatest,
    which hold it in 7 of 8 cases or less."""
    ordered, count, cut = sorted(ratios), len(ratios), 0
    while 2 * (cut + 2) <= count:
        outside = 2 * sum(math.comb(count, below) for below in range(cut + 2)) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        cut += 1
    return ordered[cut], ordered[count - 1 - cut]


def judge(ratios, max_ratio=math.inf, min_ratio=-math.inf):
    """Of a ratio that is to be at most `max_ratio`, or at least `min_ratio`."""
    if len(ratios) < ROUNDS_MIN:
        return "cannot be told of so few rounds"
    low, high = interval(ratios)
    if high <= max_ratio and low >= min_ratio:
        return "met"
    return "NOT met" if low > max_ratio or high < min_ratio else "cannot be told"


def paired(ours, theirs):
    """Ratios by round: what the two had in common in it does not count."""
    return [a / b for a, b in zip(ours, theirs)]
