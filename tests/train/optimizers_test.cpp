#include <cmath>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/optim/ranger_lars.h"
#include "gradwire/train/optim/rectified_adam.h"
#include "gradwire/train/optim/yogi.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<double>;

/// A 3 x 4 matrix and a vector of 5, in double, with gradients that change from step to step.
struct Problem {
  Problem() {
    auto generator = at::detail::createCPUGenerator(3);
    matrix = torch::randn({3, 4}, generator, torch::kFloat64).requires_grad_();
    vector = torch::randn({5}, generator, torch::kFloat64).requires_grad_();
  }
  std::vector<torch::Tensor> parameters() const { return {matrix, vector}; }

  void set_gradients(int step) {
    auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step) + 100);
    for (auto* parameter : {&matrix, &vector}) {
      parameter->mutable_grad() = torch::randn(parameter->sizes(), generator, torch::kFloat64);
    }
  }

  void train(torch::optim::Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      set_gradients(step);
      optimizer.step();
    }
  }

  torch::Tensor matrix;
  torch::Tensor vector;
};

Values values_of(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

double norm(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

void expect_near(const torch::Tensor& tensor, const Values& expected) {
  const auto actual = values_of(tensor);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-12) << i;
}

constexpr double kRate = 0.5;
constexpr double kDecay = 0.1;
constexpr double kMomentum = 0.9;
constexpr double kTrust = 0.02;

LarsOptions lars_options() {
  LarsOptions options(kRate);
  return options.momentum(kMomentum).weight_decay(kDecay).trust_coefficient(kTrust);
}

LambOptions lamb_options() {
  LambOptions options(kRate);
  return options.weight_decay(kDecay);
}

/// Equation 6 and algorithm 1 of the paper, element by element.
void lars_reference(Values& w, const Values& g, Values& v, bool adapt) {
  const double decay = adapt ? kDecay : 0;
  const double trust = adapt ? kTrust * norm(w) / (norm(g) + decay * norm(w)) : 1;
  for (std::size_t i = 0; i < w.size(); ++i) {
    v[i] = kMomentum * v[i] + kRate * trust * (g[i] + decay * w[i]);
    w[i] -= v[i];
  }
}

TEST(Lars, IsTheFormulaOfItsPaper) {
  Problem problem;
  Lars optimizer(problem.parameters(), lars_options());
  auto matrix = values_of(problem.matrix);
  auto vector = values_of(problem.vector);
  Values matrix_v(matrix.size());
  Values vector_v(vector.size());
  for (int step = 0; step < 5; ++step) {
    problem.set_gradients(step);
    lars_reference(matrix, values_of(problem.matrix.grad()), matrix_v, true);
    lars_reference(vector, values_of(problem.vector.grad()), vector_v, false);
    optimizer.step();
    expect_near(problem.matrix, matrix);
    expect_near(problem.vector, vector);
  }
}

struct LambReference {
  Values m;
  Values v;
  int t = 0;

  /// Algorithm 2 of the paper, element by element.
  void step(Values& w, const Values& g, bool adapt) {
    m.resize(w.size());
    v.resize(w.size());
    ++t;
    Values r;
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
      const double adam =
          m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-6);
      r.push_back(adam + (adapt ? kDecay * w[i] : 0));
    }
    const double trust = adapt ? norm(w) / norm(r) : 1;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= kRate * trust * r[i];
  }
};

TEST(Lamb, IsTheFormulaOfItsPaper) {
  Problem problem;
  Lamb optimizer(problem.parameters(), lamb_options());
  auto matrix = values_of(problem.matrix);
  auto vector = values_of(problem.vector);
  LambReference of_matrix;
  LambReference of_vector;
  for (int step = 0; step < 5; ++step) {
    problem.set_gradients(step);
    of_matrix.step(matrix, values_of(problem.matrix.grad()), true);
    of_vector.step(vector, values_of(problem.vector.grad()), false);
    optimizer.step();
    expect_near(problem.matrix, matrix);
    expect_near(problem.vector, vector);
  }
}

