"""500 random linear programs of the placement's form, solved by our solver and by HiGHS. Skips (exit 77) where highspy is
not installed: pip install highspy.

  python3 compare_highs.py path/to/lp_tool
"""

import random
import subprocess
import sys

PROGRAMS = 500
INFINITY = 1e30


def random_program(draw):
    """Three classes with shares in three tiers, memory of three tiers, two pass times bound by five resources each."""
    shares, variables = 9, 11
    cost = [1e-6 * (share % 3) for share in range(shares)] + [1.0, draw.uniform(1, 100)]
    high = [float(draw.random() > 0.1) for _ in range(shares)] + [INFINITY, INFINITY]
    rows = []
    for kind in range(3):
        rows.append(("=", 1.0, [1.0 if share // 3 == kind else 0.0 for share in range(shares)] + [0.0, 0.0]))
    sizes = [draw.uniform(1, 100) for _ in range(3)]
    for tier in range(3):
        row = [sizes[share // 3] * (1.0 if share % 3 == tier else draw.uniform(0, 0.05)) for share in range(shares)]
        rows.append(("<", draw.uniform(5, 120), row + [0.0, 0.0]))
    for kind in range(2):
        for _ in range(5):
            row = [draw.uniform(0, 50) * (share % 3 > 0) for share in range(shares)] + [0.0, 0.0]
            row[shares + kind] = -1.0
            rows.append(("<", -draw.uniform(0, 10), row))
    return cost, [0.0] * variables, high, rows


def text_of(program):
    cost, low, high, rows = program
    lines = [f"{len(cost)} {len(rows)}"] + [" ".join(map(repr, numbers)) for numbers in (cost, low, high)]
    lines += [" ".join([sense, repr(limit), *map(repr, row)]) for sense, limit, row in rows]
    return "\n".join(lines)


def solve_highs(highspy, program):
    cost, low, high, rows = program
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    for index in range(len(cost)):
        model.addVar(low[index], highspy.kHighsInf if high[index] == INFINITY else high[index])
        model.changeColCost(index, cost[index])
    for sense, limit, row in rows:
        used = [index for index, value in enumerate(row) if value != 0.0]
        model.addRow(limit if sense == "=" else -highspy.kHighsInf, limit, len(used), used, [row[i] for i in used])
    model.run()
    if model.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    assert model.getModelStatus() == highspy.HighsModelStatus.kOptimal, model.getModelStatus()
    return model.getInfo().objective_function_value


def main():
    try:
        import highspy
    except ImportError:
        print("skipped: highspy is not installed")
        return 77
    draw = random.Random(5)
    programs = [random_program(draw) for _ in range(PROGRAMS)]
    done = subprocess.run([sys.argv[1]], input="\n".join(map(text_of, programs)), capture_output=True, text=True,
                          check=True)
    answers = done.stdout.split()
    assert len(answers) == PROGRAMS, len(answers)
    feasible = 0
    for number, (program, answer) in enumerate(zip(programs, answers)):
        expected = solve_highs(highspy, program)
        if expected is None:
            assert answer == "infeasible", (number, answer)
            continue
        feasible += 1
        assert abs(float(answer) - expected) <= 1e-6 * max(1.0, abs(expected)), (number, answer, expected)
    print(f"{PROGRAMS} programs agree, {feasible} of them feasible")
    assert 50 < feasible < PROGRAMS, "the draw no longer covers both cases"
    return 0


if __name__ == "__main__":
    sys.exit(main())
