#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/named_tensor.h"

namespace gradwire {

/// Layout of a model's units.
struct FlatUnitOptions {
  int rank = 0;
  int ranks = 1;
  /// Stage 3: a rank keeps only its shard; memory for the whole unit is temporary. Otherwise every
  /// rank has the whole unit.
  bool sharded = false;
  /// Type of the parameters in forward and backward; nullopt: unchanged. If it has fewer bits, the
  /// rank's shard is also kept in the original type, as the master copy.
  std::optional<torch::ScalarType> type;
};

/// Parameters of a model in one flat tensor of P equal parts; the r-th part is rank r's shard
/// (Rajbhandari et al., arXiv:1910.02054, section 5). Padding, fewer than P elements, is at the
/// end. The parameters become contiguous views of the tensor. Not thread-safe.
class FlatUnit {
 public:
  /// A parameter in the unit.
  struct Member {
    std::string name;
    torch::Tensor parameter;
    std::int64_t offset = 0;   ///< First element in the unit.
    std::int64_t version = 0;  ///< Autograd's version counter at construction.
  };

  /// Consecutive elements of a member that lie in this rank's shard.
  struct Piece {
    const Member* member = nullptr;
    std::int64_t begin = 0;   ///< In the member.
    std::int64_t offset = 0;  ///< In the shard.
    std::int64_t count = 0;
  };

  /// `parameters` must be dense, of one type and device. `name` appears in messages.
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

  /// The whole unit. Valid only while present().
  const torch::Tensor& flat() const { return flat_; }
  /// This rank's shard, in the type of the computation. Part of flat(), or separate memory if
  /// sharded.
  const torch::Tensor& shard() const { return shard_; }
  /// The tensor that the optimizer steps: the shard, or its master copy.
  const torch::Tensor& master() const { return master_; }
  bool has_master() const { return !master_.is_same(shard_); }

  /// Copies the master copy to the shard. Call after the master copy has changed.
  void copy_master_to_shard();

  /// Returns the view of a member in `flat`, a tensor laid out like flat(), with the member's
  /// shape.
  torch::Tensor view(const torch::Tensor& flat, std::size_t member) const;
  /// Returns this rank's part of `flat`.
  torch::Tensor own_part(const torch::Tensor& flat) const;

  /// Returns true if memory for the whole unit is allocated. Always true unless sharded.
  bool present() const { return present_; }
  /// Allocates memory for the whole unit; its values are undefined.
  void allocate();
  /// Frees that memory. Reading a parameter then fails with an error that names it; shard() stays
  /// valid.
  void release();

  /// Makes reading a parameter fail with an error that names it, until unpoison(): its new
  /// values have not arrived. flat(), shard() and master() stay valid. No effect if sharded.
  void poison();
  void unpoison();

  /// Returns the first member that no longer lies in the unit (moved, converted, loaded by
  /// torch::load), so that steps would not reach it. Null: none.
  const Member* first_moved() const;
  /// Returns the first member that was written to although its values come from a master copy or
  /// shard, which lacks the change. Null: none.
  const Member* first_written() const;

 private:
  torch::Tensor flattened(const std::vector<NamedTensor>& parameters) const;
  std::string names() const;
  std::string released_message() const;
  std::string poisoned_message() const;

  std::string name_;
  FlatUnitOptions options_;
  std::vector<Member> members_;
  std::int64_t used_ = 0;
  bool present_ = true;
  bool poisoned_ = false;
  torch::Tensor flat_;
  /// The parameters' view of flat_: the same memory in a separate storage, unless sharded.
  torch::Tensor parameter_view_;
  torch::Tensor shard_;
  torch::Tensor master_;
};

}  // namespace gradwire
