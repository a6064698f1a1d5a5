"""SpillwayPredictor in Ray Data's map_batches, on one node with two actors. Skipped without ray.

  python3 ray_test.py path/to/spillway [unittest arguments]
"""

import collections
import os
import unittest

import package

package.take_binary()
package.skip_without("ray")

import ray  # noqa: E402

from spillway import Engine  # noqa: E402
from spillway.ray import SpillwayPredictor  # noqa: E402

PROMPTS = [f"The king had {count} sons" for count in range(24)]


class RayTest(unittest.TestCase):
    def test_two_actors_give_the_answers_of_one_engine(self):
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
        ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
        self.addCleanup(ray.shutdown)

        class Named(SpillwayPredictor):
            def __call__(self, batch):
                return {**super().__call__(batch), "process": [os.getpid()] * len(batch["prompt"])}

        dataset = ray.data.from_items([{"prompt": prompt, "seed": seed} for seed, prompt in enumerate(PROMPTS)])
        rows = dataset.repartition(6).map_batches(
            Named, fn_constructor_kwargs={"max_new_tokens": 5, "options": {"temperature": 0.8}, "option_columns": ["seed"],
                                          "threads": 1},
            batch_size=4, concurrency=2).take_all()
        with Engine(max_new_tokens=5) as engine:
            requests = [{"prompt": prompt, "seed": seed, "temperature": 0.8} for seed, prompt in enumerate(PROMPTS)]
            wanted = {request["prompt"]: answer.text for request, answer in zip(requests, engine.generate(requests))}
        self.assertEqual({row["prompt"]: row["generated_text"] for row in rows}, wanted)
        self.assertEqual([row["error"] for row in rows], [None] * len(PROMPTS))
        self.assertEqual(len(collections.Counter(row["process"] for row in rows)), 2)


if __name__ == "__main__":
    package.main()
