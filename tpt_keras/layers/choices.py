"""Named choices of an attention's parts: its mechanism and its binding."""

import keras


def make_choice(kind, base, table, name, options, /, **kwargs):
    """Makes a part of an attention by its name.

    Args:
        kind: What the part is called, for messages.
        base: The class that it has to be a subclass of.
        table: Dict of the built-in classes.
        name: A key of `table`, or the name under which a subclass of `base`
            is registered with Keras (`"package>Class"`).
        options: Dict of arguments of that class, or `None`.
        **kwargs: Arguments that every such class takes, where `options` does
            not say otherwise.

    Returns:
        A layer.

    Raises:
        ValueError: If there is no such part, or it takes no such options.
    """
    found = table.get(name) or keras.saving.get_registered_object(name)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(
            f"Unknown {kind} {name!r}. Known {kind}s: {', '.join(table)}; or "
            f"the name of one that is registered with Keras (a subclass of "
            f"{base.__name__}; import its module first)."
        )
    try:
        return found(**{**kwargs, **(options or {})})
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The {kind} {name!r} does not take the options {options}: {error}"
        ) from None
