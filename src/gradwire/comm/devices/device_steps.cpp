#include "gradwire/comm/devices/device_steps.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "gradwire/engine/operations/reduction.h"

namespace gradwire {
namespace {

using engine::OperationRequest;
using schedule::Collective;

/// Bytes of a slice: those of several devices stay in a core's cache.
constexpr std::size_t kSliceBytes = 64 * 1024;

using HostMemory = std::shared_ptr<std::byte[]>;  // NOLINT

HostMemory host_memory(std::size_t bytes) {
  // C++20 has no way to leave this uninitialized.
  return std::shared_ptr<std::byte[]>(new std::byte[bytes]);  // NOLINT
}

struct CopiedBytes {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t bytes = 0;
};

DeviceStep copying(const std::vector<CopiedBytes>& copies) {
  std::vector<CopiedBytes> slices;
  for (const CopiedBytes& copy : copies) {
    if (copy.from == copy.to) continue;
    for (std::size_t at = 0; at < copy.bytes; at += kSliceBytes)
      slices.push_back({copy.from + at, copy.to + at, std::min(kSliceBytes, copy.bytes - at)});
  }
  const std::size_t count = slices.size();
  return {.slices = count, .run = [slices = std::move(slices)](std::size_t i) {
            std::memcpy(slices[i].to, slices[i].from, slices[i].bytes);
          }};
}

/// A reduction of as many elements from each device.
struct DeviceSum {
  std::vector<const std::byte*> from;
  std::byte* to = nullptr;
  std::vector<std::byte*> copies;  ///< Other places for the result.
};

struct SumElements {
  std::size_t count = 0;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  int ranks = 0;  ///< Those of the whole reduction, if it is complete; 0: a later step ends it.
};

/// The order of recursive_doubling: with E operands beyond a power of two, the first 2E form pairs;
/// then neighbours are added, then these sums, and so on. Returns the place of the result, which is
/// `to` unless there is one operand. `scratch`: a slice for each level. `to` may be an operand.
const std::byte* reduce_tree(std::span<const std::byte* const> from, std::byte* to,
                             std::byte* scratch, const SumElements& elements) {
  if (from.size() == 1) return from.front();
  const std::size_t half = std::bit_floor(from.size()) / 2;
  const std::size_t extra = from.size() - 2 * half;
  const std::size_t split = half + std::min(half, extra);
  // The right operands may be in `to`, so the left sum is not written there.
  const auto* left = reduce_tree(from.first(split), scratch, scratch + kSliceBytes, elements);
  const auto* right =
      reduce_tree(from.subspan(split), scratch + kSliceBytes, scratch + 2 * kSliceBytes, elements);
  engine::combine(to, left, right, elements.count, elements.type, elements.op);
  return to;
}

void reduce_slice(const DeviceSum& sum, std::size_t offset, const SumElements& elements) {
  std::vector<const std::byte*> from;
  for (const std::byte* each : sum.from) from.push_back(each + offset);
  std::byte* const to = sum.to + offset;
  const std::size_t bytes = elements.count * size_of(elements.type);
  HostMemory scratch;
  if (from.size() > 2) scratch = host_memory(2 * std::bit_width(from.size()) * kSliceBytes);
  const std::byte* result = reduce_tree(from, to, scratch.get(), elements);
  if (result != to) std::memcpy(to, result, bytes);
  if (elements.ranks > 0)
    engine::finish_reduction(to, elements.count, elements.type, elements.op, elements.ranks);
  for (std::byte* copy : sum.copies) std::memcpy(copy + offset, to, bytes);
}

DeviceStep reducing(std::vector<DeviceSum> sums, const SumElements& elements) {
  const std::size_t size = size_of(elements.type);
  const std::size_t at_once = kSliceBytes / size;
  const std::size_t slices = (elements.count + at_once - 1) / at_once;
  return {.slices = sums.size() * slices,
          .run = [sums = std::move(sums), elements, size, at_once, slices](std::size_t i) {
            SumElements part = elements;
            const std::size_t first = i % slices * at_once;
            part.count = std::min(at_once, elements.count - first);
            reduce_slice(sums[i / slices], first * size, part);
          }};
}

/// Completes reductions whose sums have come from all processes.
DeviceStep finishing(std::byte* data, const SumElements& elements) {
  if (elements.op != ReduceOp::mean) return {};
  return reducing({{.from = {data}, .to = data, .copies = {}}}, elements);
}

/// One collective of this process: what its devices have brought.
class DeviceCollective {
 public:
  DeviceCollective(const std::vector<OperationRequest>& requests, const DeviceShape& shape)
      : requests_(requests),
        shape_(shape),
        what_(requests.front().fingerprint),
        size_(size_of(what_.type)),
        count_(static_cast<std::size_t>(what_.count)),
        part_(schedule::has_parts(what_.collective)
                  ? count_ / static_cast<std::size_t>(shape.ranks()) * size_
                  : 0) {}

