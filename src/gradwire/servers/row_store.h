#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace gradwire::servers {

/// How the rows of a table begin, and how they are stepped. The same on workers and servers.
struct RowOptions {
  std::int64_t rows = 0;   ///< Ids are 0 .. rows - 1.
  std::int64_t width = 0;  ///< Elements of a row.
  std::uint64_t seed = 0;
  std::string optimizer = "sgd";  ///< "sgd", or "adagrad": torch::optim's, without further options.
  double learning_rate = 0.05;
};
/// Throws Exception(invalid_argument) that names the option.
void check(const RowOptions& options);

/// Writes the initial values of a row: uniform in [-0.01, 0.01), from the seed and the id alone.
void initial_row(std::uint64_t seed, std::int64_t id, std::span<float> row);

/// Replaces numbers by their square roots. torch's differ from std::sqrt in the last bit.
using SquareRoots = std::function<void(std::span<float>)>;
void exact_square_roots(std::span<float> numbers);

/// Rows of a table, and their optimizer. A row is made by its first step; until then it is not
/// stored, as its values are known. The arithmetic is that of torch::optim's steps with sparse
/// gradients, bit for bit if `roots` are torch's. Memory: 4 bytes for each element of a row that
/// was made, with Adagrad 8, and about 32 for its id; twice that while the store grows.
/// Not thread-safe.
class RowStore {
 public:
  explicit RowStore(const RowOptions& options, SquareRoots roots = exact_square_roots);

  /// Writes the values of these rows to `rows`, one after the other.
  void read(std::span<const std::int64_t> ids, std::span<float> rows) const;
  /// Steps the rows with these gradients at `rate` times the learning rate. Ids are distinct.
  void step(std::span<const std::int64_t> ids, std::span<const float> gradients, double rate = 1);

  /// Rows that were made, in the order of their first step.
  std::span<const std::int64_t> ids() const { return ids_; }
  /// Their values, and with Adagrad the sums of squares, row by row.
  std::span<const float> values() const { return values_; }
  std::span<const float> states() const { return states_; }
  /// Makes a row, or replaces it. `state`: empty unless the optimizer is Adagrad.
  void put(std::int64_t id, std::span<const float> values, std::span<const float> state);
  std::size_t bytes() const;

 private:
  std::size_t make(std::int64_t id);
  void add_squares(std::span<const float> gradients);
  bool has_states() const { return options_.optimizer == "adagrad"; }

  RowOptions options_;
  std::size_t width_;
  std::unordered_map<std::int64_t, std::size_t> slots_;  ///< By id.
  std::vector<std::int64_t> ids_;                        ///< By slot.
  std::vector<float> values_, states_;
  SquareRoots roots_;
  std::vector<std::size_t> stepped_;  ///< Slots of the rows of a step.
  std::vector<float> directions_;     ///< With Adagrad: by row of a step.
};

}  // namespace gradwire::servers
