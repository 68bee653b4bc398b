#include "gradwire/data/text.h"

#include <cstring>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <zlib.h>

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

constexpr const char* kDebianFile = "/usr/share/dictd/jargon.dict.dz";
constexpr std::int64_t kOneInTests = 10;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw Exception(ErrorKind::invalid_argument, fmt::format("{}: {}", path.string(), reason));
}

/// zlib passes uncompressed files through unchanged. A .dz file is gzip with an index.
std::string read_all(const std::filesystem::path& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file || std::filesystem::is_directory(path)) {
    refuse(path,
           "cannot be read: install Debian's package dict-jargon, or give a text file (--data "
           "PATH, \"data\": {\"path\": ...})");
  }
  std::string text;
  std::string piece(1 << 16, '\0');
  int got = 0;
  while ((got = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()))) > 0) {
    text.append(piece, 0, static_cast<std::size_t>(got));
  }
  int code = Z_OK;
  const char* message = gzerror(file.get(), &code);
  if (code == Z_BUF_ERROR) refuse(path, "the compressed file is truncated");
  if (got < 0) refuse(path, fmt::format("cannot be read: {}", message));
  return text;
}

/// N x (context + 1); each window overlaps the next by one byte, and a partial last window is
/// dropped.
torch::Tensor windows_of(const std::string& text, std::int64_t context) {
  auto bytes = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kUInt8);
  if (!text.empty()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes.unfold(0, context + 1, context);
}

}  // namespace

TextData load_text(Split split, std::int64_t context, const std::filesystem::path& path) {
  const std::filesystem::path file = path.empty() ? kDebianFile : path;
  const auto text = read_all(file);
  if (static_cast<std::int64_t>(text.size()) < kOneInTests * context + 1) {
    refuse(file, fmt::format("has {} bytes, too few for {} samples of {}", text.size(), kOneInTests,
                             context));
  }
  const auto windows = windows_of(text, context);
  const auto number = torch::arange(windows.size(0), torch::kInt64);
  const auto tests = number.remainder(kOneInTests).eq(kOneInTests - 1);
  const auto chosen = (split == Split::test ? tests : tests.logical_not()).nonzero().squeeze(1);
  return {.windows = windows.index_select(0, chosen)};
}

Batch TextData::batch(const SampledBatch& sampled) const {
  const torch::NoGradGuard no_grad;
  const auto index = torch::tensor(sampled.samples, torch::kInt64);
  const auto chosen = windows.index_select(0, index).to(torch::kInt64);
  const auto context = chosen.size(1) - 1;
  return {.inputs = chosen.narrow(1, 0, context),
          .targets = chosen.narrow(1, 1, context),
          .own = sampled.own};
}

}  // namespace gradwire
