#pragma once

#include <filesystem>
#include <string>

namespace gradwire::test {

/// A temporary folder, removed with its content.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& text, int mode = 0644) const;

 private:
  std::filesystem::path path_;
};

/// Returns a file's content; of a file that is not there, nothing.
std::string content_of(const std::filesystem::path& file);

}  // namespace gradwire::test
