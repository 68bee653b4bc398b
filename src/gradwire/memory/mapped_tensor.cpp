#include "gradwire/memory/mapped_tensor.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

/// An unnamed file, which exists while this object or a mapping exists.
class File {
 public:
  explicit File(const std::filesystem::path& folder) : folder_(folder) {
    auto name = (folder / "gradwire-XXXXXX").string();
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail("create", errno);
    ::unlink(name.c_str());
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// Maps `bytes` zeros.
  void* map(std::size_t bytes) const {
    // Reserve the space: with a full disk, a later write would end the process with SIGBUS.
    const int full = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
    if (full != 0) fail("reserve space in", full);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (memory == MAP_FAILED) fail("map", errno);
    return memory;
  }

 private:
  [[noreturn]] void fail(std::string_view what, int error) const {
    throw Exception(ErrorKind::system, fmt::format("cannot {} a file for a tensor in {}: {}", what,
                                                   folder_.string(), std::strerror(error)));
  }

  std::filesystem::path folder_;
  int descriptor_ = -1;
};

}  // namespace

torch::Tensor mapped_tensor(const std::filesystem::path& folder,
                            const std::vector<std::int64_t>& sizes, torch::ScalarType type) {
  const auto elements = static_cast<std::size_t>(c10::multiply_integers(sizes));
  const auto bytes = elements * c10::elementSize(type);
  if (bytes == 0) return torch::zeros(sizes, type);
  const auto release = [bytes](void* memory) { ::munmap(memory, bytes); };
  return torch::from_blob(File(folder).map(bytes), sizes, release, torch::dtype(type));
}

void move_to_file(const torch::Tensor& tensor, const std::filesystem::path& folder) {
  if (!tensor.is_cpu()) {
    refuse("move_to_file: a tensor is on {}; only CPU tensors can be moved to files",
           tensor.device().str());
  }
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  const auto bytes = storage->nbytes();
  if (bytes == 0) return;
  const auto place =
      mapped_tensor(folder, {static_cast<std::int64_t>(bytes)}, torch::kUInt8).storage();
  std::memcpy(place.mutable_data(), storage->data(), bytes);
  storage->set_data_ptr_noswap(
      place.unsafeGetStorageImpl()->set_data_ptr(at::DataPtr(nullptr, storage->device())));
}

}  // namespace gradwire
