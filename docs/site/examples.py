"""Shows examples as code on the site, and every object in its own module."""

import re

import griffe


class FencedExamples(griffe.Extension):
    """Fences examples, which Keras's style leaves open.

    Markdown would take their prompts for quotations.
    """

    def on_object(self, *, obj, **kwargs):
        """Rewrites the docstring of a module, a class or a function."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^>>> (?:.+\n?)+",
                lambda example: f"```pycon\n{example[0].rstrip()}\n```\n",
                obj.docstring.value,
                flags=re.M,
            )


class OwnModules(griffe.Extension):
    """Hides what packages export: their modules show it."""

    def on_module_members(self, *, mod, **kwargs):
        """Forgets a module's `__all__`."""
        mod.exports = None
