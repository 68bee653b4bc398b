#include "gradwire/mpi/process.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/refuse.h"

namespace gradwire::mpi {
namespace {

namespace fs = std::filesystem;

/// An MPI that Debian packages; others have the ABI of one of them.
struct Library {
  const char* name;
  const char* plugin;
};
constexpr std::array<Library, 2> kLibraries{Library{"openmpi", "libgradwire-mpi-openmpi.so"},
                                            Library{"mpich", "libgradwire-mpi-mpich.so"}};

/// The MPI of the launcher that started this process, if its variables tell.
std::optional<std::string> launchers_mpi(const bootstrap::Environment& environment) {
  if (environment("OMPI_COMM_WORLD_SIZE")) return "openmpi";
  if (environment("PMI_SIZE")) return "mpich";
  return std::nullopt;
}

/// The libraries to try.
std::vector<Library> candidates(const bootstrap::Environment& environment) {
  const auto named = environment("GRADWIRE_MPI");
  const auto wanted = named ? named : launchers_mpi(environment);
  std::vector<Library> found;
  for (const Library& one : kLibraries)
    if (!wanted || *wanted == one.name) found.push_back(one);
  if (found.empty())
    refuse("GRADWIRE_MPI is \"{}\"; valid are openmpi and mpich", wanted.value_or(""));
  return found;
}

/// The folder of the file with this code: a program, or libgradwire.so.
fs::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0) return {};
  std::error_code error;
  return fs::canonical(info.dli_fname, error).parent_path();
}

/// Where the library may be: beside this code, where the installation has it, or where the linker
/// looks.
std::vector<fs::path> places_of(const Library& library, const std::optional<std::string>& folder) {
  if (folder) return {fs::path(*folder) / library.plugin};
  const fs::path own = own_folder();
  std::vector<fs::path> found;
  for (const fs::path& place : {own, own.parent_path() / "lib"})
    if (fs::exists(place / library.plugin)) found.push_back(place / library.plugin);
  found.emplace_back(library.plugin);
  return found;
}

const gradwire_mpi* table_in(void* library) {
  const auto symbol = ::dlsym(library, GRADWIRE_MPI_PLUGIN_SYMBOL);
  return symbol == nullptr ? nullptr : reinterpret_cast<const gradwire_mpi* (*)()>(symbol)();
}

/// Throws Exception(unsupported) if the file is no such library, or its MPI is not installed.
const gradwire_mpi& load_file(const fs::path& file) {
  // MPI's own plug-ins look for its functions among the global ones.
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw Exception(ErrorKind::unsupported, ::dlerror());
  const gradwire_mpi* const table = table_in(library);
  if (table != nullptr && table->version == GRADWIRE_MPI_PLUGIN_VERSION) return *table;
  throw Exception(ErrorKind::unsupported,
                  fmt::format("{} is not of this version of gradwire: compile its plugin.c "
                              "again (docs/engines.md)",
                              file.string()));
}

const gradwire_mpi& load(const bootstrap::Environment& environment) {
  const auto given = environment("GRADWIRE_MPI_PLUGIN");
  if (given && !fs::is_directory(*given)) return load_file(*given);
  std::string tried;
  for (const Library& library : candidates(environment)) {
    for (const fs::path& place : places_of(library, given)) {
      try {
        return load_file(place);
      } catch (const Exception& e) {
        tried += fmt::format("\n  {}: {}", library.name, e.what());
      }
    }
  }
  throw Exception(ErrorKind::unsupported,
                  fmt::format("engine mpi: no MPI can be used. Install libopenmpi-dev or "
                              "libmpich-dev and build gradwire again, or compile its "
                              "plugin.c (docs/engines.md){}",
                              tried));
}

std::shared_ptr<Process> initialize(const gradwire_mpi& mpi, std::shared_ptr<const Clock> clock) {
  Rank rank = 0;
  int size = 1;
  const int error = mpi.init(&rank, &size);
  if (error == 0) return std::make_shared<Process>(mpi, rank, size, std::move(clock));
  std::array<char, 256> text{};
  mpi.error_text(error, text.data(), static_cast<int>(text.size()));
  throw Exception(error < 0 ? ErrorKind::invalid_argument : ErrorKind::system,
                  fmt::format("{}: MPI_Init_thread: {}; it must allow MPI_THREAD_SERIALIZED",
                              mpi.name, text.data()));
}

/// Ended by on_exit(). Never destroyed: threads of the process may use it until it is gone.
std::shared_ptr<Process>* started = nullptr;
std::mutex started_mutex;

void end_process(int status, void* pid) {
  if (static_cast<pid_t>(reinterpret_cast<std::intptr_t>(pid)) != ::getpid()) return;
  Driver& driver = (*started)->driver();
  const bool ends_in_order = status == 0 || (status > 128 && !(*started)->has_engines());
  if (!ends_in_order) return driver.mpi().abort(status);
  driver.stop();
  driver.mpi().finalize();
}

}  // namespace

std::shared_ptr<Process> Process::start(const bootstrap::Environment& environment,
                                        std::shared_ptr<const Clock> clock) {
  const std::lock_guard lock(started_mutex);
  if (started == nullptr) {
    auto process = initialize(load(environment), std::move(clock));
    started = std::make_unique<std::shared_ptr<Process>>(std::move(process)).release();
    ::on_exit(&end_process, reinterpret_cast<void*>(static_cast<std::intptr_t>(::getpid())));
  }
  return *started;
}

Process::Process(const gradwire_mpi& mpi, Rank rank, int size, std::shared_ptr<const Clock> clock)
    : rank_(rank), size_(size), reductions_(mpi), driver_(mpi, rank, std::move(clock)) {
  driver_.check(mpi.world(&world_), "MPI_COMM_WORLD");
  std::array<char, 256> text{};
  mpi.version_text(text.data(), static_cast<int>(text.size()));
  version_ = text.data();
}

void Process::check_job(const bootstrap::Job& job) const {
  if (job.rank == rank_ && job.world_size == size_) return;
  refuse(
      "engine mpi: this process is rank {} of {}, but {} of {} to {}: start the ranks with that "
      "MPI's own launcher, or with gradwire run --engine mpi",
      job.rank, job.world_size, rank_, size_, version_);
}

}  // namespace gradwire::mpi
