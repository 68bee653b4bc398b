#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/box.h"
#include "gradwire/train/parallel/box_exchange.h"

namespace gradwire {

/// The window of a convolution or pooling over the two last dimensions, height and width.
struct Window {
  std::array<std::int64_t, 2> kernel{1, 1};
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};

  /// Output size in dimension d (0: height, 1: width); at least 0.
  std::int64_t output_size(std::int64_t input_size, std::size_t d) const;
};

/// Parts of height and of width: rank r has part r / width of the height and part r % width of the
/// width.
struct SpatialParts {
  int height = 1;
  int width = 1;

  int count() const { return height * width; }
};

/// Divides [samples, channels, height, width] by space, as evenly as possible.
Division spatial_division(const Shape& shape, const SpatialParts& parts);

/// One dimension of what an output box needs: input indices begin .. end - 1, between padding.
struct WindowSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t padding_before = 0;
  std::int64_t padding_after = 0;
};

/// The input of output indices begin .. end - 1 in dimension d of the window.
WindowSpan needed_span(const Window& window, std::size_t d, std::int64_t begin, std::int64_t end,
                       std::int64_t input_size);

/// The input boxes that the boxes of `output` need. `input`: shape of the whole input. Boxes of
/// neighbours overlap by the halo. An empty output box needs an empty input box.
Division needed_by(const Division& output, const Shape& input, const Window& window);

/// Fetches what this rank's box of `output` needs of x, and pads it with `value` where the window
/// leaves the image: what the window then is applied to without padding.
torch::Tensor fetch_window(const DividedTensor& x, const Division& output, const Window& window,
                           double value, const ProcessGroup& group);

/// An empty box of an output, of this shape, that keeps `inputs` in the graph, so that a rank
/// without a part of the output takes part in backward.
torch::Tensor empty_output(const Shape& shape, const std::vector<torch::Tensor>& inputs);

}  // namespace gradwire
