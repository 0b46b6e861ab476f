import ast
import re

NUMERATOR = "numerator"
DENOMINATOR = "denominator"
# What may be an expression of numbers alone.
_EXPRESSION = re.compile(r"[-+*/(). \d]*/[-+*/(). \d]*")


def fraction_parts(text):
    """Which digits of a text stand in a numerator and which in a denominator.

    Of the whole expression, as it would be when simplified: a denominator of
    a denominator is a numerator, as in figure 2 of Schlag et al. (2019).

    Args:
        text: A text with expressions of numbers in it.

    Returns:
        List of `"numerator"`, `"denominator"` or `None` for every character.

    Example:

    >>> fraction_parts("1/23")
    ['numerator', None, 'denominator', 'denominator']
    >>> fraction_parts("(1/2)/(3/4)")[-2]
    'numerator'
    """
    parts = [None] * len(text)
    for match in _EXPRESSION.finditer(text):
        expression = match[0].rstrip(" .")
        start = match.start() + len(expression)
        expression = expression.lstrip()
        start -= len(expression)
        try:
            tree = ast.parse(expression, mode="eval")
        except SyntaxError:
            # The signs of words, and what has variables in it.
            continue
        for node, part in _numbers(tree.body, None):
            for column in range(node.col_offset, node.end_col_offset):
                if expression[column].isdigit():
                    parts[start + column] = part
    return parts


def _numbers(node, part):
    """The numbers of an expression, and the part of a fraction that each is."""
    if isinstance(node, ast.Constant):
        yield node, part
    elif isinstance(node, ast.UnaryOp):
        yield from _numbers(node.operand, part)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        above = part or NUMERATOR
        below = NUMERATOR if above == DENOMINATOR else DENOMINATOR
        yield from _numbers(node.left, above)
        yield from _numbers(node.right, below)
    elif isinstance(node, ast.BinOp):
        yield from _numbers(node.left, part)
        yield from _numbers(node.right, part)
