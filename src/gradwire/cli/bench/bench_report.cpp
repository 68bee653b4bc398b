#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/cli/bench/collective_bench.h"

namespace gradwire {

std::string table_head(const Communicator& communicator) {
  return fmt::format(
      "# {} ranks; times of the slowest rank; bandwidths in Gb/s; K, M, G are powers of two\n"
      "{:>12} {:>12} {:>9} {:>8} {:>19} {:>11} {:>11} {:>9} {:>9} {:>7}\n"
      "{:>12} {:>12} {:>9} {:>8} {:>19} {:>11} {:>11} {:>9} {:>9} {:>7}\n",
      communicator.size(), "size", "count", "type", "redop", "algorithm", "median", "p99", "algbw",
      "busbw", "#wrong", "(B)", "(elements)", "", "", "", "(us)", "(us)", "(Gb/s)", "(Gb/s)", "");
}

std::string table_line(const BenchRow& row) {
  const BenchCase& c = row.measured;
  const bool reduces =
      c.collective == Collective::all_reduce || c.collective == Collective::reduce_scatter;
  return fmt::format(
      "{:>12} {:>12} {:>9} {:>8} {:>19} {:>11.1f} {:>11.1f} {:>9.3f} {:>9.3f} {:>7}\n", c.bytes,
      row.count, name_of(c.type), reduces ? name_of(c.op) : "none", c.algorithm, row.median_us,
      row.p99_us, row.algbw_gbps(), row.busbw_gbps(), row.wrong);
}

std::string to_json(const std::vector<BenchRow>& rows) {
  nlohmann::ordered_json json;
  json["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    json["rows"].push_back({{"collective", name_of(row.measured.collective)},
                            {"bytes", row.measured.bytes},
                            {"type", name_of(row.measured.type)},
                            {"ranks", row.ranks},
                            {"algorithm", row.measured.algorithm},
                            {"median_us", row.median_us},
                            {"p99_us", row.p99_us},
                            {"algbw_gbps", row.algbw_gbps()},
                            {"busbw_gbps", row.busbw_gbps()},
                            {"wrong", row.wrong}});
  }
  return json.dump(2) + "\n";
}

}  // namespace gradwire
