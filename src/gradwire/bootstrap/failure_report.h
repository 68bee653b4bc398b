#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gradwire/base/types.h"

namespace gradwire::bootstrap {

/// Why a rank failed, for the launcher that started it: it names the rank that failed first, which
/// is not always the one that ends first.
struct FailureReport {
  Rank cause = -1;   ///< This rank, or the peer that it lost.
  std::string text;  ///< One line.
};

/// The launcher sets this variable to the path of a file of each rank's own.
inline constexpr const char* kReportVariable = "GRADWIRE_REPORT";

/// Appends the report to the file. Errors are ignored: the rank has failed already.
void write_report(const std::string& path, const FailureReport& report) noexcept;

/// The first report in the contents of such a file; nullopt if there is none.
std::optional<FailureReport> first_report(std::string_view contents);

/// The line of the file that says that the rank is saving a checkpoint, until another one follows.
inline constexpr std::string_view kSaving = "saving";

/// While it lives, the launcher of this process, if it is gradwire's, does not kill it for not
/// having ended within the grace period.
class SavingNote {
 public:
  SavingNote();
  ~SavingNote();
  SavingNote(const SavingNote&) = delete;
  SavingNote& operator=(const SavingNote&) = delete;
};

/// Returns true if the last line of such a file says so.
bool is_saving(std::string_view contents);

/// Ranks from `first` to before `end`, without any of which the job goes on.
struct OptionalRanks {
  Rank first = 0, end = 0;

  bool contains(Rank rank) const { return first <= rank && rank < end; }
};

/// The beginning of the line of the file that names them.
inline constexpr std::string_view kOptional = "optional";

/// Tells the launcher of this process, if it is gradwire's, that the job goes on if one of these
/// ranks fails. The last call counts; no ranks: none of them.
void note_optional(OptionalRanks ranks);

/// The last such ranks in the contents of such a file.
OptionalRanks optional_ranks(std::string_view contents);

}  // namespace gradwire::bootstrap
