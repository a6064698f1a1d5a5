"""Stand-ins for what benchmarks/gpu_table.py and scripts/gpu_step.sh call on a machine with a GPU, in a folder of a test.
Standard library only."""

import pathlib

FLEXGEN_LOG = (
    "model size: 12.386 GB\tcache size: 0.531 GB\thidden size (p): 0.008 GB\n"
    "peak gpu mem: 13.500 GB\tprojected: False\n"
    "prefill latency: 0.250 s\tprefill throughput: 4096.000 token/s\n"
    "decode latency: 1.550 s\tdecode throughput: 40.000 token/s\n"
    "total latency: 1.800 s\ttotal throughput: 35.556 token/s\n"
)
NVIDIA_SMI = """#!/bin/sh
case "$*" in
  -L) echo "GPU 0: NVIDIA Test (UUID: GPU-1)" ;;
  *memory.total*) echo 81920 ;;
  *memory.used*) echo 1234 ;;
  *driver*) echo 1.2.3 ;;
esac
"""


def write(path, text):
    """An executable file. Returns its path."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_peers(place):
    """FlexGen's modules as far as they are called, and a torch that notes its cap. 1024 new tokens take a minute."""
    write(place / "torch.py", (
        "__version__, float16 = '0', None\n"
        "class ones:\n"
        "    def __init__(self, *_, **__): pass\n"
        "    def __matmul__(self, _): return self\n"
        "    def sum(self): return self\n"
        "    def item(self): return 0\n"
        "class cuda:\n"
        "    init = staticmethod(lambda: None)\n"
        "    mem_get_info = staticmethod(lambda: (79 << 30, 80 << 30))\n"
        "    memory_reserved = staticmethod(lambda: 1 << 29)\n"
        "    set_per_process_memory_fraction = staticmethod(lambda frac: print(f'fraction {frac}'))\n"))
    write(place / "transformers.py", "class AutoTokenizer:\n    pass\n")
    write(place / "flexgen/__init__.py", "")
    write(place / "flexgen/opt_config.py", (
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass OptConfig:\n    max_seq_len: int = 2048\n"
        "def get_opt_config(name):\n    return OptConfig()\n"))
    write(place / "flexgen/timer.py", (
        "class _Timer:\n    name, costs = 'generate', [0.5]\n    def stop(self): pass\n    def reset(self): pass\n"))
    write(place / "flexgen/flex_opt.py", (
        "import sys, time\nfrom transformers import AutoTokenizer\nfrom flexgen.opt_config import get_opt_config\n"
        "from flexgen.timer import _Timer\n"
        "ids = AutoTokenizer.from_pretrained('facebook/opt-30b', padding_side='left')(['x'], padding='max_length', max_length=6)\n"
        "assert len(ids.input_ids[0]) == 6\nprint('positions', get_opt_config('facebook/opt-6.7b').max_seq_len)\n"
        "timer = _Timer()\ntimer.stop()\ntimer.reset()\ntimer.stop()\ntimer.stop()\n"
        "if '--gen-len' in sys.argv and sys.argv[sys.argv.index('--gen-len') + 1] == '1024': time.sleep(60)\n"
        f"print({FLEXGEN_LOG!r})\n"))
    return place
