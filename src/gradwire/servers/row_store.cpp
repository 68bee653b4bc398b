#include "gradwire/servers/row_store.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"

namespace gradwire::servers {
namespace {

constexpr double kInitialRange = 0.01;
constexpr float kAdagradEpsilon = 1e-10F;  // torch::optim::AdagradOptions'.

}  // namespace

void check(const RowOptions& options) {
  constexpr std::int64_t kManyRows = 1'000'000'000'000, kWide = 1 << 16;
  if (options.rows < 1 || options.rows > kManyRows) {
    refuse("an embedding has {} rows; 1 to {} are possible", options.rows, kManyRows);
  }
  if (options.width < 1 || options.width > kWide) {
    refuse("an embedding's rows have width {}; 1 to {} are possible", options.width, kWide);
  }
  if (options.optimizer != "sgd" && options.optimizer != "adagrad") {
    refuse("an embedding's rows have optimizer \"{}\"; there are \"sgd\" and \"adagrad\"",
           options.optimizer);
  }
  if (!(options.learning_rate >= 0)) {
    refuse("an embedding's rows have learning rate {}; it must not be negative",
           options.learning_rate);
  }
}

void initial_row(std::uint64_t seed, std::int64_t id, std::span<float> row) {
  Random random(mixed_seed({seed, static_cast<std::uint64_t>(id)}));
  for (float& value : row) {
    value = static_cast<float>(kInitialRange * (2 * random.unit() - 1));
  }
}

void exact_square_roots(std::span<float> numbers) {
  for (float& number : numbers) number = std::sqrt(number);
}

RowStore::RowStore(const RowOptions& options, SquareRoots roots)
    : options_(options), width_(static_cast<std::size_t>(options.width)), roots_(std::move(roots)) {
  check(options);
}

void RowStore::read(std::span<const std::int64_t> ids, std::span<float> rows) const {
  GRADWIRE_CHECK(rows.size() == ids.size() * width_);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::span<float> row = rows.subspan(i * width_, width_);
    const auto found = slots_.find(ids[i]);
    if (found == slots_.end()) {
      initial_row(options_.seed, ids[i], row);
    } else {
      std::copy_n(values_.data() + found->second * width_, width_, row.data());
    }
  }
}

std::size_t RowStore::make(std::int64_t id) {
  const auto [place, is_new] = slots_.try_emplace(id, ids_.size());
  if (!is_new) return place->second;
  ids_.push_back(id);
  values_.resize(values_.size() + width_);
  initial_row(options_.seed, id, std::span(values_).last(width_));
  if (has_states()) states_.resize(values_.size());
  return place->second;
}

void RowStore::step(std::span<const std::int64_t> ids, std::span<const float> gradients,
                    double rate) {
  GRADWIRE_CHECK(gradients.size() == ids.size() * width_);
  stepped_.clear();
  for (const std::int64_t id : ids) stepped_.push_back(make(id));
  if (has_states()) {
    add_squares(gradients);
    gradients = directions_;
  }
  // torch adds sparse gradients by BLAS's axpy, which rounds a product and a sum once.
  const auto factor = -static_cast<float>(rate * options_.learning_rate);
  for (std::size_t row = 0; row < stepped_.size(); ++row) {
    const float* const direction = gradients.data() + row * width_;
    float* const values = values_.data() + stepped_[row] * width_;
    for (std::size_t i = 0; i < width_; ++i) {
      values[i] = std::fma(factor, direction[i], values[i]);
    }
  }
}

/// Adagrad: adds the squares of the gradients to the sums, and divides the gradients by their
/// roots.
void RowStore::add_squares(std::span<const float> gradients) {
  directions_.resize(gradients.size());
  for (std::size_t row = 0; row < stepped_.size(); ++row) {
    float* const sums = states_.data() + stepped_[row] * width_;
    for (std::size_t i = 0; i < width_; ++i) {
      const float gradient = gradients[row * width_ + i];
      sums[i] += gradient * gradient;
      directions_[row * width_ + i] = sums[i];
    }
  }
  roots_(directions_);
  for (std::size_t i = 0; i < directions_.size(); ++i) {
    directions_[i] = gradients[i] / (directions_[i] + kAdagradEpsilon);
  }
}

void RowStore::put(std::int64_t id, std::span<const float> values, std::span<const float> state) {
  GRADWIRE_CHECK(values.size() == width_ && state.size() == (has_states() ? width_ : 0));
  const std::size_t slot = make(id);
  std::ranges::copy(values, values_.data() + slot * width_);
  if (has_states()) std::ranges::copy(state, states_.data() + slot * width_);
}

std::size_t RowStore::bytes() const {
  constexpr std::size_t kNode = 32;  // A node of the hash map: id, slot, hash, link.
  return (values_.capacity() + states_.capacity()) * sizeof(float) +
         ids_.capacity() * sizeof(std::int64_t) + slots_.size() * kNode +
         slots_.bucket_count() * sizeof(void*);
}

}  // namespace gradwire::servers
