#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <sys/types.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/unique_fd.h"

namespace gradwire::federated {

/// Returns why this machine counts as not plugged in: it has a mains or USB supply and none is
/// online, or a battery that is discharging. Empty if it is plugged in, or has no supplies. Those
/// of peripherals are ignored. (Linux, Documentation/ABI/testing/sysfs-class-power.)
std::string why_unplugged(const std::filesystem::path& power_supplies = "/sys/class/power_supply");

/// Whether this machine may take part in a round, before it checks in and while it trains.
/// Not thread-safe.
class Eligibility {
 public:
  struct Options {
    bool plugged = false;  ///< Only while it is plugged in.
    /// A command of the user's shell, such as one for idle and unmetered; eligible while it exits
    /// with status 0. Empty: none.
    std::string command;
    /// A test by the program; eligible while it returns true. Null: none.
    std::function<bool()> test;
    Duration interval = std::chrono::seconds(10);  ///< An answer may be that old.
    Duration command_time = std::chrono::seconds(10);
    std::filesystem::path power_supplies = "/sys/class/power_supply";
  };
  /// `clock` must outlive this.
  Eligibility(const Clock& clock, Options options);
  ~Eligibility();
  Eligibility(const Eligibility&) = delete;
  Eligibility& operator=(const Eligibility&) = delete;

  /// Returns why the machine is not eligible; empty if it is. The first call waits for the command;
  /// later ones do not, and have the last result until the next one is there: cheap enough for each
  /// step of training. A command that takes too long is ended, and counts as a refusal.
  const std::string& check();
  /// check() with a new result.
  const std::string& check_now();

 private:
  struct Running {
    pid_t process = -1;
    UniqueFd end;  ///< Readable once the command has ended (pidfd_open(2)).
    Time until{};
  };
  void start();
  bool collect(bool waits);
  void end_command();

  const Clock& clock_;
  Options options_;
  std::optional<Running> running_;
  std::string of_command_;
  std::string reason_;
  std::optional<Time> checked_;
};

}  // namespace gradwire::federated
