#pragma once

#include <mutex>
#include <string>

#include "gradwire/base/log.h"

namespace gradwire::bootstrap {

/// Collects the lines that are logged in its lifetime.
class Warnings {
 public:
  Warnings() {
    set_log_sink([this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      text_.append(line).append("\n");
    });
  }
  ~Warnings() { set_log_sink(nullptr); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace gradwire::bootstrap
