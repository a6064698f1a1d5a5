"""SpillwayPredictor by itself: the columns that it reads and adds. Standard library only.

  python3 predictor_test.py path/to/spillway [unittest arguments]
"""

import pickle
import unittest

import package

package.take_binary()

from spillway.ray import SpillwayPredictor  # noqa: E402  # the path is set first


class PredictorTest(unittest.TestCase):
    def test_columns_of_completions(self):
        predictor = SpillwayPredictor(max_new_tokens=3, options={"temperature": 0.9}, option_columns=["seed"])
        batch = {"prompt": ["A", [2, 37], "x" * 9000], "seed": [1, 2, 3], "kept": [7, 8, 9]}
        answers = predictor(batch)
        self.assertEqual(answers["kept"], [7, 8, 9])
        self.assertEqual(answers["generated_tokens"], [3, 3, None])
        self.assertEqual(answers["error"][:2], [None, None])
        self.assertIn("context_length_exceeded", answers["error"][2])
        self.assertEqual(answers["generated_text"][2], None)
        self.assertEqual(answers["finish_reason"], ["length", "length", None])
        self.assertEqual(predictor(batch), answers)  # seeds make the place of a row unimportant

    def test_columns_of_scores(self):
        predictor = SpillwayPredictor(verb="score", input_column="text", context_column="context")
        answers = predictor({"context": ["The king's ", "The king's "], "text": ["son", "teapot"]})
        self.assertGreater(*answers["logprob_sum"])
        whole = SpillwayPredictor(verb="score", input_column="text")({"text": ["The king's son"]})
        self.assertEqual((len(whole["greedy_match"]), whole["error"]), (1, [None]))

    def test_what_makes_no_sense_is_refused(self):
        for arguments in ({"verb": "chat"}, {"context_column": "context"}):
            with self.assertRaises(ValueError):
                SpillwayPredictor(**arguments)
        pickle.dumps(SpillwayPredictor)


if __name__ == "__main__":
    package.main()
