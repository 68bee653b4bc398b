#include "gradwire/train/zero/flat_unit.h"

#include <algorithm>
#include <utility>

#include <c10/util/strides.h>
#include <fmt/format.h>

#include "gradwire/memory/memory_tracker.h"
#include "gradwire/torch/releases.h"

namespace gradwire {
namespace {

/// Returns a tensor that shares memory without being an autograd view, which optimizers refuse to
/// detach.
torch::Tensor share(const torch::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes) {
  const auto strides = c10::contiguous_strides(sizes);
  return torch::empty({0}, flat.options())
      .set_(flat.storage(), flat.storage_offset() + offset, sizes, strides);
}

/// Returns the same memory in a separate storage, so that access to one of them can be blocked.
torch::Tensor separate_storage(const torch::Tensor& flat) {
  return torch::from_blob(
      flat.data_ptr(), flat.sizes(), [flat](void*) {}, flat.options());
}

}  // namespace

FlatUnit::FlatUnit(std::string name, const std::vector<NamedTensor>& parameters,
                   const FlatUnitOptions& options)
    : name_(std::move(name)), options_(options) {
  const torch::NoGradGuard no_grad;
  const MemoryScope memory(MemoryCategory::parameters);
  for (const auto& [parameter_name, tensor] : parameters) {
    members_.push_back({parameter_name, tensor, used_, tensor._version()});
    used_ += tensor.numel();
  }
  const auto original = flattened(parameters);
  const auto type = options_.type.value_or(original.scalar_type());
  flat_ = original.to(type);
  parameter_view_ = sharded() ? flat_ : separate_storage(flat_);
  // Do this first: it frees the parameters' own memory.
  for (std::size_t i = 0; i < members_.size(); ++i) {
    members_[i].parameter.set_data(view(parameter_view_, i));
  }
  shard_ = sharded() ? own_part(flat_).clone() : own_part(flat_);
  master_ = type == original.scalar_type() ? shard_ : own_part(original).clone();
  if (has_master()) label_memory(master_, MemoryCategory::optimizer);
}

torch::Tensor FlatUnit::flattened(const std::vector<NamedTensor>& parameters) const {
  const auto part = (used_ + options_.ranks - 1) / options_.ranks;
  auto flat = torch::zeros({part * options_.ranks},
                           parameters.front().tensor.options().requires_grad(false));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    view(flat, i).copy_(parameters[i].tensor.detach());
  }
  return flat;
}

torch::Tensor FlatUnit::view(const torch::Tensor& flat, std::size_t member) const {
  return share(flat, members_[member].offset, members_[member].parameter.sizes());
}

torch::Tensor FlatUnit::own_part(const torch::Tensor& flat) const {
  const auto part = flat.numel() / options_.ranks;
  return share(flat, part * options_.rank, {part});
}

std::vector<FlatUnit::Piece> FlatUnit::pieces() const {
  std::vector<Piece> found;
  const auto first = shard_.numel() * options_.rank;
  const auto last = first + shard_.numel();
  for (const auto& member : members_) {
    const auto begin = std::max(first, member.offset);
    const auto end = std::min(last, member.offset + member.parameter.numel());
    // A parameter without elements is a piece of one rank, so that checkpoints contain it.
    const bool empty_here = member.parameter.numel() == 0 && options_.rank == 0;
    if (begin < end) found.push_back({&member, begin - member.offset, begin - first, end - begin});
    if (empty_here) found.push_back({&member, 0, 0, 0});
  }
  return found;
}

void FlatUnit::copy_master_to_shard() {
  const torch::NoGradGuard no_grad;
  if (has_master()) shard_.copy_(master_);
}

void FlatUnit::allocate() {
  if (present_) return;
  const MemoryScope memory(MemoryCategory::communication);
  auto* storage = flat_.storage().unsafeGetStorageImpl();
  clear_access_error(*storage);
  const c10::OptionalDeviceGuard here(flat_.device());
  storage->set_data_ptr_noswap(storage->allocator()->allocate(storage->nbytes()));
  present_ = true;
}

void FlatUnit::release() {
  if (!present_ || !sharded()) return;
  // Tensors that autograd saved for backward refer to the storage, so it must stay; only its memory
  // is freed.
  auto* storage = flat_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, storage->device()));
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(released_message());
  present_ = false;
}

void FlatUnit::poison() {
  if (poisoned_ || sharded() || !can_clear_access_error()) return;
  parameter_view_.storage()
      .unsafeGetStorageImpl()
      ->release_data_and_set_meta_custom_data_ptr_error_msg_(poisoned_message());
  poisoned_ = true;
}

void FlatUnit::unpoison() {
  if (!poisoned_) return;
  clear_access_error(*parameter_view_.storage().unsafeGetStorageImpl());
  poisoned_ = false;
}

const FlatUnit::Member* FlatUnit::first_moved() const {
  const auto* storage = parameter_view_.storage().unsafeGetStorageImpl();
  for (const auto& member : members_) {
    const auto& parameter = member.parameter;
    const bool here = parameter.storage().unsafeGetStorageImpl() == storage &&
                      parameter.storage_offset() == member.offset &&
                      parameter.scalar_type() == parameter_view_.scalar_type();
    if (!here) return &member;
  }
  return nullptr;
}

const FlatUnit::Member* FlatUnit::first_written() const {
  if (!has_master() && !sharded()) return nullptr;
  const auto found = std::ranges::find_if(
      members_, [](const auto& member) { return member.parameter._version() != member.version; });
  return found == members_.end() ? nullptr : &*found;
}

std::string FlatUnit::names() const {
  const auto more = members_.size() - 1;
  return fmt::format("'{}'{}", members_.front().name,
                     more > 0 ? fmt::format(" (with {} more parameters)", more) : "");
}

std::string FlatUnit::released_message() const {
  return fmt::format(
      "{} is sharded over {} ranks and not present (Zero, stage 3, unit '{}'): call forward of the "
      "gradwire::Zero, not of the wrapped module; call consolidate() before reading parameters",
      names(), options_.ranks, name_);
}

std::string FlatUnit::poisoned_message() const {
  return fmt::format(
      "{} was used before the pending step had updated it (Zero, unit '{}'): call forward of the "
      "gradwire::Zero, not of the wrapped module; call finish() before reading parameters; if "
      "forward_awaits is set, forward lacks a gradwire::await_parameters()",
      names(), name_);
}

}  // namespace gradwire
