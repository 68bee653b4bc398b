#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradwire {

using Shape = std::vector<std::int64_t>;

/// A rectangular part of a tensor: the elements with begin[d] <= index < end[d] in each dimension.
/// A box of a scalar has no dimensions and one element.
struct Box {
  Shape begin;
  Shape end;

  bool operator==(const Box&) const = default;

  std::size_t dimensions() const { return begin.size(); }
  /// Its extent in each dimension.
  Shape shape() const;
  /// Number of elements.
  std::int64_t elements() const;
  bool empty() const { return elements() == 0; }
  bool contains(const Box& other) const;
  /// "[0:3, 2:4]"
  std::string text() const;
};

/// The box of all elements of a tensor of this shape.
Box whole_box(const Shape& shape);

/// The elements of both; an empty box if there are none. Both must have as many dimensions.
Box intersection(const Box& a, const Box& b);

/// `box` in coordinates that begin at origin.begin: its place in a tensor that holds `origin`.
Box relative_to(const Box& box, const Box& origin);

/// The elements of `box` that are not in `removed`, as at most 2 * dimensions disjoint boxes.
std::vector<Box> difference(const Box& box, const Box& removed);

/// Which box of one tensor each rank has. Boxes may be empty, and may overlap: replicas and halos.
struct Division {
  Shape shape;             ///< Shape of the whole tensor.
  std::vector<Box> boxes;  ///< By rank.

  bool operator==(const Division&) const = default;

  /// Returns true if every element is in exactly one box.
  bool is_partition() const;
};

/// First index of part `part` when `size` indices are divided into `parts` parts in order, as
/// evenly as possible, the larger ones first: 10 over 4 is 3, 3, 2, 2. Also valid for part = parts.
std::int64_t part_begin(std::int64_t size, std::int64_t parts, std::int64_t part);

/// Divides `dimension` into `parts` parts by part_begin(): one box a rank. Throws
/// Exception(invalid_argument) if there is no such dimension, or parts < 1.
Division divided(const Shape& shape, std::size_t dimension, int parts);

/// Divides two dimensions: rank r has part r / second_parts of `first` and part r % second_parts of
/// `second`.
Division divided(const Shape& shape, std::size_t first, int first_parts, std::size_t second,
                 int second_parts);

/// Every rank has the whole tensor.
Division replicated(const Shape& shape, int ranks);

/// A box that one rank has and another needs. from == to: the rank has it already.
struct BoxMessage {
  int from = 0;
  int to = 0;
  Box box;  ///< In coordinates of the whole tensor.

  bool operator==(const BoxMessage&) const = default;
};

/// The messages that turn one division of a tensor into another: each rank receives every element
/// of its box in `to` exactly once, from itself if it has it, else from the lowest rank that has
/// it. Ordered by receiver, then by sender (the receiver itself first). Sequence and boxes are the
/// same on every rank. Throws Exception(invalid_argument) if the shapes differ, or if no rank has
/// some element that one needs.
std::vector<BoxMessage> box_messages(const Division& from, const Division& to);

}  // namespace gradwire
