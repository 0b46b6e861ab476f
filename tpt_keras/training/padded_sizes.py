"""Sizes to pad to, of which there are few."""


def padded_size(size, limit):
    """The next of 8, 12, 16, 24, 32, 48, 64, 96 and so on.

    So few that a program for each is soon compiled; of those above 8, a third
    is padding at most.

    Args:
        size: Integer.
        limit: What need not be exceeded, but for a larger size itself.

    Returns:
        Integer that is not smaller than the size.

    Example:

    >>> [padded_size(size, 50) for size in (3, 8, 9, 33, 49, 70)]
    [8, 8, 12, 48, 50, 70]
    """
    power = 8
    while 2 * power < size:
        power *= 2
    steps = (power, power * 3 // 2, 2 * power)
    step = next(step for step in steps if step >= size)
    return min(step, max(limit, size))
