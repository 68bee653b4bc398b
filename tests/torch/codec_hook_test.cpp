#include "gradwire/torch/codec_hook.h"

#include <barrier>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/queue_device.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

constexpr int kHookRanks = 3;
constexpr int kCodedSteps = 3;
constexpr std::int64_t kRows = 40;
constexpr std::int64_t kColumns = 50;  ///< For matrices, which power_sgd needs.

at::Tensor gradient_of(int rank, int step, int bucket) {
  const auto ramp = at::arange(kRows * kColumns, at::kFloat);
  return at::sin(ramp * (0.1F + 0.01F * static_cast<float>(rank)) + static_cast<float>(step)) *
         static_cast<float>(bucket + 1);
}

c10d::GradBucket bucket_of(const at::Tensor& values, std::size_t index, std::size_t buckets) {
  static const std::vector<std::int64_t> sizes{kRows, kColumns};
  return c10d::GradBucket(index, buckets, values, {0}, {static_cast<std::size_t>(values.numel())},
                          {sizes}, {values}, {});
}

using Signal = std::shared_future<void>;

/// Where the hook's buckets are: created empty, then filled with values of the host.
struct Place {
  std::function<at::Tensor(const at::Tensor& like)> make;
  std::function<void(const at::Tensor& bucket, const at::Tensor& values, const Signal&)> fill;
};

Place on_host() {
  return {[](const at::Tensor& like) { return at::zeros_like(like); },
          [](const at::Tensor& bucket, const at::Tensor& values, const Signal&) {
            bucket.copy_(values);
          }};
}

/// The current stream reaches the values only after the hook has all buckets.
Place on_device(int index) {
  return {[index](const at::Tensor& like) { return to_queue_device(at::zeros_like(like), index); },
          [](const at::Tensor& bucket, const at::Tensor& values, const Signal& handed_over) {
            compute([bucket, values, handed_over] {
              handed_over.wait();
              memory_of(bucket).copy_(values);
            });
          }};
}

/// One DDP step with two buckets in flight at once; returns their means.
Tensors step(CodecHook& hook, int rank, int number, const Place& place) {
  constexpr std::size_t kBuckets = 2;
  Tensors gradients;
  Tensors buckets;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    gradients.push_back(gradient_of(rank, number, static_cast<int>(i)));
    buckets.push_back(place.make(gradients.back()));
  }
  std::promise<void> handed_over;
  const Signal signal = handed_over.get_future().share();
  std::vector<CodecHook::FuturePointer> futures;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    place.fill(buckets[i], gradients[i], signal);
    futures.push_back(hook.run(bucket_of(buckets[i], i, kBuckets)));
  }
  handed_over.set_value();
  Tensors means;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    futures[i]->waitAndThrow();
    const Tensors result = c10::IValue(futures[i]->value()).toTensorVector();
    EXPECT_TRUE(result.front().is_same(buckets[i]));
    means.push_back(to_host(result.front()));
  }
  return means;
}

/// Returns the means of all steps of a new hook.
Tensors all_steps(CodecHook& hook, int rank, const Place& place) {
  Tensors all;
  for (int i = 0; i < CodecHook::kPlainSteps + kCodedSteps; ++i) {
    for (const at::Tensor& mean : step(hook, rank, i, place)) all.push_back(mean);
  }
  return all;
}

void run_hooks(const std::function<void(const std::shared_ptr<Communicator>&, int rank)>& body) {
  install_queue_device();
  run_on_loopback(kHookRanks, [&](const auto& group) {
    to_queue_device(at::empty({0}), group->getRank());  // Makes it current.
    body(communicator_of(*group), group->getRank());
  });
}

class CodecHooks : public ::testing::TestWithParam<const char*> {};

