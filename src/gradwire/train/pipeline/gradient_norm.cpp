#include "gradwire/train/pipeline/gradient_norm.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "gradwire/train/pipeline/error_context.h"

namespace gradwire {
namespace {

/// `squares`: of replicated parameters, then of divided ones. Every sum over the pipeline has one
/// addend that is not zero, and is exact.
double sum_of_squares(const HybridStages& model, const Pipeline::Options& options,
                      std::vector<double> squares) {
  const bool is_divided = options.tensor->getSize() > 1;
  if (!is_divided) squares.resize(model.all_parameters);
  squares = sum_over_ranks(*options.process_group, std::move(squares));
  for (const std::size_t repeated : model.ties->repeated()) {
    squares[repeated] = 0;
    if (is_divided) squares[model.all_parameters + repeated] = 0;
  }
  const auto end = squares.begin() + static_cast<std::ptrdiff_t>(model.all_parameters);
  const double replicated = std::accumulate(squares.begin(), end, 0.0);
  if (!is_divided) return replicated;
  return replicated +
         sum_over_ranks(*options.tensor, {std::accumulate(end, squares.end(), 0.0)})[0];
}

}  // namespace

double squared_norm(const HybridStages& model, const Pipeline::Options& options,
                    std::int64_t step) {
  std::vector<double> squares(2 * model.all_parameters, 0);
  const auto divided = squares.begin() + static_cast<std::ptrdiff_t>(model.all_parameters);
  for (std::size_t s = 0; s < model.stages.size(); ++s) {
    with_context(update_of(model.stages[s].stage, step), [&] {
      const SquaredNorms own = model.stages[s].update->squared_norms();
      const auto first = static_cast<std::ptrdiff_t>(model.first_parameter[s]);
      std::ranges::copy(own.replicated, squares.begin() + first);
      std::ranges::copy(own.divided, divided + first);
    });
  }
  double norm = 0;
  with_context(update_of(model.stages.front().stage, step) + ": norm of all gradients",
               [&] { norm = sum_of_squares(model, options, std::move(squares)); });
  return norm;
}

}  // namespace gradwire
