#include "gradwire/train/parallel/box_exchange.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/host/wait_meter.h"
#include "gradwire/torch/releases.h"
#include "gradwire/train/parallel/rank_functions.h"

namespace gradwire {

torch::Tensor view_of_box(const torch::Tensor& tensor, const Box& box) {
  torch::Tensor view = tensor;
  for (std::size_t d = 0; d < box.dimensions(); ++d) {
    view = view.narrow(static_cast<std::int64_t>(d), box.begin[d], box.end[d] - box.begin[d]);
  }
  return view;
}

namespace {

/// The dimension in which `from` is divided into equal parts, if every rank needs the whole tensor:
/// then the exchange is an all-gather.
std::optional<std::size_t> gathered_dimension(const Division& from, const Division& to) {
  const auto ranks = static_cast<int>(from.boxes.size());
  if (to != replicated(from.shape, ranks)) return std::nullopt;
  for (std::size_t d = 0; d < from.shape.size(); ++d) {
    if (from.shape[d] > 0 && from.shape[d] % ranks == 0 && from == divided(from.shape, d, ranks)) {
      return d;
    }
  }
  return std::nullopt;
}

/// Elements of each message, by peer.
using Counts = std::vector<std::int64_t>;

}  // namespace

struct BoxExchange::Plan {
  Division from;
  Division to;
  ProcessGroup group;
  std::optional<std::size_t> gathered;
  std::vector<BoxMessage> sent;      ///< Messages from this rank, in order of receivers.
  std::vector<BoxMessage> received;  ///< Messages to this rank, in order of senders.
  Counts sent_counts;
  Counts received_counts;
  bool local = true;  ///< No rank needs another rank's elements.

  const Box& own_from() const { return from.boxes[static_cast<std::size_t>(group->getRank())]; }
  const Box& own_to() const { return to.boxes[static_cast<std::size_t>(group->getRank())]; }

  void add(const BoxMessage& message) {
    const int rank = group->getRank();
    local &= message.from == message.to;
    if (message.from == rank) {
      sent.push_back(message);
      sent_counts[static_cast<std::size_t>(message.to)] += message.box.elements();
    }
    if (message.to == rank) {
      received.push_back(message);
      received_counts[static_cast<std::size_t>(message.from)] += message.box.elements();
    }
  }

