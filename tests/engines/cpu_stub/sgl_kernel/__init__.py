"""Stands in for SGLang's CUDA kernels, which cannot be imported without a GPU.

Any name can be imported from here or from a submodule; calling one raises, so a path that would need a kernel is seen.
"""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0.4.10"


class Missing:
    def __init__(self, name):
        self._name = name
        self.__name__ = name.rsplit(".", 1)[-1]

    def __call__(self, *_args, **_kwargs):
        raise NotImplementedError(f"{self._name} needs a GPU")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")


def lookup(prefix):
    def find(name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{prefix}.{name}")

    return find


__getattr__ = lookup("sgl_kernel")


class Loader(importlib.abc.Loader):
    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lookup(spec.name)
        return module

    def exec_module(self, module):
        pass


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("sgl_kernel."):
            return None
        return importlib.machinery.ModuleSpec(fullname, Loader(), is_package=True)


sys.meta_path.insert(0, Finder())
