#include "gradwire/cli/bench/mpi_program.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/bytes.h"
#include "gradwire/base/crc32c.h"
#include "gradwire/cli/bench/captured.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;

constexpr Duration kLimit = std::chrono::minutes(2);

fs::path cache_folder(const Environment& environment) {
  const fs::path cache = environment("XDG_CACHE_HOME").value_or("");
  if (!cache.empty()) return cache / "gradwire";
  const fs::path home = environment("HOME").value_or("");
  return (home.empty() ? fs::temp_directory_path() : home / ".cache") / "gradwire";
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Compiles to a temporary name and renames it, as another process may compile the program at the
/// same time.
Status compile(const std::string& source, const fs::path& program) {
  const std::string unfinished = fmt::format("{}.{}", program.string(), ::getpid());
  const auto compiled = run_captured({"mpicc", "-O2", source, "-o", unfinished}, kLimit);
  if (!compiled) {
    return failure(ErrorKind::unsupported,
                   compiled.error().message + " (Debian: apt-get install libopenmpi-dev)");
  }
  if (compiled->status != 0) {
    return failure(ErrorKind::system, fmt::format("mpicc {} failed:\n{}", source, compiled->err));
  }
  std::error_code error;
  fs::rename(unfinished, program, error);
  if (error) {
    return failure(ErrorKind::system,
                   fmt::format("cannot write {}: {}", program.string(), error.message()));
  }
  return {};
}

Status check_mpirun(const std::string& mpirun) {
  const std::string command = mpirun.substr(0, mpirun.find(' '));
  const auto version = run_captured({command, "--version"}, kLimit);
  if (!version) return tl::unexpected(version.error());
  if (version->out.find("Open MPI") != std::string::npos ||
      version->out.find("OpenRTE") != std::string::npos)
    return {};
  return failure(ErrorKind::unsupported, fmt::format("{} is not Open MPI's mpirun", command));
}

}  // namespace

std::string bench_file(const std::string& name) {
  const fs::path folder = fs::path(own_executable()).parent_path().parent_path();
  const fs::path file = folder / "share" / "gradwire" / "bench" / name;
  if (!fs::exists(file))
    throw Exception(ErrorKind::system,
                    fmt::format("{} does not exist: is the installation complete?", file.string()));
  return file;
}

Result<std::string> build_mpi_program(const std::string& mpirun, const Environment& environment) {
  if (Status usable = check_mpirun(mpirun); !usable) return tl::unexpected(usable.error());
  const std::string source = bench_file("mpi_bench.c");
  const std::string text = content_of(source);
  const std::uint32_t mark =
      crc32c(ConstBytes(reinterpret_cast<const std::byte*>(text.data()), text.size()));
  const fs::path program = cache_folder(environment) / fmt::format("mpi_bench-{:08x}", mark);
  if (fs::exists(program)) return program.string();
  std::error_code error;
  fs::create_directories(program.parent_path(), error);
  if (error) {
    return failure(ErrorKind::system, fmt::format("cannot create {}: {}",
                                                  program.parent_path().string(), error.message()));
  }
  if (Status compiled = compile(source, program); !compiled)
    return tl::unexpected(compiled.error());
  return program.string();
}

}  // namespace gradwire
