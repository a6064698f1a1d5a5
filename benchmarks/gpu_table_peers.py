"""The peers of gpu_table.py, one in a process of its own, where torch and the peer are installed. None of them needs a
network: tokens are random ids, configurations are built here. Each tells every pass as "gpu_table pass SECONDS", so that
a run that is cut off has said what it did.

  python3 gpu_table_peers.py flexgen GPU_BYTES POSITIONS ROWS [its own flags]
  python3 gpu_table_peers.py accelerate GPU_BYTES POSITIONS ROWS LAYERS HIDDEN HEADS PROMPT NEW WEIGHTS_ON_GPU CPU_BYTES

GPU_BYTES 0: no cap.
"""

import os
import random
import runpy
import sys
import time
import traceback

VOCABULARY = 50272


def tell(what, value):
    print(f"\ngpu_table {what} {value}", flush=True)


def cap_gpu(limit_bytes):
    """The cap counts what nvidia-smi counts. torch's own limit knows its tensors only, so what the driver and the
    libraries took comes off, as it does from Spillway's --gpu-memory."""
    import torch

    torch.cuda.init()
    x = torch.ones(256, 256, dtype=torch.float16, device="cuda:0")
    (x @ x).sum().item()
    free, total = torch.cuda.mem_get_info()
    outside = total - free - torch.cuda.memory_reserved()
    if limit_bytes:
        torch.cuda.set_per_process_memory_fraction((limit_bytes - outside) / total)
    tell("versions", f"torch {torch.__version__}, outside torch {outside} bytes")


class RandomTokens:
    """Stands in for a tokenizer, which would be downloaded."""

    def __call__(self, prompts, max_length, **_):
        draw = random.Random(0)
        self.input_ids = [[draw.randrange(4, VOCABULARY) for _ in range(max_length)] for _ in prompts]
        return self


def flexgen(limit_bytes, positions, rows, flags):
    """FlexGen, or h2o_flexgen where that is the first `flexgen` on the path."""
    cap_gpu(limit_bytes)
    import dataclasses

    import transformers

    transformers.AutoTokenizer.from_pretrained = lambda *_, **__: RandomTokens()
    from flexgen import opt_config, timer

    config_of = opt_config.get_opt_config
    opt_config.get_opt_config = lambda name: dataclasses.replace(config_of(name), max_seq_len=positions)
    stop, reset = timer._Timer.stop, timer._Timer.reset

    def stop_and_tell(self, *arguments):
        stop(self, *arguments)
        if self.name == "generate":
            tell("pass", self.costs[-1])

    def reset_and_tell(self):
        reset(self)
        if self.name == "generate":
            tell("begin", rows)

    timer._Timer.stop, timer._Timer.reset = stop_and_tell, reset_and_tell
    sys.argv = ["flexgen.flex_opt", *flags]
    runpy.run_module("flexgen.flex_opt", run_name="__main__", alter_sys=True)


def dummy_opt(positions, layers, hidden, heads):
    """Weights in fp16 in CPU memory, of one block of random numbers over and over: made at the rate of a copy."""
    import accelerate
    import accelerate.utils
    import torch
    import transformers

    config = transformers.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=hidden, word_embed_proj_dim=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, ffn_dim=4 * hidden, max_position_embeddings=positions,
    )
    with accelerate.init_empty_weights():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16)
    block = (torch.randn(1 << 20) * 0.02).half()
    for name, parameter in list(model.named_parameters()):
        value = block.repeat(-(-parameter.numel() // block.numel()))[: parameter.numel()].view(parameter.shape)
        accelerate.utils.set_module_tensor_to_device(model, name, "cpu", value=value)
    model.tie_weights()
    return model.eval()


def generate(model, rows, prompt_len, gen_len):
    """Greedy; the head is given the last position only."""
    import torch

    tell("begin", rows)
    ids, past = torch.randint(4, VOCABULARY, (rows, prompt_len), device="cuda:0"), None
    for _ in range(gen_len):
        begin = time.perf_counter()
        output = model.model(ids, past_key_values=past, use_cache=True)
        past = output.past_key_values
        ids = model.lm_head(output.last_hidden_state[:, -1].contiguous()).argmax(-1, keepdim=True).to("cuda:0")
        torch.cuda.synchronize()
        tell("pass", time.perf_counter() - begin)


def accelerate_opt(limit_bytes, positions, rows, numbers):
    layers, hidden, heads, prompt_len, gen_len, weights_on_gpu, cpu_bytes = map(int, numbers)
    cap_gpu(limit_bytes)
    import accelerate
    import torch

    model = dummy_opt(positions, layers, hidden, heads)
    device_map = accelerate.infer_auto_device_map(
        model, max_memory={0: weights_on_gpu, "cpu": cpu_bytes}, no_split_module_classes=["OPTDecoderLayer"]
    )
    model = accelerate.dispatch_model(model, device_map, main_device=0)
    with torch.inference_mode():
        while rows:
            try:
                return generate(model, rows, prompt_len, gen_len)
            except torch.cuda.OutOfMemoryError:
                print(f"{rows} rows do not fit")
            torch.cuda.empty_cache()
            rows //= 2
    raise MemoryError("no batch fits")


if __name__ == "__main__":
    program = {"flexgen": flexgen, "accelerate": accelerate_opt}[sys.argv[1]]
    status = 0
    try:
        program(*map(int, sys.argv[2:5]), sys.argv[5:])
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # FlexGen's copy threads would keep a failed process alive
