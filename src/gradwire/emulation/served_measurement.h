#pragma once

#include <memory>

#include "gradwire/comm/communicator.h"
#include "gradwire/emulation/emulated_training.h"
#include "gradwire/emulation/step_measurement.h"

namespace gradwire::emulation {

/// measure_step() of a case with servers. Collective over workers and servers; on a rank that only
/// serves, the result is empty.
StepFigures measure_served_step(const std::shared_ptr<Communicator>& communicator,
                                const workload::LayerProfile& profile, const StepCase& what,
                                const StepMeasurementOptions& options, Alarm& alarm,
                                TraceRecorder* trace);

/// Measures steps without communication on this rank.
double seconds_of_a_step_alone(const workload::LayerProfile& profile, const step::StepPlan& plan,
                               const EmulatedTrainingOptions& training,
                               const StepMeasurementOptions& options, Alarm& alarm);

}  // namespace gradwire::emulation
