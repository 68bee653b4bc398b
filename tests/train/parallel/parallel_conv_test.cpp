#include "gradwire/train/parallel/parallel_conv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "gradwire/train/parallel/rank_functions.h"
#include "gradwire/train/parallel/spatial_layers.h"
#include "tests/train/parallel/parallel_ranks.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A way to divide an image over `ranks`, drawn at random: a grid, with even or random cuts.
struct ImageDivision {
  SpatialParts parts;
  Division division;

  ImageDivision(Random& random, const Shape& shape, int ranks) {
    std::vector<SpatialParts> grids;
    for (int height = 1; height <= ranks; ++height) {
      if (ranks % height == 0) grids.push_back({height, ranks / height});
    }
    parts = grids[static_cast<std::size_t>(random.below(grids.size()))];
    division = spatial_division(shape, parts);
    if (random.one_in(2)) return;
    const auto rows = random_cuts(random, shape[2], parts.height);
    const auto columns = random_cuts(random, shape[3], parts.width);
    for (int r = 0; r < ranks; ++r) {
      Box& box = division.boxes[static_cast<std::size_t>(r)];
      const auto row = static_cast<std::size_t>(r / parts.width);
      const auto column = static_cast<std::size_t>(r % parts.width);
      box.begin = {0, 0, rows[row], columns[column]};
      box.end = {shape[0], shape[1], rows[row + 1], columns[column + 1]};
    }
  }

  static std::vector<std::int64_t> random_cuts(Random& random, std::int64_t size, int parts) {
    std::vector<std::int64_t> cuts{0, size};
    for (int i = 1; i < parts; ++i) cuts.push_back(random.between(0, size));
    std::ranges::sort(cuts);
    return cuts;
  }
};

Window random_window(Random& random) {
  Window window;
  for (std::size_t d = 0; d < 2; ++d) {
    window.kernel[d] = random.between(1, 7);
    window.stride[d] = random.between(1, 3);
    window.dilation[d] = random.between(1, 3);
    window.padding[d] = random.between(0, 4);
  }
  return window;
}

/// A size that the window fits into.
std::int64_t random_size(Random& random, const Window& window, std::size_t d) {
  const auto reach = window.dilation[d] * (window.kernel[d] - 1) + 1;
  return std::max<std::int64_t>(1, reach - 2 * window.padding[d]) + random.between(0, 9);
}

/// Compares a divided function with the plain one: output, and gradient of the input.
void expect_same_on_image(const ProcessGroup& group, const torch::Tensor& image,
                          const Division& division,
                          const std::function<DividedTensor(const DividedTensor&)>& split,
                          const TensorMap& plain, double tolerance = 0) {
  const auto own = static_cast<std::size_t>(group->getRank());
  auto x = view_of_box(image, division.boxes[own]).clone().requires_grad_();
  auto whole = image.clone().requires_grad_();
  const auto y = split({x, division});
  const auto expected = plain(whole);
  ASSERT_EQ(y.division.shape, expected.sizes().vec());
  expect_equal(y.own, view_of_box(expected, y.division.boxes[own]), "output", tolerance);
  const auto dy = integers(y.division.shape, 4, image.scalar_type());
  y.own.backward(view_of_box(dy, y.division.boxes[own]));
  expected.backward(dy);
  expect_equal(x.grad(), view_of_box(whole.grad(), division.boxes[own]), "input's gradient",
               tolerance);
}

TEST(SpatialConvolution, HasTheValuesAndGradientsOfConv2dForAnyWindow) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      for (std::uint64_t seed = 0; seed < 120; ++seed) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed);
        Random random(seed);
        const Window window = random_window(random);
        const auto groups = random.between(1, 2);
        const Shape shape{random.between(1, 2), 2, random_size(random, window, 0),
                          random_size(random, window, 1)};
        const ImageDivision image(random, shape, ranks);
        const auto bias = random.one_in(2);
        const auto options = torch::nn::Conv2dOptions(2, 4, window.kernel)
                                 .stride(window.stride)
                                 .padding(window.padding)
                                 .dilation(window.dilation)
                                 .groups(groups)
                                 .bias(bias);
        torch::nn::Conv2d plain(options);
        SpatialConv2d split(options, image.parts, group);
        fill_with_integers(*plain);
        copy_parts(*split, *plain);
        expect_same_on_image(
            group, integers(shape), image.division,
            [&](const DividedTensor& x) { return split(x); },
            [&](const torch::Tensor& x) { return plain(x); });
        expect_parts(*split, *plain, true);
      }
    });
  }
}

