#pragma once

#include <string>
#include <vector>

#include "gradwire/report/federated_record.h"
#include "gradwire/report/ladder_rows.h"
#include "gradwire/report/run_record.h"

namespace gradwire::report {

struct ReportRun {
  RunRecord record;    ///< Its name is unique among the runs of a report.
  std::string source;  ///< File that it was read from.
};

struct ReportLadder {
  std::string name;
  std::string source;
  std::vector<LadderRow> rows;
};

struct ReportFederated {
  std::string name;  ///< Unique among these and the runs.
  std::string source;
  FederatedRecord record;
};

/// Inputs of a report.
struct ReportInputs {
  std::vector<ReportRun> runs;
  std::vector<ReportLadder> ladders;
  std::vector<ReportFederated> federated;
};

/// Reads each argument: a folder with run.json or result.json, one of these files, or the JSON of
/// `gradwire train`, `gradwire bench step` or `gradwire federate simulate --json`. NAME=PATH sets
/// its name. Throws Exception(invalid_argument), which names the file, the key and what is
/// expected.
ReportInputs read_report_inputs(const std::vector<std::string>& arguments);

}  // namespace gradwire::report
