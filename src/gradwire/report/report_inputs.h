#pragma once

#include <string>
#include <vector>

#include "gradwire/report/ladder_rows.h"
#include "gradwire/report/run_record.h"

namespace gradwire {

struct ReportRun {
  RunRecord record;    ///< Its name is unique among the runs of a report.
  std::string source;  ///< The file it came from.
};

struct ReportLadder {
  std::string name;
  std::string source;
  std::vector<LadderRow> rows;
};

/// What a report is made of.
struct ReportInputs {
  std::vector<ReportRun> runs;
  std::vector<ReportLadder> ladders;
};

/// Reads what each argument names: a folder with run.json, such a file, the JSON of `gradwire bench
/// step --json`, or that of `gradwire train --json`. NAME=PATH gives it another name. Throws
/// Exception(invalid_argument) that names the file, the key and what would be right.
ReportInputs read_report_inputs(const std::vector<std::string>& arguments);

}  // namespace gradwire