TEST(SpatialPooling, HasTheValuesAndGradientsOfTorchForAnyWindow) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      for (std::uint64_t seed = 0; seed < 120; ++seed) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed);
        Random random(seed);
        Window window = random_window(random);
        for (std::size_t d = 0; d < 2; ++d) {
          window.padding[d] = random.between(0, window.kernel[d] / 2);
        }
        const Shape shape{random.between(1, 2), 2, random_size(random, window, 0),
                          random_size(random, window, 1)};
        const ImageDivision image(random, shape, ranks);
        const auto max = torch::nn::MaxPool2dOptions(window.kernel)
                             .stride(window.stride)
                             .padding(window.padding)
                             .dilation(window.dilation);
        torch::nn::MaxPool2d plain_max(max);
        SpatialMaxPool2d split_max(max, image.parts, group);
        // Dilated windows may have only padding: then torch sends the gradient somewhere.
        if (plain_max(integers(shape)).isfinite().all().item<bool>()) {
          expect_same_on_image(
              group, integers(shape), image.division,
              [&](const DividedTensor& x) { return split_max(x); },
              [&](const torch::Tensor& x) { return plain_max(x); });
        }
        const auto average = torch::nn::AvgPool2dOptions(window.kernel)
                                 .stride(window.stride)
                                 .padding(window.padding)
                                 .count_include_pad(random.one_in(2));
        torch::nn::AvgPool2d plain_average(average);
        SpatialAvgPool2d split_average(average, image.parts, group);
        expect_same_on_image(
            group, integers(shape, 0, torch::kFloat64), image.division,
            [&](const DividedTensor& x) { return split_average(x); },
            [&](const torch::Tensor& x) { return plain_average(x); }, 1e-13);
        const auto mean = mean_over_space(
            divide(integers(shape, 0, torch::kFloat64), image.division, group), group);
        expect_equal(mean, integers(shape, 0, torch::kFloat64).mean({2, 3}), "mean", 1e-14);
      }
    });
  }
}

TEST(SpatialConvolution, SendsTheHalo) {
  constexpr std::int64_t kSamples = 2;
  constexpr std::int64_t kChannels = 3;
  constexpr std::int64_t kWidth = 10;
  for (const int ranks : {2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      for (const std::int64_t kernel : {1, 3, 5}) {
        for (const std::int64_t dilation : {1, 2}) {
          const auto padding = dilation * (kernel - 1) / 2;
          SpatialConv2d split(torch::nn::Conv2dOptions(kChannels, 2, kernel)
                                  .padding(padding)
                                  .dilation(dilation)
                                  .bias(false),
                              SpatialParts{ranks, 1}, group);
          split->weight.set_requires_grad(false);
          const Shape shape{kSamples, kChannels, 24, kWidth};
          auto x = divide(integers(shape), divided(shape, 2, ranks), group);
          x.own.requires_grad_();
          DividedTensor y;
          const auto total = [&](std::size_t bytes) {
            return sum_over_ranks(*group, {static_cast<double>(bytes)})[0];
          };
          // dilation (k-1)/2 rows each way over each inner edge; the gradients go back.
          const auto halo =
              static_cast<double>(2 * (ranks - 1) * padding * kWidth * kChannels * kSamples * 4);
          EXPECT_EQ(total(bytes_sent(group, [&] { y = split(x); })), halo);
          EXPECT_EQ(total(bytes_sent(group, [&] { y.own.sum().backward(); })), halo);
        }
      }
    });
  }
}