  /// Exchanges flat tensors of all messages. The own part is copied.
  torch::Tensor exchanged(torch::Tensor flat, Counts in, Counts out) const {
    if (local) return flat;
    std::int64_t elements = 0;
    for (const auto count : out) elements += count;
    auto result = torch::empty({elements}, flat.options());
    wait_measured(*all_to_all_single(*group, result, flat, out, in), "wait for boxes of layer");
    return result;
  }
};

namespace {

torch::Tensor packed(const torch::Tensor& tensor, const Box& origin,
                     const std::vector<BoxMessage>& messages) {
  std::vector<torch::Tensor> pieces{torch::empty({0}, tensor.options())};
  for (const BoxMessage& message : messages) {
    pieces.push_back(view_of_box(tensor, relative_to(message.box, origin)).reshape({-1}));
  }
  return torch::cat(pieces);
}

/// Calls take(place, values) for each message of a flat tensor.
template <class Take>
void unpack(const torch::Tensor& flat, const torch::Tensor& into, const Box& origin,
            const std::vector<BoxMessage>& messages, const Take& take) {
  std::int64_t offset = 0;
  for (const BoxMessage& message : messages) {
    const auto place = view_of_box(into, relative_to(message.box, origin));
    take(place, flat.narrow(0, offset, place.numel()).view(place.sizes()));
    offset += place.numel();
  }
}

void check_shape(const torch::Tensor& tensor, const Box& box, int rank) {
  if (tensor.sizes().vec() == box.shape()) return;
  refuse("rank {} has the box {} of a divided tensor, of shape [{}], but passes a tensor of [{}]",
         rank, box.text(), fmt::join(box.shape(), ", "), fmt::join(tensor.sizes().vec(), ", "));
}

}  // namespace

BoxExchange::BoxExchange(Division from, Division to, ProcessGroup group) {
  const auto ranks = static_cast<std::size_t>(group->getSize());
  if (from.boxes.size() != ranks || to.boxes.size() != ranks) {
    refuse("divisions over {} and {} ranks cannot be exchanged in a group of {}", from.boxes.size(),
           to.boxes.size(), ranks);
  }
  auto plan = std::make_shared<Plan>();
  plan->from = std::move(from);
  plan->to = std::move(to);
  plan->group = std::move(group);
  plan->gathered = gathered_dimension(plan->from, plan->to);
  plan->sent_counts.resize(ranks);
  plan->received_counts.resize(ranks);
  for (const BoxMessage& message : box_messages(plan->from, plan->to)) plan->add(message);
  std::ranges::stable_sort(plan->received, {}, &BoxMessage::from);
  plan_ = std::move(plan);
}

const Division& BoxExchange::from() const {
  return plan_->from;
}
const Division& BoxExchange::to() const {
  return plan_->to;
}

std::int64_t BoxExchange::elements_sent() const {
  std::int64_t elements = 0;
  for (const BoxMessage& message : plan_->sent) {
    if (message.to != message.from) elements += message.box.elements();
  }
  return elements;
}

torch::Tensor BoxExchange::operator()(const torch::Tensor& own) const {
  check_shape(own, plan_->own_from(), plan_->group->getRank());
  return linear_map(
      own, [&](const torch::Tensor& x) { return forward(x); },
      [exchange = *this](const torch::Tensor& dy) { return exchange.backward(dy); });
}

torch::Tensor BoxExchange::forward(const torch::Tensor& own) const {
  const torch::NoGradGuard no_grad;
  const Plan& plan = *plan_;
  if (plan.gathered) {
    const auto d = static_cast<std::int64_t>(*plan.gathered);
    return collective::gather(own, d, plan.from.shape[*plan.gathered], plan.group);
  }
  const auto flat = plan.exchanged(packed(own, plan.own_from(), plan.sent), plan.sent_counts,
                                   plan.received_counts);
  auto result = torch::empty(plan.own_to().shape(), own.options().requires_grad(false));
  unpack(flat, result, plan.own_to(), plan.received,
         [](const torch::Tensor& place, const torch::Tensor& values) { place.copy_(values); });
  return result;
}

torch::Tensor BoxExchange::backward(const torch::Tensor& gradient) const {
  const torch::NoGradGuard no_grad;
  const Plan& plan = *plan_;
  if (plan.gathered) {
    return collective::reduce_scatter(gradient, static_cast<std::int64_t>(*plan.gathered),
                                      plan.group);
  }
  const auto flat = plan.exchanged(packed(gradient, plan.own_to(), plan.received),
                                   plan.received_counts, plan.sent_counts);
  auto result = torch::zeros(plan.own_from().shape(), gradient.options().requires_grad(false));
  unpack(flat, result, plan.own_from(), plan.sent,
         [](const torch::Tensor& place, const torch::Tensor& values) { place.add_(values); });
  return result;
}

DividedTensor divide(const torch::Tensor& whole, const Division& division,
                     const ProcessGroup& group) {
  if (!division.is_partition()) refuse("a tensor can be divided only into disjoint boxes");
  if (whole.sizes().vec() != division.shape) {
    refuse("a tensor of shape [{}] cannot be divided as one of [{}]",
           fmt::join(whole.sizes().vec(), ", "), fmt::join(division.shape, ", "));
  }
  const BoxExchange gather(division, replicated(division.shape, group->getSize()), group);
  const Box own = division.boxes[static_cast<std::size_t>(group->getRank())];
  const auto part = [&](const torch::Tensor& x) { return view_of_box(x, own).clone(); };
  return {linear_map(whole, part, [=](const torch::Tensor& dy) { return gather.forward(dy); }),
          division};
}

DividedTensor redivide(const DividedTensor& x, const Division& to, const ProcessGroup& group) {
  return {BoxExchange(x.division, to, group)(x.own), to};
}

torch::Tensor undivide(const DividedTensor& x, const ProcessGroup& group) {
  const BoxExchange gather(x.division, replicated(x.division.shape, group->getSize()), group);
  const Box own = x.division.boxes[static_cast<std::size_t>(group->getRank())];
  return linear_map(
      x.own, [&](const torch::Tensor& part) { return gather.forward(part); },
      [own](const torch::Tensor& dy) { return view_of_box(dy, own); });
}

torch::Tensor subset_sum(const torch::Tensor& x, const std::function<int(int rank)>& subset_of,
                         const ProcessGroup& group) {
  const int ranks = group->getSize();
  std::vector<int> size(static_cast<std::size_t>(ranks));
  std::vector<int> index;  // Index of each rank in its subset.
  for (int r = 0; r < ranks; ++r) {
    index.push_back(size[static_cast<std::size_t>(subset_of(r))]++);
  }
  if (size[0] == ranks) return collective::sum(x, group);
  const auto elements = x.numel();
  Division parts{{elements * ranks}, {}};  // Subset s has the elements from s * elements on.
  Division wholes = parts;
  for (int r = 0; r < ranks; ++r) {
    const int subset = subset_of(r);
    const auto members = size[static_cast<std::size_t>(subset)];
    const auto member = index[static_cast<std::size_t>(r)];
    const auto first = subset * elements;
    wholes.boxes.push_back({{first}, {first + elements}});
    parts.boxes.push_back({{first + part_begin(elements, members, member)},
                           {first + part_begin(elements, members, member + 1)}});
  }
  const BoxExchange exchange(parts, wholes, group);
  return exchange.forward(exchange.backward(x.reshape({-1}))).view(x.sizes());
}

}  // namespace gradwire
