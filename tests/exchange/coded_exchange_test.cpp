#include "gradwire/exchange/coded_exchange.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/exchange/coded_piece.h"
#include "gradwire/exchange/communicator_exchange.h"
#include "tests/support/exchanging.h"

namespace gradwire::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::size_t slot(const codec::Codec& codec, std::size_t count) {
  return count == 0 ? 0 : (codec.encoded_bytes(count) + 15) / 16 * 16;
}

/// Bytes that a rank sends for a bucket of `count` elements: its contribution to each other part,
/// and P - 1 times its part of the mean, padded to the largest part if needed.
std::size_t bytes_by_formula(const exchange::CodecPair& codecs, std::size_t count,
                             std::size_t piece_elements, int ranks, Rank self) {
  std::size_t sum = 0;
  for (const exchange::CodedPieceLayout& piece :
       exchange::cut_into_pieces(count, piece_elements, ranks)) {
    for (Rank r = 0; r < ranks; ++r) {
      if (r != self) sum += slot(*codecs.sent, piece.parts[static_cast<std::size_t>(r)].count());
    }
    sum += static_cast<std::size_t>(ranks - 1) * slot(*codecs.mean, piece.parts[0].count());
  }
  return sum;
}

TEST(CodedExchange, SendsAsManyBytesAsTheFormulaSays) {
  const std::vector<std::size_t> counts{100, 300'000, 5000};
  const auto shapes = shapes_of(counts);
  for (const std::string codec : {"int8", "one_bit", "top_k:0.05"}) {
    const exchange::CodecPair codecs(value_or_throw(codec::make_codec(codec)), 3);
    LocalJob job(3);
    expect_no_errors(job.run([&](Rank rank, Communicator& c) {
      const auto exchange =
          exchange::make_exchange(shared(c), shapes, {.codec = codec, .piece_elements = 100'000});
      const std::size_t before = c.payload_bytes_sent();
      Gradients gradients = draw_gradients(shapes, rank, 0);
      average_step(*exchange, gradients, 5);
      std::size_t expected = 0;
      for (const std::size_t n : counts) {
        expected += bytes_by_formula(codecs, n, 100'000, 3, rank);
      }
      c.barrier().wait();  // All bytes have been sent.
      EXPECT_EQ(c.payload_bytes_sent() - before, expected) << codec << ", rank " << rank;
    }));
  }
}

TEST(CodedExchange, PiecesAndPartsCoverABucketOnce) {
  for (const std::size_t count : {1u, 64u, 65u, 4096u, 100'000u, 1'000'003u}) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      std::size_t at = 0;
      for (const exchange::CodedPieceLayout& piece :
           exchange::cut_into_pieces(count, 250'000, ranks)) {
        ASSERT_EQ(piece.all.begin, at);
        ASSERT_LE(piece.all.count(), 250'000u + 64);
        for (const exchange::CodedRange& part : piece.parts) {
          ASSERT_EQ(part.begin, at);
          ASSERT_LE(part.count(), piece.parts[0].count());
          at = part.end;
        }
        ASSERT_EQ(piece.all.end, at);
      }
      ASSERT_EQ(at, count);
    }
  }
  EXPECT_TRUE(exchange::cut_into_pieces(0, 100, 3).empty());
  const auto large = exchange::cut_into_pieces(1'000'000, 1 << 20, 4);
  EXPECT_EQ(large[0].parts[0].count() % 4096, 0u) << "whole blocks for codecs";
}

/// A codec without compression whose encode() yields to other threads, differently on each rank.
class Hesitant final : public codec::Codec {
 public:
  std::string name() const override { return "hesitant"; }
  std::size_t encoded_bytes(std::size_t count) const override { return 4 * count; }
  void encode(std::span<const float> values, std::span<float>, std::uint64_t seed,
              Bytes encoded) const override {
    const auto own = std::hash<std::thread::id>()(std::this_thread::get_id());
    Random random(seed ^ own);
    for (std::uint64_t n = random.below(200); n > 0; --n) std::this_thread::yield();
    std::memcpy(encoded.data(), values.data(), encoded.size());
  }
  Status decode(ConstBytes encoded, std::uint64_t, std::span<float> values) const override {
    std::memcpy(values.data(), encoded.data(), encoded.size());
    return {};
  }
  Status decode_add(ConstBytes encoded, std::uint64_t, std::span<float> values) const override {
    for (std::size_t i = 0; i < values.size(); ++i) {
      float value = 0;
      std::memcpy(&value, encoded.data() + 4 * i, 4);
      values[i] += value;
    }
    return {};
  }
  bool wants_feedback() const override { return false; }
};

/// A codec that fails to decode its own output, on the worker of the first reader.
class Broken final : public codec::Codec {
 public:
  std::string name() const override { return "broken"; }
  std::size_t encoded_bytes(std::size_t count) const override { return count; }
  void encode(std::span<const float>, std::span<float>, std::uint64_t, Bytes) const override {}
  Status decode(ConstBytes, std::uint64_t, std::span<float>) const override {
    return failure(ErrorKind::corrupted, "these bytes make no sense");
  }
  Status decode_add(ConstBytes, std::uint64_t, std::span<float>) const override { return {}; }
  bool wants_feedback() const override { return false; }
};

constexpr codec::CodecEntry kHesitant{
    "hesitant", codec::CodecKind::codec, "a test's", {}, [](double) {
      return std::unique_ptr<codec::Codec>(std::make_unique<Hesitant>());
    }};
constexpr codec::CodecEntry kBroken{
    "broken", codec::CodecKind::codec, "a test's", {}, [](double) {
      return std::unique_ptr<codec::Codec>(std::make_unique<Broken>());
    }};

TEST(CodedExchange, PiecesMayBeReadyInAnotherOrderOnEachRank) {
  const auto shapes = shapes_of({90'000, 30'000, 30'000, 120'000, 1000});
  const auto mean = true_mean(shapes, 4, 0);
  LocalJob job(4);
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    const auto exchange =
        exchange::coded_exchange(exchange::communicator_exchange(shared(c), shapes), shared(c),
                                 shapes, {&kHesitant, 0}, {.piece_elements = 10'000});
    for (std::uint64_t step = 0; step < 20; ++step) {
      Gradients gradients = draw_gradients(shapes, rank, 0);
      average_step(*exchange, gradients, 100 * step + static_cast<std::uint64_t>(rank));
      for (std::size_t b = 0; b < shapes.size(); ++b) {
        for (std::size_t i = 0; i < shapes[b].count; i += 97) {
          ASSERT_NEAR(gradients[b][i], mean[b][i], 1e-6);
        }
      }
    }
  }));
}

TEST(CodedExchange, DecodingFailureIsAnErrorOnEveryRank) {
  const auto shapes = shapes_of({100'000, 5000});
  LocalJob job(3);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange = exchange::coded_exchange(
        exchange::communicator_exchange(shared(c), shapes), shared(c), shapes, {&kBroken, 0}, {});
    Gradients gradients = draw_gradients(shapes, rank, 0);
    average_step(*exchange, gradients, 0);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("make no sense"));
}

TEST(CodedExchange, UncompressedBucketsMayHaveAnyType) {
  std::vector<exchange::UnitShape> shapes = shapes_of({1000, 500});
  shapes[0].skip_compression = true;
  shapes.push_back({.count = 10, .type = DataType::float64, .skip_compression = true});
  LocalJob job(3);
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(shared(c), shapes, {.codec = "one_bit"});
    Started started(*exchange);
    std::vector<float> exact(1000, static_cast<float>(3 * rank));
    std::vector<float> coded = draw_gradient(500, static_cast<std::uint64_t>(rank));
    std::vector<double> doubles(10, 0.3 * rank);
    started.start(0, lend(exact), 0);
    started.start(1, lend(coded), 1);
    started.start(2, {doubles.data(), 10, DataType::float64, nullptr}, 2);
    for (const std::size_t b : {2u, 1u, 0u}) started.wait(b);
    exchange->end_pass();
    EXPECT_EQ(exact, std::vector<float>(1000, 3.0f));
    EXPECT_DOUBLE_EQ(doubles[7], 0.3);
  }));
}

TEST(CodedExchange, SwitchingOffAppliesResiduals) {
  const auto shapes = shapes_of({60'000, 700});
  for (const std::string codec : {"one_bit", "top_k:0.01", "power_sgd:1"}) {
    LocalJob job(3);
    expect_no_errors(job.run([&](Rank rank, Communicator& c) {
      const auto exchange = exchange::make_exchange(shared(c), shapes, {.codec = codec});
      auto& switched = dynamic_cast<exchange::CompressedExchange&>(*exchange);
      std::vector<std::vector<double>> delivered, due;
      for (const exchange::UnitShape& shape : shapes) {
        delivered.emplace_back(shape.count);
        due.emplace_back(shape.count);
      }
      for (std::uint64_t step = 0; step < 6; ++step) {
        switched.use_codec(step < 5);
        Gradients gradients = draw_gradients(shapes, rank, step);
        average_step(*exchange, gradients, step);
        const auto mean = true_mean(shapes, 3, step);
        for (std::size_t b = 0; b < shapes.size(); ++b) {
          for (std::size_t i = 0; i < due[b].size(); ++i) {
            delivered[b][i] += gradients[b][i];
            due[b][i] += mean[b][i];
          }
        }
      }
      for (std::size_t b = 0; b < shapes.size(); ++b) {
        EXPECT_LT(relative_error(delivered[b], due[b]), 1e-5) << codec << b;
      }
    }));
  }
}

double fraction_of(const std::unique_ptr<codec::Codec>& codec) {
  // A kept value takes 2 bytes and its index 2, or one bit per value if that is less.
  const double bytes = static_cast<double>(codec->encoded_bytes(4096));
  return (bytes - 512) / 2 / 4096 > 0.0625 ? (bytes - 512) / 2 / 4096 : bytes / 4 / 4096;
}

TEST(CodedExchange, AWarmUpComesDownToTheFraction) {
  const codec::CodecSpec spec = value_or_throw(codec::parse_codec("top_k:0.01"));
  const std::vector<double> expected{0.25, 0.25, 0.0625, 0.0625, 0.015625, 0.015625, 0.01, 0.01};
  for (std::size_t step = 0; step < expected.size(); ++step) {
    const auto codec = exchange::codec_of_step(spec, static_cast<std::int64_t>(step), 6);
    EXPECT_NEAR(fraction_of(codec), expected[step], 0.0005) << step;
  }
  EXPECT_NEAR(fraction_of(exchange::codec_of_step(spec, 0, 0)), 0.01, 0.0005);
}

TEST(CodedExchange, OtherCodecsStartAfterTheWarmUp) {
  const auto shapes = shapes_of({40'000});
  for (const std::string codec : {"one_bit", "power_sgd:1"}) {
    LocalJob job(2);
    expect_no_errors(job.run([&](Rank rank, Communicator& c) {
      const auto exchange =
          exchange::make_exchange(shared(c), shapes, {.codec = codec, .warmup_steps = 2});
      for (std::uint64_t step = 0; step < 4; ++step) {
        Gradients gradients = draw_gradients(shapes, rank, step);
        average_step(*exchange, gradients, step);
        const std::vector<double> got(gradients[0].begin(), gradients[0].end());
        const double error = relative_error(got, true_mean(shapes, 2, step)[0]);
        if (step < 2) {
          EXPECT_LT(error, 1e-6) << codec;
        } else {
          EXPECT_GT(error, 0.1) << codec;
        }
      }
    }));
  }
}

TEST(CodedExchange, StateOfAnotherShapeIsAnErrorThatNamesTheParameter) {
  LocalJob job(2);
  expect_no_errors(job.run([&](Rank, Communicator& c) {
    for (const std::string codec : {"int4", "power_sgd:2"}) {
      const auto exchange =
          exchange::make_exchange(shared(c), shapes_of({48 * 100}), {.codec = codec});
      const auto other = exchange::make_exchange(shared(c), shapes_of({48 * 90}), {.codec = codec});
      const StateCopy state(*other);
      try {
        exchange->load_state(state.saved());
        ADD_FAILURE() << "it was accepted";
      } catch (const Exception& e) {
        EXPECT_EQ(e.kind(), ErrorKind::invalid_argument);
        EXPECT_THAT(e.what(), AllOf(HasSubstr("parameter b0.weight"), HasSubstr("4320 float32"),
                                    HasSubstr("4800 float32")));
      }
    }
  }));
}

TEST(CodedExchange, AJobOfAnotherSizeTakesOverContributionsAndBeginsMeansAnew) {
  const auto shapes = shapes_of({48 * 200});
  const exchange::ExchangeOptions options{.codec = "one_bit"};
  std::vector<StateCopy> saved;
  LocalJob three(3);
  expect_no_errors(three.run([&](Rank rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(shared(c), shapes, options);
    Gradients gradients = draw_gradients(shapes, rank, 0);
    average_step(*exchange, gradients, 0);
    if (rank == 0) saved.emplace_back(*exchange);
  }));
  const auto is_zero = [](float v) { return v == 0.0f; };
  EXPECT_FALSE(std::ranges::all_of(saved[0].values("b0.weight.mean"), is_zero));
  LocalJob two(2);
  expect_no_errors(two.run([&](Rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(shared(c), shapes, options);
    exchange->load_state(saved[0].saved());
    const StateCopy now(*exchange);
    EXPECT_EQ(now.values("b0.weight.sent"), saved[0].values("b0.weight.sent"));
    EXPECT_TRUE(std::ranges::all_of(now.values("b0.weight.mean"), is_zero));
  }));
}

TEST(MakeExchange, RefusesWhatItCannotDo) {
  LocalJob job(2);
  const auto text_of = [&](std::vector<exchange::UnitShape> shapes, const std::string& codec) {
    try {
      exchange::make_exchange(shared(job.on(0)), std::move(shapes), {.codec = codec});
    } catch (const Exception& e) {
      EXPECT_EQ(e.kind(), ErrorKind::invalid_argument);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(text_of(shapes_of({10}), "itn8"),
              AllOf(HasSubstr("itn8"), HasSubstr("int8"), HasSubstr("top_k")));
  EXPECT_THAT(text_of(shapes_of({10}), "auto:itn8"), HasSubstr("itn8"));
  EXPECT_THAT(text_of(shapes_of({10}), "auto:auto"), HasSubstr("auto"));
  exchange::UnitShape integers{
      .count = 3, .type = DataType::int64, .tensors = {{"steps", 0, 3, 1}}};
  for (const std::string codec : {"int8", "power_sgd", "auto"}) {
    EXPECT_THAT(text_of({integers}, codec), AllOf(HasSubstr("steps"), HasSubstr("int64"))) << codec;
  }
  EXPECT_EQ(text_of({integers}, "none"), "accepted");
}

TEST(MakeExchange, WrongCallsAreRefused) {
  for (const std::string codec : {"none", "int8"}) {
    LocalJob job(2);
    const auto exchange =
        exchange::make_exchange(shared(job.on(0)), shapes_of({10, 20}), {.codec = codec});
    Started started(*exchange);
    std::vector<float> ten(10), twenty(20);
    EXPECT_THROW(started.start(2, lend(ten), 0), Exception);
    EXPECT_THROW(started.start(0, lend(twenty), 0), Exception);
    started.start(0, lend(ten), 0);
    EXPECT_FALSE(started.done(0));
    EXPECT_TRUE(started.done(1));
    EXPECT_THROW(started.start(0, lend(ten), 0), Exception);
    job.on(0).abort("enough");
    EXPECT_THROW(started.wait(0), Exception);
  }
}

TEST(MakeExchange, CallsBackWhenAUnitIsDoneWithoutAWaiter) {
  for (const std::string codec : {"none", "int8", "power_sgd:1", "auto:int4"}) {
    const auto shapes = shapes_of({100'000, 3000});
    LocalJob job(2);
    expect_no_errors(job.run([&](Rank rank, Communicator& c) {
      std::atomic<int> finished = 0;
      const auto exchange = exchange::make_exchange(shared(c), shapes, {.codec = codec});
      Gradients gradients = draw_gradients(shapes, rank, 0);
      std::vector<Work> works;
      for (std::size_t unit = 0; unit < 2; ++unit) {
        works.push_back(exchange->all_reduce(unit, lend(gradients[unit]), 0));
        works.back().on_done([&](const Work&) { ++finished; });
      }
      while (finished < 2) std::this_thread::yield();
      for (const Work& work : works) {
        EXPECT_TRUE(work.done());
        work.wait();
      }
      exchange->end_pass();
      EXPECT_EQ(finished, 2) << codec;
      EXPECT_FALSE(exchange->describe().empty());
    }));
  }
}

TEST(MakeExchange, CallsBackWhenAUnitHasFailed) {
  LocalJob job(2);
  const auto exchange =
      exchange::make_exchange(shared(job.on(0)), shapes_of({10}), {.codec = "int8"});
  std::vector<float> ten(10);
  const Work work = exchange->all_reduce(0, lend(ten), 0);
  std::atomic<bool> finished = false;
  work.on_done([&](const Work&) { finished = true; });
  job.on(0).abort("enough");
  while (!finished) std::this_thread::yield();
  EXPECT_THROW(work.wait(), Exception);
}

}  // namespace
}  // namespace gradwire::test