/// The rectified direction of RAdam's paper, element by element.
struct RAdamReference {
  Values m, v;
  int t = 0;

  Values direction(const Values& g) {
    m.resize(g.size());
    v.resize(g.size());
    ++t;
    const double limit = 2 / (1 - 0.999) - 1;
    const double length = limit - 2 * t * std::pow(0.999, t) / (1 - std::pow(0.999, t));
    const double rectification =
        std::sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length));
    Values u;
    for (std::size_t i = 0; i < g.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
      const double momentum = m[i] / (1 - std::pow(0.9, t));
      const double rate = std::sqrt(1 - std::pow(0.999, t)) / (std::sqrt(v[i]) + 1e-8);
      u.push_back(length > 5 ? momentum * rectification * rate : momentum);
    }
    return u;
  }
};

// The rectified rate begins in step 6.
TEST(RAdam, IsTheFormulaOfItsPaper) {
  Problem problem;
  RAdam optimizer(problem.parameters(), RAdamOptions(kRate).weight_decay(kDecay));
  auto matrix = values_of(problem.matrix);
  RAdamReference reference;
  for (int step = 0; step < 9; ++step) {
    problem.set_gradients(step);
    auto gradient = values_of(problem.matrix.grad());
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += kDecay * matrix[i];
    const auto u = reference.direction(gradient);
    for (std::size_t i = 0; i < u.size(); ++i) matrix[i] -= kRate * u[i];
    optimizer.step();
    expect_near(problem.matrix, matrix);
  }
}

RangerLarsOptions ranger_options() {
  return RangerLarsOptions(kRate)
      .weight_decay(kDecay)
      .trust_coefficient(kTrust)
      .lookahead_steps(3)
      .lookahead_rate(0.4);
}

struct RangerReference {
  RAdamReference radam;
  Values slow;

  void step(Values& w, const Values& g, bool adapt) {
    if (slow.empty()) slow = w;
    const Values u = radam.direction(g);
    const double decay = adapt ? kDecay : 0;
    const double trust = adapt ? kTrust * norm(w) / (norm(u) + decay * norm(w)) : 1;
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] -= kRate * trust * (u[i] + decay * w[i]);
      if (radam.t % 3 == 0) w[i] = slow[i] += 0.4 * (w[i] - slow[i]);
    }
  }
};

TEST(RangerLars, IsTheFormulasOfItsPapers) {
  Problem problem;
  RangerLars optimizer(problem.parameters(), ranger_options());
  auto matrix = values_of(problem.matrix);
  auto vector = values_of(problem.vector);
  RangerReference of_matrix, of_vector;
  for (int step = 0; step < 10; ++step) {
    problem.set_gradients(step);
    of_matrix.step(matrix, values_of(problem.matrix.grad()), true);
    of_vector.step(vector, values_of(problem.vector.grad()), false);
    optimizer.step();
    expect_near(problem.matrix, matrix);
    expect_near(problem.vector, vector);
  }
}

TEST(RangerLars, OnVectorsWithoutLookaheadIsRAdam) {
  Problem ours;
  Problem theirs;
  RangerLars ranger({ours.vector}, ranger_options().lookahead_rate(1));
  RAdam radam({theirs.vector}, RAdamOptions(kRate));
  ours.train(ranger, 0, 9);
  theirs.train(radam, 0, 9);
  EXPECT_TRUE(ours.vector.allclose(theirs.vector, 0, 1e-12));
}

TEST(Yogi, IsTheFormulaOfItsPaper) {
  Problem problem;
  Yogi optimizer(problem.parameters(), YogiOptions(kRate).betas({0.9, 0.7}).eps(0.5));
  auto w = values_of(problem.vector);
  Values m(w.size()), v(w.size(), 0.25);
  int falls = 0;
  for (int step = 0; step < 9; ++step) {
    problem.set_gradients(step);
    const auto g = values_of(problem.vector.grad());
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      const bool above = v[i] > g[i] * g[i];
      falls += above ? 1 : 0;
      v[i] += above ? -0.3 * g[i] * g[i] : 0.3 * g[i] * g[i];
      w[i] -= kRate * m[i] / (std::sqrt(v[i]) + 0.5);
    }
    optimizer.step();
    expect_near(problem.vector, w);
  }
  EXPECT_GT(falls, 5);
  EXPECT_LT(falls, 40);
}

