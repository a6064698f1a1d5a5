#include "policies/search/linear_program.h"

#include <Clp_C_Interface.h>

#include <limits>
#include <memory>

#include "spillway/error.h"

namespace spillway {
namespace {

struct DeleteModel {
  void operator()(Clp_Simplex* model) const { Clp_deleteModel(model); }
};

// The matrix by columns, as CLP takes it.
struct Columns {
  std::vector<CoinBigIndex> begin;
  std::vector<int> row;
  std::vector<double> value;
};

Columns ByColumn(const LinearProgram& program) {
  Columns columns;
  for (std::size_t variable = 0; variable < program.cost.size(); ++variable) {
    columns.begin.push_back(static_cast<CoinBigIndex>(columns.value.size()));
    for (std::size_t row = 0; row < program.rows.size(); ++row) {
      const double value = program.rows[row].coefficients[variable];
      if (value == 0.0) continue;
      columns.row.push_back(static_cast<int>(row));
      columns.value.push_back(value);
    }
  }
  columns.begin.push_back(static_cast<CoinBigIndex>(columns.value.size()));
  return columns;
}

void Load(const LinearProgram& program, Clp_Simplex* model) {
  const Columns columns = ByColumn(program);
  std::vector<double> low;
  std::vector<double> high;
  for (const LpRow& row : program.rows) {
    SPILLWAY_CHECK(row.coefficients.size() == program.cost.size());
    low.push_back(row.sense == RowSense::kEqual ? row.limit : -std::numeric_limits<double>::max());
    high.push_back(row.limit);
  }
  Clp_loadProblem(model, static_cast<int>(program.cost.size()),
                  static_cast<int>(program.rows.size()), columns.begin.data(), columns.row.data(),
                  columns.value.data(), program.low.data(), program.high.data(),
                  program.cost.data(), low.data(), high.data());
}

constexpr int kSolved = 0;
constexpr int kInfeasible = 1;

// Each starts from nothing: a simplex that goes on from where another gave up may end in an error.
using Simplex = int (*)(Clp_Simplex*);
constexpr Simplex kSimplexes[] = {
    [](Clp_Simplex* model) { return Clp_dual(model, 0); },
    [](Clp_Simplex* model) { return Clp_primal(model, 0); },
    [](Clp_Simplex* model) {
      Clp_scaling(model, 0);
      return Clp_primal(model, 0);
    },
};

using Model = std::unique_ptr<Clp_Simplex, DeleteModel>;

Model SolvedBy(const LinearProgram& program, Simplex simplex) {
  Model model(Clp_newModel());
  Clp_setLogLevel(model.get(), 0);
  Load(program, model.get());
  simplex(model.get());
  return model;
}

// The first verdict; nullopt: infeasible.
std::optional<Model> Solved(const LinearProgram& program) {
  for (const Simplex simplex : kSimplexes) {
    Model model = SolvedBy(program, simplex);
    if (Clp_status(model.get()) == kSolved) return model;
    if (Clp_status(model.get()) == kInfeasible) return std::nullopt;
  }
  SPILLWAY_CHECK(!"a verdict of one of the simplexes");
  return std::nullopt;
}

}  // namespace

std::optional<LpSolution> Solve(const LinearProgram& program) {
  SPILLWAY_CHECK(program.low.size() == program.cost.size());
  SPILLWAY_CHECK(program.high.size() == program.cost.size());
  const std::optional<Model> model = Solved(program);
  if (!model) return std::nullopt;
  LpSolution solution;
  solution.cost = Clp_objectiveValue(model->get());
  const double* x = Clp_primalColumnSolution(model->get());
  solution.x.assign(x, x + program.cost.size());
  const double* duals = Clp_dualRowSolution(model->get());
  solution.duals.assign(duals, duals + program.rows.size());
  return solution;
}

}  // namespace spillway