  std::vector<DeviceStep> steps() const {
    switch (what_.collective) {
      case Collective::all_reduce:
        return all_reduce();
      case Collective::broadcast:
        return broadcast();
      case Collective::reduce:
        return reduce();
      case Collective::all_gather:
        return all_gather();
      case Collective::reduce_scatter:
        return reduce_scatter();
      case Collective::gather:
        return gather();
      case Collective::scatter:
        return scatter();
      case Collective::all_to_all:
        return all_to_all();
      case Collective::barrier:
      case Collective::point_to_point:
        break;
    }
    return barrier();
  }

 private:
  bool is_alone() const { return shape_.processes == 1; }
  std::size_t devices() const { return requests_.size(); }
  const std::byte* input(std::size_t device) const { return requests_[device].input; }
  std::byte* output(std::size_t device) const { return requests_[device].output; }

  bool has_root() const { return shape_.process_of(what_.root) == shape_.process; }
  Rank root_process() const { return shape_.process_of(what_.root); }
  std::size_t root_device() const { return shape_.device_of(what_.root); }

  /// The bytes before the part of a rank, or of device `device` of this process.
  std::size_t before(std::size_t rank) const { return rank * part_; }
  std::size_t before_own(std::size_t device) const {
    return before(static_cast<std::size_t>(shape_.rank(static_cast<int>(device))));
  }

  std::vector<const std::byte*> inputs(std::size_t offset = 0) const {
    std::vector<const std::byte*> all;
    for (const OperationRequest& request : requests_) all.push_back(request.input + offset);
    return all;
  }
  /// The outputs of all devices but one.
  std::vector<std::byte*> other_outputs(std::size_t device) const {
    std::vector<std::byte*> others;
    for (std::size_t d = 0; d < devices(); ++d)
      if (d != device) others.push_back(output(d));
    return others;
  }
  std::vector<CopiedBytes> to_others(std::size_t device, const std::byte* from) const {
    std::vector<CopiedBytes> copies;
    for (std::byte* other : other_outputs(device)) copies.push_back({from, other, count_ * size_});
    return copies;
  }

  SumElements elements(std::size_t count, bool is_complete) const {
    return {count, what_.type, what_.op, is_complete ? shape_.ranks() : 0};
  }
  std::size_t part_elements() const { return part_ / size_; }

  OperationOptions options(int lane) const {
    const OperationRequest& request = requests_.front();
    return {.priority = request.priority,
            .lane = lane,
            .timeout = request.timeout,
            .layout = what_.sent,
            .segments = request.segments};
  }
  /// The mean is taken once, at the end.
  ReduceOp op_between() const { return what_.op == ReduceOp::mean ? ReduceOp::sum : what_.op; }
  LentSpan lend(std::byte* data, std::size_t bytes, HostMemory keep = nullptr) const {
    return {data, bytes / size_, what_.type, std::move(keep)};
  }
  LentConstSpan lend_const(const std::byte* data, std::size_t bytes,
                           HostMemory keep = nullptr) const {
    return {data, bytes / size_, what_.type, std::move(keep)};
  }

  std::vector<DeviceStep> all_reduce() const {
    std::byte* const sum = output(0);
    if (is_alone()) {
      return {reducing({{.from = inputs(), .to = sum, .copies = other_outputs(0)}},
                       elements(count_, true))};
    }
    return {
        reducing({{.from = inputs(), .to = sum, .copies = {}}}, elements(count_, false)),
        {.between =
             [=, *this](Communicator& between, int lane) {
               return between.all_reduce(lend(sum, count_ * size_), op_between(), options(lane));
             }},
        reducing({{.from = {sum}, .to = sum, .copies = other_outputs(0)}}, elements(count_, true))};
  }