/// The property that suits them to large batches: invariance to the gradient's scale.
template <class Optimizer, class Options>
void expect_scale_free(Options options, double relative_step) {
  for (const double scale : {1e-3, 1.0, 1e3}) {
    Problem problem;
    Optimizer optimizer({problem.matrix}, options);
    problem.set_gradients(0);
    problem.matrix.mutable_grad().mul_(scale);
    const auto before = problem.matrix.detach().clone();
    optimizer.step();
    const auto moved = (problem.matrix - before).norm() / before.norm();
    EXPECT_NEAR(moved.template item<double>(), relative_step, 1e-3 * relative_step) << scale;
  }
}

TEST(Lars, MovesEachTensorByAPartOfItsNorm) {
  expect_scale_free<Lars>(lars_options().weight_decay(0), kRate * kTrust);
}

TEST(Lamb, MovesEachTensorByAPartOfItsNorm) {
  expect_scale_free<Lamb>(lamb_options().weight_decay(0), kRate);
}

TEST(Lars, OnVectorsIsSgdWithMomentum) {
  Problem ours;
  Problem theirs;
  Lars lars({ours.vector}, lars_options());
  torch::optim::SGD sgd({theirs.vector}, torch::optim::SGDOptions(kRate).momentum(kMomentum));
  ours.train(lars, 0, 5);
  theirs.train(sgd, 0, 5);
  EXPECT_TRUE(ours.vector.allclose(theirs.vector, 0, 1e-12));
}

TEST(Lamb, OnVectorsIsAdam) {
  Problem ours;
  Problem theirs;
  Lamb lamb({ours.vector}, lamb_options());
  torch::optim::Adam adam({theirs.vector}, torch::optim::AdamOptions(kRate).eps(1e-6));
  ours.train(lamb, 0, 5);
  theirs.train(adam, 0, 5);
  EXPECT_TRUE(ours.vector.allclose(theirs.vector, 0, 1e-12));
}

TEST(LarsAndLamb, ZeroWeightsAndZeroGradientsStayFinite) {
  for (const bool lars : {true, false}) {
    auto zero = torch::zeros({2, 2}, torch::kFloat64).requires_grad_();
    auto one = torch::ones({2, 2}, torch::kFloat64).requires_grad_();
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    const std::vector<torch::Tensor> parameters{zero, one};
    if (lars) optimizer = std::make_unique<Lars>(parameters, lars_options().weight_decay(0));
    if (!lars) optimizer = std::make_unique<Lamb>(parameters, lamb_options().weight_decay(0));
    zero.mutable_grad() = torch::ones({2, 2}, torch::kFloat64);
    one.mutable_grad() = torch::zeros({2, 2}, torch::kFloat64);
    optimizer->step();
    EXPECT_NEAR(zero[0][0].item<double>(), -kRate, 1e-5) << "trust 1: otherwise it stays zero";
    EXPECT_TRUE(one.equal(torch::ones({2, 2}, torch::kFloat64)));
  }
}

template <class Optimizer, class Options>
void expect_alike_in_parts(const Options& options) {
  Problem whole;
  Problem parts;
  Optimizer one(whole.parameters(), options);
  Optimizer first({parts.matrix}, options);
  Optimizer second({parts.vector}, options);
  whole.train(one, 0, 4);
  for (int step = 0; step < 4; ++step) {
    parts.set_gradients(step);
    second.step();
    first.step();
  }
  EXPECT_TRUE(whole.matrix.equal(parts.matrix));
  EXPECT_TRUE(whole.vector.equal(parts.vector));
}

