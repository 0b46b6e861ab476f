import collections
import concurrent.futures

_END = object()


def made_ahead(items, size):
    """Generates what an iterator gives, which a thread makes ahead.

    In the same order, and an error comes where it would have come. The thread
    ends with the generator, whenever that is closed.

    Args:
        items: An iterator.
        size: How many items to have at most that nobody asked for.

    Yields:
        The items.

    Example:

    >>> list(made_ahead(iter("abc"), size=2))
    ['a', 'b', 'c']
    """
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        made = collections.deque(
            thread.submit(next, items, _END) for _ in range(size)
        )
        try:
            while (item := made.popleft().result()) is not _END:
                made.append(thread.submit(next, items, _END))
                yield item
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
