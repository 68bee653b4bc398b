#include "gradwire/cli/doctor/installed.h"

#include <fstream>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/cli/bench/captured.h"
#include "gradwire/cli/sibling.h"

namespace gradwire {
namespace {

/// libtorch is half a gigabyte, possibly loaded from a disk or over the network.
constexpr Duration kStartTimeout = std::chrono::seconds(10);

/// Prints the versions of python3's gradwire and PyTorch as JSON. Imports neither of them, which
/// would take seconds.
constexpr const char* kAskPython = R"(
import glob, importlib.metadata, importlib.util, json, os, runpy
found = importlib.util.find_spec("gradwire")
if found and found.submodule_search_locations:
    folder = found.submodule_search_locations[0]
    build = runpy.run_path(os.path.join(folder, "_build.py"))
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = "none"
    print(json.dumps({"gradwire": build["VERSION"], "torch": torch,
                      "core": (glob.glob(os.path.join(folder, "_core*.so")) + [""])[0]}))
)";

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// Returns the text after `word` up to the next comma or end of line.
std::string after(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + word.size();
  return text.substr(begin, text.find_first_of(",\n", begin) - begin);
}

void read_torch_version(HostInfo& info) {
  const auto program = find_torch_program();
  if (!program) return;
  const auto said = run_captured({*program, "--version"}, kStartTimeout);
  if (!said) {
    info.torch_problem = said.error().message;
  } else if (said->status != 0) {
    info.torch_problem =
        said->err.empty() ? fmt::format("status {}", said->status) : first_line(said->err);
  } else {
    info.torch = after(said->out, "runs with PyTorch ");
  }
}

/// Returns "" if there is no python3, or it has no gradwire.
std::string read_python_versions() {
  const auto said = run_captured({"python3", "-c", kAskPython}, kStartTimeout);
  if (!said || said->status != 0 || said->out.empty()) return "";
  const auto read = read_json_fields(said->out, "answer of python3", [](JsonFields fields) {
    return fmt::format("gradwire {} (extension {}) and PyTorch {}", fields.text("gradwire"),
                       checksum_of(fields.text("core")), fields.text("torch"));
  });
  return read.value_or("");
}

}  // namespace

void read_installed_versions(HostInfo& info) {
  read_torch_version(info);
  info.python = read_python_versions();
}

std::string checksum_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::vector<std::byte> piece(1 << 20);
  std::uint32_t sum = 0;
  for (;;) {
    file.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
    if (file.gcount() <= 0) return fmt::format("{:08x}", sum);
    sum = crc32c(ConstBytes(piece).first(static_cast<std::size_t>(file.gcount())), sum);
  }
}

}  // namespace gradwire
