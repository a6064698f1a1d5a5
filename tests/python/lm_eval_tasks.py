"""Tasks of lm-eval made from a text, without a network: endings to choose from (as HellaSwag), letters to choose from with
shots (as MMLU), a text to generate, and one whose perplexity is taken."""

import json
import random

_COMMON = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}, train: {shots}}}}}
test_split: test
fewshot_split: train
num_fewshot: {num_shots}
"""

_ENDINGS = """
output_type: multiple_choice
doc_to_text: "{{query}}"
doc_to_target: "{{label}}"
doc_to_choice: "{{endings}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
"""

_LETTERS = """
output_type: multiple_choice
doc_to_text: "{{question}}\\nA. {{choices[0]}}\\nB. {{choices[1]}}\\nC. {{choices[2]}}\\nD. {{choices[3]}}\\nAnswer:"
doc_to_choice: ["A", "B", "C", "D"]
doc_to_target: answer
description: "The following are multiple choice questions about numbers and words.\\n\\n"
metric_list: [{metric: acc}]
"""

_GENERATED = """
output_type: generate_until
doc_to_text: "{{query}}"
doc_to_target: "{{continuation}}"
generation_kwargs: {until: ["\\n\\n", "."], max_gen_toks: 24}
metric_list: [{metric: exact_match}]
"""

_ROLLING = """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{page}}"
metric_list: [{metric: word_perplexity}]
"""


def _write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def _endings(rng, words, count):
    """A beginning and four endings, one of them its own, of different lengths."""
    records = []
    for _ in range(count):
        place = rng.randrange(len(words) - 80)
        length = rng.randint(20, 45)
        label = rng.randrange(4)
        endings = []
        for choice in range(4):
            begin = place + length if choice == label else rng.randrange(len(words) - 20)
            endings.append(" ".join(words[begin:begin + rng.randint(4, 14)]))
        records.append({"query": " ".join(words[place:place + length]), "endings": endings, "label": label})
    return records


def _letters(rng, words, count):
    """Sums, and words in the order of letters."""
    records = []
    for index in range(count):
        answer = rng.randrange(4)
        if index % 2:
            a, b = rng.randint(2, 60), rng.randint(2, 60)
            others = rng.sample([delta for delta in range(-9, 10) if delta], 4)
            choices = [str(a + b if choice == answer else a + b + others[choice]) for choice in range(4)]
            question = f"What is {a} plus {b}?"
        else:
            choices = rng.sample(sorted({word.lower() for word in words if word.isalpha() and len(word) > 3}), 4)
            answer = choices.index(min(choices))
            question = "Which of these words comes first in a dictionary?"
        records.append({"question": question, "choices": choices, "answer": answer})
    return records


def write_tasks(folder, text, count):
    """Writes the tasks and their data; returns the names of the tasks. `count`: of questions."""
    rng = random.Random(4)
    words = text.split()
    pages = [" ".join(words[begin:begin + 30 + 150 * (begin % 7)]) for begin in range(0, 3000, 500)]
    tasks = {
        "endings": (_ENDINGS, _endings(rng, words, count), 0),
        "letters": (_LETTERS, _letters(rng, words, count), 3),
        "generated": (_GENERATED, [{"query": record["query"], "continuation": record["endings"][record["label"]]}
                                   for record in _endings(rng, words, max(4, count // 8))], 0),
        "rolling": (_ROLLING, [{"page": page} for page in pages], 0),
    }
    for name, (form, records, num_shots) in tasks.items():
        shots = _write(folder / f"{name}_shots.jsonl", records[:8])
        data = _write(folder / f"{name}.jsonl", records[8:] if num_shots else records)
        task = f"task: local_{name}\n" + _COMMON.format(data=data, shots=shots, num_shots=num_shots) + form
        (folder / f"{name}.yaml").write_text(task)
    return [f"local_{name}" for name in tasks]
