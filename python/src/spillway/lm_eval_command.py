"""Makes `lm_eval --model spillway` known to the command lm_eval, which looks for no models outside of itself.

The wheel's spillway_lm_eval.pth imports this where the interpreter starts that command, and nowhere else. The model is
named when lm_eval's own models are, and imported when it is asked for.
"""

import importlib.abc
import importlib.util
import sys

_MODELS = "lm_eval.models"


class _Loader(importlib.abc.Loader):
    """Loads lm_eval's list of models, and adds one."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        from lm_eval.api.registry import model_registry
        model_registry.register("spillway", target="spillway.lm_eval:SpillwayLM")


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if fullname != _MODELS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        spec.loader = _Loader(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