TEST(ChannelConvolution, HasTheValuesGradientsAndInitialWeightsOfConv2d) {
  struct Parts {
    int input, output;
  };
  for (const Parts parts : {Parts{1, 1}, {1, 2}, {2, 1}, {1, 4}, {4, 1}, {2, 2}, {2, 3}}) {
    const int ranks = parts.input * parts.output;
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      SCOPED_TRACE(testing::Message() << parts.input << " x " << parts.output);
      const auto options = torch::nn::Conv2dOptions(4, 12, 3).stride(2).padding(1);
      auto plain = drawn_alike(6, [&] { return torch::nn::Conv2d(options); });
      auto split = drawn_alike(6, [&] {
        return ParallelConv2d(ParallelConv2dOptions(4, 12, 3)
                                  .stride(2)
                                  .padding(1)
                                  .input_channels(parts.input)
                                  .output_channels(parts.output)
                                  .input_is_parallel(false)
                                  .gather_output(true),
                              group);
      });
      expect_parts(*split, *plain, false);
      fill_with_integers(*plain);
      copy_parts(*split, *plain);
      auto x = integers({2, 4, 5, 7}).requires_grad_();
      auto same = x.detach().clone().requires_grad_();
      const auto y = split(x);
      const auto expected = plain(same);
      expect_equal(y, expected, "output");
      const auto dy = integers(expected.sizes().vec(), 2);
      y.backward(dy);
      expected.backward(dy);
      expect_equal(x.grad(), same.grad(), "input's gradient");
      expect_parts(*split, *plain, true);
    });
  }
}

TEST(ChannelConvolution, ChainsWithoutGathering) {
  on_parallel_ranks(
      2,
      [](const ProcessGroup& group) {
        torch::nn::Conv2d plain_up(torch::nn::Conv2dOptions(3, 4, 3).padding(1));
        torch::nn::Conv2d plain_down(torch::nn::Conv2dOptions(4, 3, 1));
        ParallelConv2d up(ParallelConv2dOptions(3, 4, 3).padding(1).output_channels(2), group);
        ParallelConv2d down(ParallelConv2dOptions(4, 3, 1).input_channels(2), group);
        fill_with_integers(*plain_up);
        fill_with_integers(*plain_down);
        copy_parts(*up, *plain_up);
        copy_parts(*down, *plain_down);
        auto x = integers({2, 3, 4, 4}).requires_grad_();
        auto same = x.detach().clone().requires_grad_();
        torch::Tensor y;
        const auto sent = bytes_sent(group, [&] { y = down(torch::relu(up(x))); });
        EXPECT_EQ(sent, static_cast<std::size_t>(y.numel()) * 4);  // 2 (t-1)/t of the output.
        const auto expected = plain_down(torch::relu(plain_up(same)));
        expect_equal(y, expected, "output");
        y.sum().backward();
        expected.sum().backward();
        expect_equal(x.grad(), same.grad(), "input's gradient");
        expect_parts(*up, *plain_up, true);
        expect_parts(*down, *plain_down, true);
      },
      "all_reduce=ring");
}

TEST(ChannelConvolution, SendsTheBytesOfAnAllReduceOverSubsets) {
  on_parallel_ranks(4, [](const ProcessGroup& group) {
    ParallelConv2d split(ParallelConv2dOptions(4, 6, 1).input_channels(2).output_channels(2),
                         group);
    auto x = integers({2, 2, 3, 4}).requires_grad_();
    torch::Tensor y;
    // 2 (t-1)/t of the output over the t = 2 input parts, and of the input over the output parts.
    const auto forward = bytes_sent(group, [&] { y = split(x); });
    EXPECT_EQ(forward, static_cast<std::size_t>(y.numel()) * 4);
    const auto backward = bytes_sent(group, [&] { y.sum().backward(); });
    EXPECT_EQ(backward, static_cast<std::size_t>(x.numel()) * 4);
  });
}

