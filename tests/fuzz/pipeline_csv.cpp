#include <cstddef>

#include "gradwire/pipeline/pipeline_schedule.h"
#include "gradwire/pipeline/simulation.h"
#include "gradwire/pipeline/verifier.h"
#include "tests/fuzz/target.h"

namespace gradwire::fuzz {

std::vector<std::string> seeds() {
  return {"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
          "0F0,0F1,,,0I0,0W0,0I1,0W1\r\n,1F0,1I0,1F1,1I1,1W0,1W1,,\r\n",
          "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n",
          "0F0,0F1\n1F0,1F1\n", "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n"};
}

void repair(std::string&) {}

/// An order that is read is unchanged when written and read. If the verifier finds no fault, the
/// simulation computes every task.
void test(std::string_view input) {
  const Result<pipeline::PipelineSchedule> read = pipeline::from_csv(input, "input");
  if (!read) {
    expect(read.error().kind == ErrorKind::invalid_argument, "a refusal is the user's to mend");
    expect(read.error().message.size() < 1000 + input.size(), "a refusal is no longer");
    return;
  }
  expect(read->micro_batches >= 1 && read->micro_batches <= pipeline::kMaxMicroBatches &&
             read->stages() >= 1 && read->stages() <= kMaxRanks,
         "sizes are in range");
  const auto again = pipeline::from_csv(to_csv(*read), "input");
  expect(again.has_value(), "a parsed value can be written and parsed again");
  expect(again->order == read->order && again->rank_of == read->rank_of &&
             again->micro_batches == read->micro_batches && again->trains == read->trains,
         "and is the same");
  if (const auto fault = find_fault(*read)) {
    expect(!fault->message.empty(), "a fault is described");
    return;
  }
  std::size_t tasks = 0;
  for (const auto& order : read->order) tasks += order.size();
  constexpr int kSteps = 2;
  const pipeline::Timeline timeline = simulate(*read, {.transfer = 0.5}, kSteps);
  expect(timeline.tasks.size() == kSteps * tasks, "a correct schedule comes to its end");
}

}  // namespace gradwire::fuzz
