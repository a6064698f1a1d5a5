"""Greedy rows of two engines, compared by the parity rule of the project. Standard library only.

A row is {"prompt": [ids], "tokens": [ids], "top": [[id, logprob, id, logprob, ...] per step, best first]}.
The rule: tokens are equal; a first difference is allowed only where the reference's two best logprobs are closer than
GAP_TOLERANCE, and ends the comparison of its row. Before it, logprobs of the chosen tokens differ by at most the
tolerance, those of the five best by at most twice that: an error of the logits moves an improbable token's more.
"""

import dataclasses

GAP_TOLERANCE = 0.02
LOGPROB_TOLERANCE = 0.002
NUM_TOP = 5


@dataclasses.dataclass
class Summary:
    """Result of a comparison of many rows; `failures` holds one sentence for each broken rule."""

    num_rows: int = 0
    num_steps: int = 0
    num_near_ties: int = 0
    num_divergences: int = 0
    max_chosen_error: float = 0.0
    max_top_error: float = 0.0
    failures: list = dataclasses.field(default_factory=list)


def top_gap(step):
    return step[1] - step[3]


def _step_errors(reference_step, step):
    """(error of the chosen token's logprob, largest error among the best by rank)."""
    expected, found = reference_step[1::2], step[1::2]
    errors = [abs(a - b) for a, b in zip(expected, found)]
    return errors[0], max(errors)


def _compare_row(summary, reference, row, name, tolerance, gap_tolerance):
    for step, expected in enumerate(reference["tokens"]):
        gap = top_gap(reference["top"][step])
        summary.num_near_ties += gap < gap_tolerance
        found = row["tokens"][step] if step < len(row["tokens"]) else None
        if found != expected:
            summary.num_divergences += 1
            if gap >= gap_tolerance:
                summary.failures.append(f"{name}, step {step}: token {found}, expected {expected} (gap {gap:.4f})")
            return
        chosen_error, top_error = _step_errors(reference["top"][step], row["top"][step])
        summary.num_steps += 1
        summary.max_chosen_error = max(summary.max_chosen_error, chosen_error)
        summary.max_top_error = max(summary.max_top_error, top_error)
        if chosen_error > tolerance or top_error > 2 * tolerance:
            summary.failures.append(
                f"{name}, step {step}: logprob error {chosen_error:.5f} (best five {top_error:.5f}) over {tolerance}"
            )
    if len(row["tokens"]) != len(reference["tokens"]):
        summary.failures.append(f"{name}: {len(row['tokens'])} tokens, expected {len(reference['tokens'])}")


def compare(reference_rows, rows, tolerance=LOGPROB_TOLERANCE, gap_tolerance=GAP_TOLERANCE):
    summary = Summary(num_rows=len(reference_rows))
    if len(rows) != len(reference_rows):
        summary.failures.append(f"{len(rows)} rows, expected {len(reference_rows)}")
    for index, (reference, row) in enumerate(zip(reference_rows, rows)):
        name = f"row {index} ({len(reference['prompt'])} prompt tokens)"
        _compare_row(summary, reference, row, name, tolerance, gap_tolerance)
    return summary


TABLE_HEAD = f"{'model':<36} {'rows':>4} {'steps':>6} {'near ties':>9} {'diverged':>8} {'logprob':>9} {'best five':>9}"


def table_line(name, summary):
    verdict = "ok" if not summary.failures else f"FAILED ({len(summary.failures)})"
    return (
        f"{name:<36} {summary.num_rows:>4} {summary.num_steps:>6} {summary.num_near_ties:>9} "
        f"{summary.num_divergences:>8} {summary.max_chosen_error:>9.5f} {summary.max_top_error:>9.5f}  {verdict}"
    )
