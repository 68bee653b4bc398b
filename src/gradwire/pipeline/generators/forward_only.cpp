#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {

PipelineSchedule forward_only(const PipelineOptions& options) {
  return forwards_of(gpipe(options));
}

}  // namespace gradwire::pipeline
