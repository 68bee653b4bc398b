#include "gradwire/base/box.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"

namespace gradwire {

Shape Box::shape() const {
  Shape sizes;
  for (std::size_t d = 0; d < dimensions(); ++d) sizes.push_back(end[d] - begin[d]);
  return sizes;
}

std::int64_t Box::elements() const {
  std::int64_t product = 1;
  for (std::size_t d = 0; d < dimensions(); ++d) {
    product *= std::max<std::int64_t>(0, end[d] - begin[d]);
  }
  return product;
}

bool Box::contains(const Box& other) const {
  if (other.empty()) return true;
  for (std::size_t d = 0; d < dimensions(); ++d) {
    if (other.begin[d] < begin[d] || other.end[d] > end[d]) return false;
  }
  return true;
}

std::string Box::text() const {
  std::vector<std::string> ranges;
  for (std::size_t d = 0; d < dimensions(); ++d) {
    ranges.push_back(fmt::format("{}:{}", begin[d], end[d]));
  }
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

Box whole_box(const Shape& shape) {
  return {Shape(shape.size(), 0), shape};
}

Box intersection(const Box& a, const Box& b) {
  Box both = a;
  for (std::size_t d = 0; d < a.dimensions(); ++d) {
    both.begin[d] = std::max(a.begin[d], b.begin[d]);
    both.end[d] = std::max(both.begin[d], std::min(a.end[d], b.end[d]));
  }
  return both;
}

Box relative_to(const Box& box, const Box& origin) {
  Box moved = box;
  for (std::size_t d = 0; d < box.dimensions(); ++d) {
    moved.begin[d] -= origin.begin[d];
    moved.end[d] -= origin.begin[d];
  }
  return moved;
}

std::vector<Box> difference(const Box& box, const Box& removed) {
  if (box.empty()) return {};
  const Box hole = intersection(box, removed);
  if (hole.empty()) return {box};
  std::vector<Box> parts;
  Box rest = box;  // Shrinks to the hole, one side after the other.
  for (std::size_t d = 0; d < box.dimensions(); ++d) {
    Box before = rest;
    before.end[d] = hole.begin[d];
    if (!before.empty()) parts.push_back(before);
    Box after = rest;
    after.begin[d] = hole.end[d];
    if (!after.empty()) parts.push_back(after);
    rest.begin[d] = hole.begin[d];
    rest.end[d] = hole.end[d];
  }
  return parts;
}

bool Division::is_partition() const {
  std::int64_t elements = 0;
  for (std::size_t a = 0; a < boxes.size(); ++a) {
    elements += boxes[a].elements();
    for (std::size_t b = 0; b < a; ++b) {
      if (!intersection(boxes[a], boxes[b]).empty()) return false;
    }
  }
  return elements == whole_box(shape).elements();
}

std::int64_t part_begin(std::int64_t size, std::int64_t parts, std::int64_t part) {
  return part * (size / parts) + std::min(part, size % parts);
}

Division divided(const Shape& shape, std::size_t dimension, int parts) {
  return divided(shape, dimension, parts, dimension, 1);
}

namespace {

void check_division(const Shape& shape, std::size_t dimension, int parts) {
  if (dimension >= shape.size()) {
    refuse("cannot divide dimension {} of a tensor of {} dimensions", dimension, shape.size());
  }
  if (parts < 1) refuse("cannot divide a tensor into {} parts; at least 1", parts);
}

}  // namespace

Division divided(const Shape& shape, std::size_t first, int first_parts, std::size_t second,
                 int second_parts) {
  check_division(shape, first, first_parts);
  check_division(shape, second, second_parts);
  Division division{shape, {}};
  for (int rank = 0; rank < first_parts * second_parts; ++rank) {
    Box box = whole_box(shape);
    const auto cut = [&](std::size_t dimension, int parts, int part) {
      if (parts == 1) return;  // Leaves the first cut alone where both are of one dimension.
      box.begin[dimension] = part_begin(shape[dimension], parts, part);
      box.end[dimension] = part_begin(shape[dimension], parts, part + 1);
    };
    cut(first, first_parts, rank / second_parts);
    cut(second, second_parts, rank % second_parts);
    division.boxes.push_back(box);
  }
  return division;
}

Division replicated(const Shape& shape, int ranks) {
  return {shape, std::vector<Box>(static_cast<std::size_t>(ranks), whole_box(shape))};
}

namespace {

/// The boxes that one rank still needs, and the messages found so far.
class Demand {
 public:
  Demand(int rank, const Box& box, std::vector<BoxMessage>& messages)
      : rank_(rank), needed_{box}, messages_(messages) {
    if (box.empty()) needed_.clear();
  }

  /// Takes from `sender` all that it has and is still needed.
  void take(int sender, const Box& has) {
    std::vector<Box> rest;
    for (const Box& box : needed_) {
      const Box both = intersection(box, has);
      if (!both.empty()) messages_.push_back({sender, rank_, both});
      for (Box& part : difference(box, has)) rest.push_back(std::move(part));
    }
    needed_ = std::move(rest);
  }

  const std::vector<Box>& needed() const { return needed_; }

 private:
  int rank_;
  std::vector<Box> needed_;
  std::vector<BoxMessage>& messages_;
};

}  // namespace

std::vector<BoxMessage> box_messages(const Division& from, const Division& to) {
  if (from.shape != to.shape) {
    refuse("cannot turn a division of a tensor of shape [{}] into one of shape [{}]",
           fmt::join(from.shape, ", "), fmt::join(to.shape, ", "));
  }
  std::vector<BoxMessage> messages;
  for (std::size_t receiver = 0; receiver < to.boxes.size(); ++receiver) {
    Demand demand(static_cast<int>(receiver), to.boxes[receiver], messages);
    if (receiver < from.boxes.size()) {
      demand.take(static_cast<int>(receiver), from.boxes[receiver]);
    }
    for (std::size_t sender = 0; sender < from.boxes.size() && !demand.needed().empty(); ++sender) {
      demand.take(static_cast<int>(sender), from.boxes[sender]);
    }
    if (demand.needed().empty()) continue;
    refuse("rank {} needs {} of a tensor of shape [{}], which no rank has", receiver,
           demand.needed().front().text(), fmt::join(to.shape, ", "));
  }
  return messages;
}

}  // namespace gradwire
