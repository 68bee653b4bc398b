#pragma once

#include <functional>
#include <mutex>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "gradwire/train/parallel/box_exchange.h"
#include "gradwire/train/parallel/parallel_module.h"
#include "tests/support/torch/loopback.h"

namespace gradwire::test {

/// Runs `body` on every rank of a job over loopback, with one torch thread each. `algorithm`:
/// forced, in tests that count bytes.
inline void on_parallel_ranks(int ranks, const std::function<void(const ProcessGroup&)>& body,
                              const std::string& algorithm = "") {
  CommunicatorOptions options;
  options.algorithm = algorithm;
  const auto with_one_thread = [&](const ProcessGroup& group) {
    at::set_num_threads(1);
    try {
      body(group);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << group->getRank() << ": " << error.what();
      throw;
    }
  };
  run_on_loopback(ranks, with_one_thread, options);
}

inline std::mutex& generator_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// Calls `make` with torch's generator at `seed`. Ranks are threads here, and share the generator.
template <class Make>
auto drawn_alike(std::uint64_t seed, const Make& make) {
  const std::lock_guard lock(generator_mutex());
  torch::manual_seed(seed);
  return make();
}

/// Small integers, whose sums and products are exact in any order.
inline torch::Tensor integers(const Shape& shape, int salt = 0,
                              torch::ScalarType type = torch::kFloat32) {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  const auto index = torch::arange(count, torch::kInt64);
  return ((index * index * 7 + index * 3 + salt).remainder(7) - 3).view(shape).to(type);
}

/// Replaces the parameters of the unsplit model by small integers.
inline void fill_with_integers(torch::nn::Module& plain) {
  const torch::NoGradGuard no_grad;
  int salt = 0;
  for (auto& item : plain.named_parameters()) {
    item.value().copy_(integers(item.value().sizes().vec(), ++salt, item.value().scalar_type()));
  }
}

/// Calls see(name, tensor of the split model, its part of the unsplit model's).
inline void for_each_part(
    const torch::nn::Module& split, const torch::nn::Module& plain, bool gradients,
    const std::function<void(const std::string&, torch::Tensor, torch::Tensor)>& see) {
  const auto boxes = parameter_boxes(split);
  const auto whole = plain.named_parameters();
  for (const auto& item : split.named_parameters()) {
    torch::Tensor expected = whole[item.key()];
    torch::Tensor actual = item.value();
    if (gradients) {
      expected = expected.grad();
      actual = actual.grad();
    }
    ASSERT_TRUE(actual.defined()) << item.key();
    const auto box = boxes.find(item.key());
    if (box != boxes.end()) {
      ASSERT_EQ(box->second.shape, expected.sizes().vec()) << item.key();
      const auto& [view, part] = box->second.part;
      expected = view_of_box(expected.contiguous().view(view), part).reshape(actual.sizes());
    }
    see(item.key(), actual, expected);
  }
}

inline void copy_parts(const torch::nn::Module& split, const torch::nn::Module& plain) {
  const torch::NoGradGuard no_grad;
  for_each_part(
      split, plain, false,
      [](const auto&, torch::Tensor own, const torch::Tensor& value) { own.copy_(value); });
}

inline void expect_equal(const torch::Tensor& actual, const torch::Tensor& expected,
                         const std::string& what, double tolerance = 0) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (tolerance == 0) {
    EXPECT_TRUE(torch::equal(actual, expected)) << what << "\n" << actual << "\n" << expected;
  } else {
    EXPECT_TRUE(torch::allclose(actual, expected, tolerance, tolerance))
        << what << ": " << (actual - expected).abs().max();
  }
}

inline void expect_parts(const torch::nn::Module& split, const torch::nn::Module& plain,
                         bool gradients, double tolerance = 0) {
  for_each_part(
      split, plain, gradients,
      [&](const std::string& name, const torch::Tensor& own, const torch::Tensor& expected) {
        expect_equal(own, expected, name, tolerance);
      });
}

/// Bytes of payload that this rank sends while `body` runs. Ends with a barrier of its own.
inline std::size_t bytes_sent(const ProcessGroup& group, const std::function<void()>& body) {
  const auto communicator = communicator_of(*group);
  const auto before = communicator->payload_bytes_sent();
  body();
  return communicator->payload_bytes_sent() - before;
}

/// <a, b> in double.
inline double inner_product(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kFloat64) * b.to(torch::kFloat64)).sum().item<double>();
}

/// Compares autograd's gradients with central differences, in float64. `function` maps this rank's
/// inputs to this rank's share of a scalar; the value is the sum over ranks. `replicated`: the
/// input is the same on every rank and counts once.
inline void gradcheck(const ProcessGroup& group, const std::vector<torch::Tensor>& inputs,
                      bool replicated, const std::function<torch::Tensor()>& function) {
  const auto total = [&] {
    const torch::NoGradGuard no_grad;
    return sum_over_ranks(*group, {function().item<double>()})[0];
  };
  for (const auto& input : inputs) input.mutable_grad() = torch::Tensor();
  function().backward();
  constexpr double kStep = 1e-5;
  for (const auto& input : inputs) {
    const torch::Tensor flat = input.detach().view(-1);
    // Every rank perturbs in its turn, and all evaluate.
    const int turns = replicated ? 1 : group->getSize();
    for (int turn = 0; turn < turns; ++turn) {
      const bool mine = replicated || turn == group->getRank();
      const auto elements = static_cast<std::int64_t>(
                                sum_over_ranks(*group, {mine ? double(flat.numel()) : 0.0})[0]) /
                            (replicated ? group->getSize() : 1);
      for (std::int64_t i = 0; i < elements; ++i) {
        const double value = mine ? flat[i].item<double>() : 0;
        if (mine) flat[i] = value + kStep;
        const double above = total();
        if (mine) flat[i] = value - kStep;
        const double below = total();
        if (mine) flat[i] = value;
        if (!mine) continue;
        const double expected = (above - below) / (2 * kStep);
        EXPECT_NEAR(input.grad().reshape({-1})[i].item<double>(), expected,
                    1e-6 * std::max(1.0, std::abs(expected)));
      }
    }
  }
}

}  // namespace gradwire::test
