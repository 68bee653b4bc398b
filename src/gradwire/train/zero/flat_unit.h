#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// How the units of a model are laid out.
struct FlatUnitOptions {
  int rank = 0;
  int ranks = 1;
  bool sharded = false;  ///< Stage 3: a rank keeps its part only, and memory for the rest comes and
                         ///< goes. Otherwise every rank has all of the unit.
  /// What parameters are kept in for forward and backward; nothing: their own type. If it has
  /// fewer bits, the rank's part is also kept in the parameters' own, as the master copy.
  std::optional<torch::ScalarType> type;
};

/// Some parameters of a model one after the other in a flat tensor of P equal parts, the r-th of
/// which is rank r's shard (Rajbhandari et al., arXiv:1910.02054, section 5). Padding only at the
/// end, fewer elements than P. The parameters become views of it, contiguous ones. Not thread-safe.
class FlatUnit {
 public:
  /// A parameter's place.
  struct Member {
    std::string name;
    torch::Tensor parameter;
    std::int64_t offset = 0;   ///< Of its first element, in the unit.
    std::int64_t version = 0;  ///< Autograd's count of writes to it, when the unit was made.
  };

  /// Consecutive elements of a member that lie in this rank's shard.
  struct Piece {
    const Member* member = nullptr;
    std::int64_t begin = 0;   ///< In the member.
    std::int64_t offset = 0;  ///< In the shard.
    std::int64_t count = 0;
  };

  /// `parameters` are dense, of one type and device. `name` is for messages.
  FlatUnit(std::string name, const std::vector<NamedTensor>& parameters,
           const FlatUnitOptions& options);
  FlatUnit(const FlatUnit&) = delete;
  FlatUnit& operator=(const FlatUnit&) = delete;
  FlatUnit(FlatUnit&&) = default;

  const std::string& name() const { return name_; }
  const std::vector<Member>& members() const { return members_; }
  std::vector<Piece> pieces() const;

  std::int64_t elements() const { return shard_.numel() * options_.ranks; }
  std::int64_t used_elements() const { return used_; }  ///< Without padding.
  bool sharded() const { return options_.sharded && options_.ranks > 1; }

  /// All of it; only while present().
  const torch::Tensor& flat() const { return flat_; }
  /// This rank's part, in the parameters' type: a part of flat(), or memory of its own if sharded.
  const torch::Tensor& shard() const { return shard_; }
  /// What the optimiser steps: the shard, or a copy of it in more bits.
  const torch::Tensor& master() const { return master_; }
  bool has_master() const { return !master_.is_same(shard_); }

  /// After the master copy has changed: the shard follows.
  void take_master();

  /// The place of a member in `flat`, a tensor like flat(): with the member's shape.
  torch::Tensor view(const torch::Tensor& flat, std::size_t member) const;
  /// This rank's part of it.
  torch::Tensor own_part(const torch::Tensor& flat) const;

  /// Whether there is memory for all of it. Always, unless it is sharded.
  bool present() const { return present_; }
  /// Memory for all of it, its values undefined.
  void allocate();
  /// Gives that memory back. Whoever then reads a parameter (but this rank's part: shard()) gets an
  /// error that names it.
  void release();

  /// Until show(): its values are on the way, and whoever reads a parameter gets an error that
  /// names it. What is done through flat(), shard() and master() goes on. Nothing if sharded.
  void withhold();
  void show();

  /// The first member that no longer lies in the unit (moved, converted, loaded by torch::load), so
  /// that steps do not reach it. Null: none.
  const Member* moved() const;
  /// The first member that somebody has written to whose master copy, or shard, knows nothing of
  /// it. Null: none.
  const Member* written() const;

 private:
  torch::Tensor flattened(const std::vector<NamedTensor>& parameters) const;
  std::string names() const;
  std::string released_message() const;
  std::string withheld_message() const;

  std::string name_;
  FlatUnitOptions options_;
  std::vector<Member> members_;
  std::int64_t used_ = 0;
  bool present_ = true;
  bool withheld_ = false;
  torch::Tensor flat_;
  torch::Tensor shown_;  ///< The same memory, as parameters see it: with a storage of their own.
  torch::Tensor shard_;
  torch::Tensor master_;
};

}  // namespace gradwire
