#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/host/group.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {

/// Throws errors of training on behalf of `who`: "DataParallel", "Zero".
class TrainingErrors {
 public:
  TrainingErrors(ProcessGroup group, std::string who)
      : group_(std::move(group)), who_(std::move(who)) {}

  const std::string& who() const { return who_; }
  ArgumentName name(std::string_view what) const { return {who_, what, group_->getRank()}; }
  std::string text(const std::string& message) const {
    return fmt::format("rank {}: {}: {}", group_->getRank(), who_, message);
  }
  /// Aborts the group first: the other ranks do not know of the error.
  [[noreturn]] void fail(ErrorKind kind, const std::string& message) const {
    abort_group(*group_, text(message));
    throw Exception(kind, text(message));
  }

  /// The gradient would be local to this rank, added to a mean, and the replicas would diverge.
  [[noreturn]] void refuse_gradient(const NamedTensor& parameter) const;
  [[noreturn]] void refuse_second_gradient(const NamedTensor& parameter) const;
  void require_dense(const NamedTensor& parameter) const;

 private:
  ProcessGroup group_;
  std::string who_;
};

}  // namespace gradwire