TEST_P(CodecHooks, GiveOnADeviceWhatTheyGiveOnTheHost) {
  run_hooks([&](const auto& communicator, int rank) {
    CodecHook here(communicator, {.codec = GetParam()});
    CodecHook staged(communicator, {.codec = GetParam()});
    const Tensors expected = all_steps(here, rank, on_host());
    const Tensors got = all_steps(staged, rank, on_device(rank));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_GT(expected[i].abs().max().template item<float>(), 0.1F) << i;
      EXPECT_TRUE(got[i].equal(expected[i])) << i;
    }
    const auto kept = here.state();
    const auto kept_staged = staged.state();
    ASSERT_EQ(kept.size(), kept_staged.size());
    for (std::size_t i = 0; i < kept.size(); ++i) {
      EXPECT_TRUE(kept_staged[i].second.is_cpu());
      EXPECT_TRUE(kept_staged[i].second.equal(kept[i].second)) << kept[i].first;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecHooks,
                         ::testing::Values("none", "bf16", "int8", "one_bit", "top_k:0.05",
                                           "power_sgd:2"),
                         [](const auto& tested) {
                           const std::string name = tested.param;
                           return name.substr(0, name.find(':'));
                         });

TEST(CodecHook, StateOfAnotherSizeIsRefusedAndTheFeedbackStays) {
  run_hooks([](const auto& communicator, int rank) {
    CodecHook hook(communicator, {.codec = "int4"});
    all_steps(hook, rank, on_host());
    const auto kept = hook.state();
    ASSERT_FALSE(kept.empty());
    auto wrong = kept;
    wrong.front().second = at::zeros({3});
    EXPECT_THAT(error_of([&] { hook.load_state(wrong); }), HasSubstr("the checkpoint has 3"));
    const auto after = hook.state();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      EXPECT_TRUE(after[i].second.equal(kept[i].second)) << kept[i].first;
    }
  });
}

TEST(CodecHook, StateFromADeviceContinuesWithTheSameBits) {
  run_hooks([](const auto& communicator, int rank) {
    CodecHook whole(communicator, {.codec = "int4"});
    all_steps(whole, rank, on_host());
    auto saved = whole.state();
    for (auto& [name, tensor] : saved) tensor = to_queue_device(tensor, rank);
    CodecHook resumed(communicator, {.codec = "int4"});
    resumed.load_state(saved);
    for (int i = 0; i < CodecHook::kPlainSteps; ++i) step(resumed, rank, i, on_device(rank));
    const Tensors expected = step(whole, rank, 9, on_host());
    const Tensors got = step(resumed, rank, 9, on_device(rank));
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << i;
  });
}

TEST(CodecHook, ABucketThatChangedIsRefusedAtOnce) {
  run_hooks([](const auto& communicator, int rank) {
    CodecHook hook(communicator, {.codec = "int8"});
    all_steps(hook, rank, on_device(rank));
    const at::Tensor third = to_queue_device(at::zeros({kRows * kColumns}), rank);
    EXPECT_THAT(error_of([&] { hook.run(bucket_of(third, 2, 3)); }),
                HasSubstr("bucket 2 of DistributedDataParallel has changed"));
  });
}

TEST(CodecHook, NetworkFailureIsTheErrorOfTheFuture) {
  std::barrier together(kHookRanks);
  run_hooks([&](const auto& communicator, int rank) {
    CodecHook hook(communicator, {.codec = "int8"});
    all_steps(hook, rank, on_device(rank));
    together.arrive_and_wait();  // Leaving early could end operations that others wait for.
    const at::Tensor values = to_queue_device(at::ones({kRows * kColumns}), rank);
    if (rank != 0) return communicator->abort("this test says so");
    const auto future = hook.run(bucket_of(values, 0, 2));
    EXPECT_NE(error_of([&] { future->waitAndThrow(); }), "no error");
    EXPECT_TRUE(to_host(values).equal(at::ones({kRows * kColumns})));  // Unchanged.
  });
}

}  // namespace
}  // namespace gradwire::test
