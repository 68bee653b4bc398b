#include "gradwire/data/idx.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include <fmt/format.h>
#include <zlib.h>

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw Exception(ErrorKind::invalid_argument, fmt::format("{}: {}", path.string(), reason));
}

/// zlib reader; uncompressed files pass through unchanged.
class Reader {
 public:
  explicit Reader(std::filesystem::path path)
      : path_(std::move(path)), file_(gzopen(path_.c_str(), "rb"), gzclose) {
    if (!file_) refuse(path_, "cannot be opened");
    gzbuffer(file_.get(), 1 << 17);
  }

  /// Reads up to `size` bytes; fewer only at the end of the file.
  std::size_t read(std::uint8_t* to, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      const auto want = std::min<std::size_t>(size - done, 1 << 30);
      const int got = gzread(file_.get(), to + done, static_cast<unsigned>(want));
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    check();
    return done;
  }

 private:
  void check() {
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    if (code == Z_BUF_ERROR) refuse(path_, "the compressed file is truncated");
    if (code != Z_OK) refuse(path_, fmt::format("cannot be read: {}", message));
  }

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

std::vector<std::int64_t> read_shape(Reader& reader, const std::filesystem::path& path) {
  std::array<std::uint8_t, 4> magic{};
  if (reader.read(magic.data(), magic.size()) != magic.size() || magic[0] != 0 || magic[1] != 0 ||
      magic[3] == 0) {
    refuse(path, "is not an IDX file (its first bytes are not 0, 0, type, dimensions)");
  }
  if (magic[2] != kUnsignedByte) {
    refuse(path, fmt::format("holds elements of IDX type 0x{:02x}; only unsigned bytes (0x08) are "
                             "supported",
                             magic[2]));
  }
  std::vector<std::int64_t> shape(magic[3]);
  for (auto& size : shape) {
    std::array<std::uint8_t, 4> bytes{};
    if (reader.read(bytes.data(), bytes.size()) != bytes.size()) {
      refuse(path, "its header is truncated");
    }
    size = (std::int64_t{bytes[0]} << 24) | (bytes[1] << 16) | (bytes[2] << 8) | bytes[3];
  }
  return shape;
}

std::int64_t element_count(const std::vector<std::int64_t>& shape,
                           const std::filesystem::path& path) {
  std::int64_t count = 1;
  for (const auto size : shape) {
    if (size != 0 && count > kMaxBytes / size) refuse(path, "has an impossible shape");
    count *= size;
  }
  return count;
}

/// Allocates as bytes arrive, so that a damaged header cannot request more memory than the file
/// fills.
std::vector<std::uint8_t> read_values(Reader& reader, std::int64_t count,
                                      const std::filesystem::path& path) {
  constexpr std::int64_t kStep = 64 << 20;
  std::vector<std::uint8_t> values;
  while (static_cast<std::int64_t>(values.size()) < count) {
    const auto begin = values.size();
    const auto step = std::min(kStep, count - static_cast<std::int64_t>(begin));
    values.resize(begin + static_cast<std::size_t>(step));
    const auto got = reader.read(values.data() + begin, static_cast<std::size_t>(step));
    if (got == static_cast<std::size_t>(step)) continue;
    refuse(path, fmt::format("is truncated: {} of {} bytes of data", begin + got, count));
  }
  return values;
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& path) {
  Reader reader(path);
  IdxArray array;
  array.shape = read_shape(reader, path);
  const auto count = element_count(array.shape, path);
  array.values = read_values(reader, count, path);
  std::uint8_t more = 0;
  if (reader.read(&more, 1) != 0) {
    refuse(path,
           fmt::format("has more than the {} bytes of data that its header specifies", count));
  }
  return array;
}

}  // namespace gradwire
