import time

import tqdm

# Between lines that say how far it is, where no bar does.
_SECONDS_PER_LINE = 60


class GenerationProgress:
    """Shows how far modules are: with bars, or lines where no terminal is.

    Args:
        num_modules: How many modules there are to be.
    """

    def __init__(self, num_modules):
        self._modules = tqdm.tqdm(
            total=num_modules, desc="modules", unit=" modules", leave=False
        )
        self._bars = {}  # of assemblies
        self._next_line = time.monotonic() + _SECONDS_PER_LINE

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for bar in (*self._bars.values(), self._modules):
            bar.close()

    def show(self, active):
        """Shows how many problems modules have.

        Args:
            active: List of the `ModuleAssembly`s that are worked on, or were
                completed since the last time.
        """
        for assembly in active:
            if assembly not in self._bars:
                self._bars[assembly] = tqdm.tqdm(
                    desc=assembly.module,
                    total=sum(assembly.counts.values()),
                    unit=" problems",
                    leave=False,
                )
            bar = self._bars[assembly]
            bar.update(sum(assembly.examples.values()) - bar.n)
            if assembly.is_complete:
                self._bars.pop(assembly).close()
                self._modules.update()
        if self._modules.disable and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _SECONDS_PER_LINE
            drawn = sum(sum(a.examples.values()) for a in active)
            wanted = sum(sum(a.counts.values()) for a in active)
            modules = ", ".join(a.module for a in active)
            print(f"{drawn:,} of {wanted:,} problems of {modules}.")
