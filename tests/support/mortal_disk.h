#pragma once

#include <atomic>
#include <csignal>

#include "gradwire/base/error.h"
#include "gradwire/checkpoint/disk.h"

namespace gradwire::test {

/// Counts file-system calls, and fails at call number `last` (from 0): with `kill` the process dies
/// in a half-done write; otherwise the call throws. Calls of all threads are counted together.
class MortalDisk final : public checkpoint::Disk {
 public:
  MortalDisk(std::int64_t last, bool kill) : last_(last), kill_(kill) {}

  std::int64_t calls() const { return calls_; }

  void make_folder(const std::filesystem::path& path) override {
    count();
    checkpoint::Disk::make_folder(path);
  }
  UniqueFd create(const std::filesystem::path& path) override {
    count();
    return checkpoint::Disk::create(path);
  }
  UniqueFd append_to(const std::filesystem::path& path) override {
    count();
    return checkpoint::Disk::append_to(path);
  }
  void write(const UniqueFd& file, ConstBytes bytes, const std::filesystem::path& path) override {
    if (calls_ == last_) checkpoint::Disk::write(file, bytes.first(bytes.size() / 2), path);
    count();
    checkpoint::Disk::write(file, bytes, path);
  }
  /// Does nothing: the machine survives the process, and keeps all written data.
  void flush(const UniqueFd&, const std::filesystem::path&) override { count(); }
  void flush_folder(const std::filesystem::path&) override { count(); }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    count();
    checkpoint::Disk::rename(from, to);
  }
  void remove(const std::filesystem::path& path) override {
    count();
    checkpoint::Disk::remove(path);
  }

 private:
  void count() {
    if (calls_++ != last_) return;
    if (kill_) std::raise(SIGKILL);
    throw Exception(ErrorKind::system, "the disk is full");
  }

  std::int64_t last_;
  bool kill_;
  std::atomic<std::int64_t> calls_ = 0;
};

}  // namespace gradwire::test