TEST(Lars, MayBeOnePerBucket) {
  expect_alike_in_parts<Lars>(lars_options());
}

TEST(Lamb, MayBeOnePerBucket) {
  expect_alike_in_parts<Lamb>(lamb_options());
}

template <class Optimizer, class Options>
void expect_saves(const Options& options, const Options& others) {
  Problem straight;
  Optimizer one(straight.parameters(), options);
  straight.train(one, 0, 6);

  Problem stopped;
  Optimizer before(stopped.parameters(), options);
  stopped.train(before, 0, 3);
  std::stringstream file;
  torch::save(before, file);
  Optimizer after(stopped.parameters(), others);
  torch::load(after, file);
  stopped.train(after, 3, 6);
  EXPECT_TRUE(straight.matrix.equal(stopped.matrix));
  EXPECT_TRUE(straight.vector.equal(stopped.vector));
}

TEST(Lars, GoesOnFromWhatWasSaved) {
  expect_saves<Lars>(lars_options(), LarsOptions(9));
}

TEST(Lamb, GoesOnFromWhatWasSaved) {
  expect_saves<Lamb>(lamb_options(), LambOptions(9));
}

TEST(RangerLars, MayBeOnePerBucket) {
  expect_alike_in_parts<RangerLars>(ranger_options());
}

TEST(RangerLars, GoesOnFromWhatWasSaved) {
  expect_saves<RangerLars>(ranger_options(), RangerLarsOptions(9));
}

TEST(RAdam, GoesOnFromWhatWasSaved) {
  expect_saves<RAdam>(RAdamOptions(kRate), RAdamOptions(9));
}

TEST(Yogi, GoesOnFromWhatWasSaved) {
  expect_saves<Yogi>(YogiOptions(kRate), YogiOptions(9));
}

TEST(Lars, KeepsWhatAGroupSaysForItself) {
  Problem problem;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{problem.matrix});
  groups.emplace_back(std::vector<torch::Tensor>{problem.vector},
                      std::make_unique<LarsOptions>(LarsOptions(kRate).momentum(0)));
  Lars optimizer(groups, lars_options());
  problem.set_gradients(0);
  const auto expected = problem.vector.detach() - kRate * problem.vector.grad();
  optimizer.step();
  EXPECT_TRUE(problem.vector.allclose(expected, 0, 1e-12));
}

TEST(Optimizers, SettingsOutOfRangeAreRefused) {
  Problem problem;
  const auto error_of = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const Exception& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of([&] { Lars(problem.parameters(), LarsOptions(1).momentum(-1)); }),
              HasSubstr("Lars: momentum is -1; it must be from 0 to 1"));
  EXPECT_THAT(error_of([&] {
                Lamb(problem.parameters(), LambOptions(1).betas({0.9, 1.0}));
              }),
              HasSubstr("betas[1]"));
  EXPECT_THAT(error_of([&] { Lamb(problem.parameters(), LambOptions(-1)); }), HasSubstr("lr"));
  EXPECT_THAT(
      error_of([&] { RangerLars(problem.parameters(), RangerLarsOptions(1).lookahead_steps(0)); }),
      HasSubstr("RangerLars: lookahead_steps is 0; it must be from 1"));
  EXPECT_THAT(error_of([&] { Yogi(problem.parameters(), YogiOptions(1).eps(-1)); }),
              HasSubstr("Yogi: eps"));
}

TEST(Lamb, GivesTheClosuresLossAndSkipsWhatHasNoGradient) {
  Problem problem;
  Lamb optimizer(problem.parameters(), lamb_options());
  const auto before = problem.vector.detach().clone();
  const auto loss = optimizer.step([&] {
    auto sum = problem.matrix.square().sum();
    sum.backward();
    return sum;
  });
  EXPECT_GT(loss.item<double>(), 0);
  EXPECT_TRUE(problem.vector.equal(before));
}

}  // namespace
}  // namespace gradwire::test