TEST(ParallelConv2d, RecordsReplicas) {
  on_parallel_ranks(4, [](const ProcessGroup& group) {
    const ParallelConv2d split(ParallelConv2dOptions(4, 6, 1).input_channels(2).output_channels(2),
                               group);
    const auto boxes = parameter_boxes(*split);
    const std::int64_t row = group->getRank() / 2;
    const std::int64_t column = group->getRank() % 2;
    EXPECT_EQ(boxes.at("weight"),
              (ParameterBox{{6, 4, 1, 1},
                            {{6, 4, 1, 1},
                             {{row * 3, column * 2, 0, 0}, {row * 3 + 3, column * 2 + 2, 1, 1}}},
                            false}));
    EXPECT_EQ(boxes.at("bias"),
              (ParameterBox{{6}, {{6}, {{row * 3}, {row * 3 + 3}}}, column == 1}));
  });
}

TEST(ParallelConv2d, RefusesPartsThatDoNotFit) {
  on_parallel_ranks(2, [](const ProcessGroup& group) {
    const auto make = [&](const ParallelConv2dOptions& options) {
      return [&group, options] { ParallelConv2d(options, group); };
    };
    using Options = ParallelConv2dOptions;
    EXPECT_THAT(make(Options(3, 4, 1).input_channels(2)),
                ThrowsMessage<Exception>(HasSubstr("3 input channels cannot be divided into 2")));
    EXPECT_THAT(make(Options(4, 5, 1).output_channels(2)),
                ThrowsMessage<Exception>(HasSubstr("5 output channels cannot be divided into 2")));
    EXPECT_THAT(make(Options(4, 4, 1)),
                ThrowsMessage<Exception>(HasSubstr("1 x 1 parts of input and output channels in a "
                                                   "group of 2 ranks")));
    EXPECT_THAT(make(Options(4, 4, 1).groups(2).output_channels(2)),
                ThrowsMessage<Exception>(HasSubstr("2 groups cannot be divided by channels")));
    SpatialConv2d by_space(torch::nn::Conv2dOptions(1, 1, 1), SpatialParts{1, 2}, group);
    EXPECT_THAT(
        [&] {
          by_space(DividedTensor{torch::zeros({1}), divided({2}, 0, 2)});
        },
        ThrowsMessage<Exception>(HasSubstr("channels, height, width], found [2]")));
    EXPECT_THAT(
        [&] {
          SpatialConv2d(torch::nn::Conv2dOptions(1, 1, 1), SpatialParts{2, 2}, group);
        },
        ThrowsMessage<Exception>(HasSubstr("2 x 2 parts of space in a group of 2 ranks")));
    EXPECT_THAT(
        [&] {
          SpatialConv2d(torch::nn::Conv2dOptions(1, 1, 1).padding(torch::kSame), SpatialParts{2, 1},
                        group);
        },
        ThrowsMessage<Exception>(HasSubstr("padding must be a number of zeros")));
    EXPECT_THAT(
        [&] {
          SpatialMaxPool2d(torch::nn::MaxPool2dOptions(2).ceil_mode(true), SpatialParts{2, 1},
                           group);
        },
        ThrowsMessage<Exception>(HasSubstr("ceil_mode is not supported")));
  });
}

TEST(SpatialConvolution, GradientsAreThoseOfDifferences) {
  on_parallel_ranks(2, [](const ProcessGroup& group) {
    SpatialConv2d split = drawn_alike(7, [&] {
      return SpatialConv2d(torch::nn::Conv2dOptions(1, 2, 3).padding(1).dilation(2),
                           SpatialParts{2, 1}, group);
    });
    split->to(torch::kFloat64);
    const Shape shape{1, 1, 6, 4};
    const auto values = torch::sin(torch::arange(24, torch::kFloat64) * 1.3).view(shape);
    auto x = divide(values, divided(shape, 2, 2), group);
    x.own = x.own.detach().requires_grad_();
    gradcheck(group, {x.own}, false, [&] { return torch::tanh(split(x).own).sum(); });
    gradcheck(group, {split->weight, split->bias}, true,
              [&] { return torch::tanh(split(x).own).sum(); });
  });
}

}  // namespace
}  // namespace gradwire::test