  std::vector<DeviceStep> broadcast() const {
    const std::size_t from = has_root() ? root_device() : 0;
    std::byte* const data = output(from);
    std::vector<DeviceStep> steps;
    if (!is_alone()) {
      steps.push_back({.between = [=, *this](Communicator& between, int lane) {
        return between.broadcast(lend(data, count_ * size_), root_process(), options(lane));
      }});
    }
    steps.push_back(copying(to_others(from, data)));
    return steps;
  }

  std::vector<DeviceStep> reduce() const {
    const std::size_t bytes = count_ * size_;
    const HostMemory own = has_root() ? nullptr : host_memory(bytes);
    std::byte* const sum = has_root() ? output(root_device()) : own.get();
    std::vector<DeviceStep> steps{
        reducing({{.from = inputs(), .to = sum, .copies = {}}}, elements(count_, is_alone()))};
    if (is_alone()) return steps;
    steps.push_back({.between = [=, *this](Communicator& between, int lane) {
      return between.reduce(lend(sum, bytes, own), root_process(), op_between(), options(lane));
    }});
    if (has_root()) steps.push_back(finishing(sum, elements(count_, true)));
    return steps;
  }

  /// Each device's input to where `place` has it.
  template <class Place>
  std::vector<CopiedBytes> from_inputs(const Place& place) const {
    std::vector<CopiedBytes> copies;
    for (std::size_t d = 0; d < devices(); ++d) copies.push_back({input(d), place(d), part_});
    return copies;
  }

  std::vector<DeviceStep> all_gather() const {
    std::vector<CopiedBytes> copies;
    for (std::size_t to = 0; to < (is_alone() ? devices() : 1); ++to) {
      const auto all = from_inputs([&](std::size_t d) { return output(to) + before_own(d); });
      copies.insert(copies.end(), all.begin(), all.end());
    }
    if (is_alone()) return {copying(copies)};
    std::byte* const all = output(0);
    return {copying(copies),
            {.between =
                 [=, *this](Communicator& between, int lane) {
                   return between.all_gather(lend_const(all + before_own(0), devices() * part_),
                                             lend(all, count_ * size_), options(lane));
                 }},
            copying(to_others(0, all))};
  }

  std::vector<DeviceStep> reduce_scatter() const {
    if (is_alone()) {
      std::vector<DeviceSum> sums;
      for (std::size_t d = 0; d < devices(); ++d)
        sums.push_back({.from = inputs(before(d)), .to = output(d), .copies = {}});
      return {reducing(std::move(sums), elements(part_elements(), true))};
    }
    const HostMemory sum = host_memory(count_ * size_);
    const HostMemory own = host_memory(devices() * part_);
    std::vector<DeviceSum> parts;
    for (std::size_t d = 0; d < devices(); ++d)
      parts.push_back({.from = {own.get() + d * part_}, .to = output(d), .copies = {}});
    return {reducing({{.from = inputs(), .to = sum.get(), .copies = {}}}, elements(count_, false)),
            {.between =
                 [=, *this](Communicator& between, int lane) {
                   return between.reduce_scatter(lend_const(sum.get(), count_ * size_, sum),
                                                 lend(own.get(), devices() * part_, own),
                                                 op_between(), options(lane));
                 }},
            keeping(own, reducing(std::move(parts), elements(part_elements(), true)))};
  }

  std::vector<DeviceStep> gather() const {
    std::byte* const all = has_root() ? output(root_device()) : nullptr;
    if (is_alone())
      return {copying(from_inputs([&](std::size_t d) { return all + before_own(d); }))};
    const HostMemory own = host_memory(devices() * part_);
    return {copying(from_inputs([&](std::size_t d) { return own.get() + d * part_; })),
            {.between = [=, *this](Communicator& between, int lane) {
              return between.gather(lend_const(own.get(), devices() * part_, own),
                                    lend(all, all == nullptr ? 0 : count_ * size_), root_process(),
                                    options(lane));
            }}};
  }

  std::vector<DeviceStep> scatter() const {
    const std::byte* const all = has_root() ? input(root_device()) : nullptr;
    const HostMemory own = is_alone() ? nullptr : host_memory(devices() * part_);
    std::vector<CopiedBytes> copies;
    for (std::size_t d = 0; d < devices(); ++d)
      copies.push_back(
          {is_alone() ? all + before_own(d) : own.get() + d * part_, output(d), part_});
    if (is_alone()) return {copying(copies)};
    return {{.between =
                 [=, *this](Communicator& between, int lane) {
                   return between.scatter(lend_const(all, all == nullptr ? 0 : count_ * size_),
                                          lend(own.get(), devices() * part_, own), root_process(),
                                          options(lane));
                 }},
            keeping(own, copying(copies))};
  }

