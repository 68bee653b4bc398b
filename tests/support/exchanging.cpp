#include "tests/support/exchanging.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/codec/catalogue.h"

namespace gradwire::test {
namespace {

constexpr std::size_t kColumns = 48;

std::vector<std::size_t> shuffled(std::size_t count, Random& random) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

void give_others_time(Random& random) {
  for (std::uint64_t n = random.below(4) * random.below(50); n > 0; --n) std::this_thread::yield();
}

}  // namespace

std::shared_ptr<Communicator> shared(Communicator& communicator) {
  return {std::shared_ptr<void>(), &communicator};
}

std::vector<exchange::UnitShape> shapes_of(const std::vector<std::size_t>& counts) {
  std::vector<exchange::UnitShape> shapes;
  for (const std::size_t count : counts) {
    exchange::UnitShape shape{.count = count};
    const std::string name = fmt::format("b{}", shapes.size());
    const std::size_t rows = count / kColumns;
    if (rows > 0) shape.tensors.push_back({name + ".weight", 0, rows, kColumns});
    if (const std::size_t rest = count - rows * kColumns; rest > 0) {
      shape.tensors.push_back({name + ".bias", rows * kColumns, rest, 1});
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::vector<float> draw_gradient(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    double sum = -2;
    for (int i = 0; i < 4; ++i) sum += random.unit();
    value = static_cast<float>(sum);
  }
  return values;
}

Gradients draw_gradients(const std::vector<exchange::UnitShape>& shapes, Rank rank,
                         std::uint64_t step) {
  Gradients gradients;
  for (const exchange::UnitShape& shape : shapes) {
    const std::uint64_t seed = gradients.size() + 100 * (static_cast<std::uint64_t>(rank) + 1);
    gradients.push_back(draw_gradient(shape.count, seed + 10'000 * step));
  }
  return gradients;
}

void average_step(exchange::Exchange& exchange, Gradients& gradients, std::uint64_t seed) {
  Random random(seed);
  Started started(exchange);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    give_others_time(random);
    started.start(i, {gradients[i].data(), gradients[i].size(), DataType::float32, nullptr},
                  static_cast<int>(random.below(10)));
  }
  for (const std::size_t i : shuffled(gradients.size(), random)) {
    give_others_time(random);
    started.wait(i);
  }
  exchange.end_pass();
}

History average_steps(LocalJob& job, const std::vector<exchange::UnitShape>& shapes,
                      const exchange::ExchangeOptions& options, int steps) {
  History history(static_cast<std::size_t>(job.ranks()));
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    const auto exchange = exchange::make_exchange(shared(c), shapes, options);
    for (int step = 0; step < steps; ++step) {
      const auto s = static_cast<std::uint64_t>(step);
      Gradients gradients = draw_gradients(shapes, rank, s);
      average_step(*exchange, gradients, 1000 * s + static_cast<std::uint64_t>(rank));
      history[static_cast<std::size_t>(rank)].push_back(std::move(gradients));
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return history;
}

std::vector<std::vector<double>> true_mean(const std::vector<exchange::UnitShape>& shapes,
                                           int ranks, std::uint64_t step) {
  std::vector<std::vector<double>> mean;
  for (const exchange::UnitShape& shape : shapes) mean.emplace_back(shape.count);
  for (Rank r = 0; r < ranks; ++r) {
    const Gradients gradients = draw_gradients(shapes, r, step);
    for (std::size_t b = 0; b < shapes.size(); ++b) {
      for (std::size_t i = 0; i < shapes[b].count; ++i)
        mean[b][i] += gradients[b][i] / double(ranks);
    }
  }
  return mean;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    square += b[i] * b[i];
  }
  return std::sqrt(difference / square);
}

std::vector<float> StateCopy::values(const std::string& name) const {
  for (const auto& state : saved()) {
    if (state.name != name) continue;
    std::vector<float> values(state.data.count);
    std::memcpy(values.data(), state.data.data, values.size() * sizeof(float));
    return values;
  }
  return {};
}

std::vector<std::string> all_codecs() {
  std::vector<std::string> all;
  for (const codec::CodecEntry& entry : codec::codec_catalogue()) {
    if (entry.kind == codec::CodecKind::automatic) continue;
    std::string name(entry.name);
    if (entry.parameter.name == "FRACTION") name += ":0.1";
    if (entry.kind == codec::CodecKind::low_rank) name += ":2";
    all.push_back(name);
  }
  return all;
}

std::string test_name(const std::string& codec) {
  return codec.substr(0, codec.find(':'));
}

}  // namespace gradwire::test
