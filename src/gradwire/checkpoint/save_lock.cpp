#include "gradwire/checkpoint/save_lock.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <span>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace gradwire::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Writing updates file times throughout, so a live saver never stays unchanged this long.
constexpr std::chrono::minutes kSilence{15};

/// Identifies the current boot of this host; empty if the system has none.
std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

enum class Held { yes, no, unknown };

/// Returns whether any process holds a lock on the file, as far as the file system reports it.
Held held(const fs::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  auto lock = whole_file(F_WRLCK);
  if (!file.valid() || ::fcntl(file.get(), F_OFD_GETLK, &lock) != 0) return Held::unknown;
  return lock.l_type == F_UNLCK ? Held::no : Held::yes;
}

/// Returns true if the file has entries, and all are of this host since it booted.
bool only_of_this_host(const fs::path& file) {
  std::ifstream lines(file);
  const auto here = boot_id();
  bool any = false;
  for (std::string line; std::getline(lines, line);) {
    any = true;
    if (here.empty() || line.substr(0, line.find(' ')) != here) return false;
  }
  return any;
}

/// Returns when a file of the attempt last changed.
fs::file_time_type last_change(const fs::path& partial, const fs::path& file) {
  auto last = fs::file_time_type::min();
  const auto look_at = [&last](const fs::path& path) {
    std::error_code gone;
    const auto time = fs::last_write_time(path, gone);
    if (!gone) last = std::max(last, time);
  };
  look_at(file);
  look_at(partial);
  std::error_code gone;
  for (fs::directory_iterator entry(partial, gone), end; !gone && entry != end;
       entry.increment(gone)) {
    look_at(entry->path());
  }
  return last;
}

}  // namespace

SaveLock::SaveLock(Disk& disk, const fs::path& folder, const std::string& name,
                   const std::string& token)
    : disk_(disk),
      partial_(folder / fmt::format(".{}.{}.partial", name, token)),
      file_(folder / fmt::format(".{}.{}.lock", name, token)),
      fd_(disk.append_to(file_)) {
  auto lock = whole_file(F_RDLCK);
  ::fcntl(fd_.get(), F_OFD_SETLK, &lock);  // Granted, as no process takes an exclusive lock.
  const auto line = fmt::format("{} {} {}\n", boot_id(), host_name(), ::getpid());
  disk.write(fd_, std::as_bytes(std::span(line)), file_);
}

void SaveLock::release() {
  fd_.close();
  disk_.remove(file_);
}

bool is_abandoned(const fs::path& stem, fs::file_time_type now) {
  auto partial = stem;
  auto file = stem;
  partial += ".partial";
  file += ".lock";
  const bool here = only_of_this_host(file);  // Read first: a rank locks the file before it writes.
  const auto lock = held(file);
  if (lock == Held::yes) return false;
  if (lock == Held::no && here) return true;
  return last_change(partial, file) + kSilence < now;
}

}  // namespace gradwire::checkpoint