  /// The bytes of a device's buffer before the part of a rank, which may be one past the last.
  std::size_t before(schedule::Buffer buffer, std::size_t device, std::size_t rank) const {
    const auto& splits = requests_[device].splits;
    return splits ? splits->begin(buffer, static_cast<std::uint32_t>(rank)) * size_ : before(rank);
  }
  std::size_t size(schedule::Buffer buffer, std::size_t device, std::size_t rank) const {
    return before(buffer, device, rank + 1) - before(buffer, device, rank);
  }

  std::vector<DeviceStep> all_to_all() const {
    using schedule::Buffer;
    if (is_alone()) {
      std::vector<CopiedBytes> copies;
      for (std::size_t s = 0; s < devices(); ++s)
        for (std::size_t t = 0; t < devices(); ++t)
          copies.push_back({input(s) + before(Buffer::input, s, t),
                            output(t) + before(Buffer::output, t, s), size(Buffer::input, s, t)});
      return {copying(copies)};
    }
    const HostMemory from = host_memory(total(Buffer::input)),
                     to = host_memory(total(Buffer::output));
    std::vector<std::size_t> sent, received;
    const auto packing = messages(Buffer::input, from.get(), sent);
    const auto unpacking = messages(Buffer::output, to.get(), received);
    return {copying(packing),
            {.between =
                 [=, *this](Communicator& between, int lane) {
                   return between.all_to_all(lend_const(from.get(), total(Buffer::input), from),
                                             lend(to.get(), total(Buffer::output), to), sent,
                                             received, options(lane));
                 }},
            keeping(to, copying(unpacking))};
  }

  /// Copies between the devices' buffers and the messages to or from all processes, which begin at
  /// `at`; their elements are appended to `counts`. A message has its parts by sender, then by
  /// receiver.
  std::vector<CopiedBytes> messages(schedule::Buffer buffer, std::byte* at,
                                    std::vector<std::size_t>& counts) const {
    const bool packs = buffer == schedule::Buffer::input;
    std::vector<CopiedBytes> copies;
    for (int process = 0; process < shape_.processes; ++process) {
      const std::byte* const begin = at;
      for (std::size_t i = 0; i < devices() * devices(); ++i) {
        const std::size_t sender = i / devices(), receiver = i % devices();
        const std::size_t own = packs ? sender : receiver;
        const std::size_t other =
            static_cast<std::size_t>(process) * devices() + (packs ? receiver : sender);
        const std::size_t offset = before(buffer, own, other), bytes = size(buffer, own, other);
        copies.push_back(packs ? CopiedBytes{input(own) + offset, at, bytes}
                               : CopiedBytes{at, output(own) + offset, bytes});
        at += bytes;
      }
      counts.push_back(static_cast<std::size_t>(at - begin) / size_);
    }
    return copies;
  }
  std::size_t total(schedule::Buffer buffer) const {
    std::size_t bytes = 0;
    for (std::size_t d = 0; d < devices(); ++d)
      bytes += before(buffer, d, static_cast<std::size_t>(shape_.ranks()));
    return bytes;
  }

  std::vector<DeviceStep> barrier() const {
    if (is_alone()) return {};
    return {{.between = [*this](Communicator& between, int lane) {
      return between.barrier(options(lane));
    }}};
  }

  /// Keeps memory as long as the step.
  static DeviceStep keeping(HostMemory memory, DeviceStep step) {
    step.run = [memory = std::move(memory), run = std::move(step.run)](std::size_t i) { run(i); };
    return step;
  }

  const std::vector<OperationRequest>& requests_;  ///< Outlive the steps.
  DeviceShape shape_;
  engine::Fingerprint what_;
  std::size_t size_;   ///< Bytes of an element.
  std::size_t count_;  ///< SumElements of all parts.
  std::size_t part_;   ///< Bytes of a rank's part.
};

}  // namespace

std::vector<DeviceStep> steps_of(const std::vector<OperationRequest>& requests,
                                 const DeviceShape& shape) {
  return DeviceCollective(requests, shape).steps();
}

DeviceStep message_step(const std::byte* from, std::byte* to, std::size_t bytes) {
  return copying({{from, to, bytes}});
}

}  // namespace gradwire
