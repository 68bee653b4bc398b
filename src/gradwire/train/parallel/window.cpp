#include "gradwire/train/parallel/window.h"

#include <algorithm>

namespace gradwire {
namespace {

constexpr std::size_t kFirst = 2;  // Dimension of the height.

}  // namespace

std::int64_t Window::output_size(std::int64_t input_size, std::size_t d) const {
  const auto reach = dilation[d] * (kernel[d] - 1) + 1;
  const auto room = input_size + 2 * padding[d] - reach;
  return room < 0 ? 0 : room / stride[d] + 1;
}

Division spatial_division(const Shape& shape, const SpatialParts& parts) {
  return divided(shape, kFirst, parts.height, kFirst + 1, parts.width);
}

WindowSpan needed_span(const Window& window, std::size_t d, std::int64_t begin, std::int64_t end,
                       std::int64_t input_size) {
  if (begin >= end) return {};
  const auto first = begin * window.stride[d] - window.padding[d];
  const auto last = (end - 1) * window.stride[d] - window.padding[d] +
                    window.dilation[d] * (window.kernel[d] - 1);
  WindowSpan span;
  span.begin = std::clamp<std::int64_t>(first, 0, input_size);
  span.end = std::clamp<std::int64_t>(last + 1, span.begin, input_size);
  span.padding_before = std::clamp<std::int64_t>(-first, 0, last + 1 - first);
  span.padding_after = last + 1 - first - span.padding_before - (span.end - span.begin);
  return span;
}

Division needed_by(const Division& output, const Shape& input, const Window& window) {
  Division needed{input, {}};
  for (const Box& box : output.boxes) {
    Box from = whole_box(input);
    for (std::size_t d = 0; d < 2; ++d) {
      const auto span =
          needed_span(window, d, box.begin[kFirst + d], box.end[kFirst + d], input[kFirst + d]);
      from.begin[kFirst + d] = span.begin;
      from.end[kFirst + d] = span.end;
    }
    if (box.empty()) from.end = from.begin;
    needed.boxes.push_back(from);
  }
  return needed;
}

torch::Tensor fetch_window(const DividedTensor& x, const Division& output, const Window& window,
                           double value, const ProcessGroup& group) {
  const Shape& input = x.division.shape;
  const auto halo = redivide(x, needed_by(output, input, window), group);
  const Box& box = output.boxes[static_cast<std::size_t>(group->getRank())];
  if (box.empty()) return halo.own;
  std::vector<std::int64_t> padding;  // The last dimension comes first.
  for (const std::size_t d : {1, 0}) {
    const auto span =
        needed_span(window, d, box.begin[kFirst + d], box.end[kFirst + d], input[kFirst + d]);
    padding.push_back(span.padding_before);
    padding.push_back(span.padding_after);
  }
  if (std::ranges::all_of(padding, [](std::int64_t p) { return p == 0; })) return halo.own;
  return torch::constant_pad_nd(halo.own, padding, value);
}

torch::Tensor empty_output(const Shape& shape, const std::vector<torch::Tensor>& inputs) {
  auto output = torch::zeros(shape, inputs.front().options().requires_grad(false));
  for (const auto& input : inputs) {
    if (input.defined()) output = output + input.sum();  // To no elements.
  }
  return output;
}

}  // namespace gradwire
