#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/codec/catalogue.h"
#include "tests/support/exchanging.h"

// Properties of every codec in the catalogue, and of none.
namespace gradwire::test {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  return std::ranges::equal(a, b, {}, bits, bits);
}

class EveryExchange : public testing::TestWithParam<std::string> {
 protected:
  exchange::ExchangeOptions options() const {
    // Small pieces, so that buckets have several.
    return {.codec = GetParam(), .piece_elements = 50'000};
  }
  bool feeds_back() const {
    const auto spec = value_or_throw(codec::parse_codec(GetParam()));
    if (spec.kind() == codec::CodecKind::low_rank) return true;
    return spec.kind() == codec::CodecKind::codec &&
           value_or_throw(codec::make_codec(spec))->wants_feedback();
  }
};

TEST_P(EveryExchange, AllRanksEndWithTheSameBits) {
  const auto shapes = shapes_of({1, 63, 4097, 130'000, 0, 20'000, 50'001});
  for (int ranks = 2; ranks <= 5; ++ranks) {
    LocalJob job(ranks);
    const History history = average_steps(job, shapes, options(), 3);
    for (std::size_t step = 0; step < 3; ++step) {
      for (std::size_t b = 0; b < shapes.size(); ++b) {
        for (std::size_t r = 1; r < history.size(); ++r) {
          ASSERT_TRUE(same_bits(history[r][step][b], history[0][step][b]))
              << ranks << " ranks, step " << step << ", bucket " << b << ", rank " << r;
        }
      }
    }
  }
}

TEST_P(EveryExchange, ARunIsRepeatedBitForBit) {
  const auto shapes = shapes_of({100, 130'000, 7000});
  LocalJob job(3);
  const History first = average_steps(job, shapes, options(), 3);
  const History second = average_steps(job, shapes, options(), 3);
  for (std::size_t b = 0; b < shapes.size(); ++b) {
    EXPECT_TRUE(same_bits(first[0][2][b], second[0][2][b])) << b;
  }
}

TEST_P(EveryExchange, AbandonedStepsLeaveNoTrace) {
  const auto shapes = shapes_of({100, 130'000, 7000});
  auto options = this->options();
  options.can_abandon = true;
  options.warmup_steps = 2;
  LocalJob job(3);
  const History expected = average_steps(job, shapes, options, 6);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(shared(c), shapes, options);
    Random random(5);  // All ranks abandon the same steps.
    for (std::uint64_t step = 0; step < 6; ++step) {
      for (std::uint64_t attempt = random.below(3); attempt > 0; --attempt) {
        Gradients dropped = draw_gradients(shapes, rank, 100 * attempt + step);
        for (std::uint64_t pass = 0; pass < attempt; ++pass) average_step(*exchange, dropped, pass);
        exchange->end_step(exchange::StepOutcome::abandoned);
      }
      Gradients gradients = draw_gradients(shapes, rank, step);
      average_step(*exchange, gradients, step);
      exchange->end_step(exchange::StepOutcome::committed);
      for (std::size_t b = 0; b < shapes.size(); ++b)
        ASSERT_TRUE(same_bits(gradients[b], expected[0][step][b])) << step << ", bucket " << b;
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(EveryExchange, AStepIsAbandonedOnlyIfItsStateWasKept) {
  LocalJob job(2);
  const auto errors = job.run([&](Rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(shared(c), shapes_of({1000}), options());
    exchange->end_step(exchange::StepOutcome::committed);
    if (exchange->traits().has_state) {
      EXPECT_THROW(exchange->end_step(exchange::StepOutcome::abandoned), Exception);
    } else {
      exchange->end_step(exchange::StepOutcome::abandoned);
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

/// Constant gradients over many steps: delivered values and residuals sum to them, and delivered
/// values converge to them.
TEST_P(EveryExchange, ResidualsAreDelivered) {
  constexpr int kRanks = 3;
  constexpr int kSteps = 40;
  const auto shapes = shapes_of({30'000, 333});
  std::vector<std::vector<double>> delivered(2), residual(2);
  std::vector<double> first_error(2);
  const auto mean = true_mean(shapes, kRanks, 0);
  std::vector<std::vector<StateCopy>> states(kRanks);
  LocalJob job(kRanks);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(shared(c), shapes, options());
    std::vector<std::vector<double>> sum(2);
    for (int step = 0; step < kSteps; ++step) {
      Gradients gradients = draw_gradients(shapes, rank, 0);
      average_step(*exchange, gradients, static_cast<std::uint64_t>(step));
      for (std::size_t b = 0; b < 2; ++b) {
        sum[b].resize(shapes[b].count);
        for (std::size_t i = 0; i < sum[b].size(); ++i) sum[b][i] += gradients[b][i];
        if (rank == 0 && step == 0) first_error[b] = relative_error(sum[b], mean[b]);
      }
    }
    if (rank == 0) delivered = sum;
    states[static_cast<std::size_t>(rank)].emplace_back(*exchange);
  });
  for (const std::string& error : errors) ASSERT_EQ(error, "");
  for (std::size_t b = 0; b < 2; ++b) {
    std::vector<double> average = delivered[b];
    for (double& value : average) value /= kSteps;
    EXPECT_LT(relative_error(average, mean[b]), std::max(0.004, 0.5 * first_error[b])) << b;
    if (!feeds_back()) continue;
    std::vector<double> with_residual = delivered[b];
    std::size_t at = 0;
    for (const exchange::UnitTensor& tensor : shapes[b].tensors) {
      std::size_t owned = 0;
      for (int r = 0; r < kRanks; ++r) {
        const StateCopy& state = states[static_cast<std::size_t>(r)].front();
        const std::vector<float> sent = state.values(tensor.name + ".sent");
        for (std::size_t i = 0; i < sent.size(); ++i)
          with_residual[at + i] += sent[i] / double(kRanks);
        // One piece per bucket, so that a rank's owned elements are contiguous.
        for (const float value : state.values(tensor.name + ".mean"))
          with_residual[at + owned++] += value;
      }
      at += tensor.rows * tensor.columns;
    }
    std::vector<double> due = mean[b];
    for (double& value : due) value *= kSteps;
    EXPECT_LT(relative_error(with_residual, due), 1e-5) << b;
  }
}

TEST_P(EveryExchange, NonFiniteValuesReachEveryRankForOneStep) {
  const auto shapes = shapes_of({30'000, 500});
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    LocalJob job(3);
    const auto errors = job.run([&](Rank rank, Communicator& c) {
      const auto exchange = exchange::make_exchange(shared(c), shapes, options());
      for (std::uint64_t step = 0; step < 6; ++step) {
        Gradients gradients = draw_gradients(shapes, rank, step);
        if (step == 2 && rank == 1) gradients[0][12'345] = gradients[1][499] = bad;
        average_step(*exchange, gradients, step);
        if (step == 2) {
          EXPECT_FALSE(std::isfinite(gradients[0][12'345])) << bad;
          EXPECT_FALSE(std::isfinite(gradients[1][499])) << bad;
          continue;
        }
        for (const auto& bucket : gradients) {
          for (const float value : bucket) ASSERT_TRUE(std::isfinite(value)) << bad << step;
        }
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST_P(EveryExchange, ARunThatIsResumedGoesOnWithTheSameBits) {
  const auto shapes = shapes_of({60'000, 700, 9000});
  const auto late = [](Rank rank, std::uint64_t step) {
    return 1000 * step + static_cast<std::uint64_t>(rank);
  };
  LocalJob job(3);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    auto exchange = exchange::make_exchange(shared(c), shapes, options());
    Gradients expected;
    std::vector<StateCopy> checkpoint;
    for (std::uint64_t step = 0; step < 6; ++step) {
      expected = draw_gradients(shapes, rank, step);
      average_step(*exchange, expected, late(rank, step));
      if (step == 2) checkpoint.emplace_back(*exchange);
    }
    exchange = exchange::make_exchange(shared(c), shapes, options());
    exchange->load_state(checkpoint.front().saved());
    for (std::uint64_t step = 3; step < 6; ++step) {
      Gradients gradients = draw_gradients(shapes, rank, step);
      average_step(*exchange, gradients, late(rank, step));
      if (step < 5) continue;
      for (std::size_t b = 0; b < shapes.size(); ++b) {
        EXPECT_TRUE(same_bits(gradients[b], expected[b])) << b;
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(EveryExchange, AnAbortReachesAllWhoWait) {
  const auto shapes = shapes_of({200'000, 200'000, 3000});
  LocalJob job(3);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(shared(c), shapes, options());
    Gradients gradients = draw_gradients(shapes, rank, 0);
    average_step(*exchange, gradients, 1);
    Started started(*exchange);
    for (std::size_t i = 0; i < shapes.size() - (rank == 1 ? 1 : 0); ++i) {
      started.start(i, {gradients[i].data(), gradients[i].size(), DataType::float32, nullptr}, 0);
    }
    if (rank == 1) c.abort("the loss exploded");
    for (std::size_t i = 0; i < shapes.size(); ++i) started.wait(i);
    // All buckets were complete.
    if (rank == 1) throw Exception(ErrorKind::aborted, "the loss exploded");
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, testing::HasSubstr("the loss exploded"));
}

TEST_P(EveryExchange, ARankThatLeavesIsAnErrorForTheOthers) {
  const auto shapes = shapes_of({200'000, 3000});
  LocalJob job(3);
  std::vector<std::unique_ptr<exchange::Exchange>> exchanges(3);
  std::vector<std::unique_ptr<Started>> started(3);
  std::vector<Gradients> gradients(3);
  const auto start = [&](Rank rank, Communicator& c) {
    const auto r = static_cast<std::size_t>(rank);
    exchanges[r] = exchange::make_exchange(shared(c), shapes, options());
    started[r] = std::make_unique<Started>(*exchanges[r]);
    gradients[r] = draw_gradients(shapes, rank, 0);
    const std::size_t count = rank == 1 ? 1 : shapes.size();
    for (std::size_t i = 0; i < count; ++i) {
      started[r]->start(i, {gradients[r][i].data(), gradients[r][i].size(), DataType::float32, {}},
                        0);
    }
  };
  for (const std::string& error : job.run(start)) EXPECT_EQ(error, "");
  started[1].reset();
  exchanges[1].reset();
  job.leave(1);
  const auto errors = job.run([&](Rank rank, Communicator&) {
    for (std::size_t i = 0; i < shapes.size(); ++i)
      started[static_cast<std::size_t>(rank)]->wait(i);
  });
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[2], "");
}

TEST_P(EveryExchange, ARankOfItsOwnLeavesGradientsAlone) {
  const auto c = Communicator::connect(bootstrap::Job{});
  const auto shapes = shapes_of({5000, 3});
  const auto exchange = exchange::make_exchange(c, shapes, options());
  Gradients gradients = draw_gradients(shapes, 0, 0);
  average_step(*exchange, gradients, 1);
  EXPECT_EQ(gradients, draw_gradients(shapes, 0, 0));
}

INSTANTIATE_TEST_SUITE_P(Codecs, EveryExchange, testing::ValuesIn(all_codecs()),
                         [](const auto& tested) { return test_name(tested.param); });

}  // namespace
}  // namespace gradwire::test
