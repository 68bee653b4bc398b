#include "gradwire/host/wait_meter.h"

#include <utility>

namespace gradwire {
namespace {

// Thread-local like autograd's modes: a parallel layer waits in its forward and backward, but does
// not know what trains it.
thread_local WaitMeter* current_meter = nullptr;

}  // namespace

WaitScope::WaitScope(WaitMeter& meter) : before_(std::exchange(current_meter, &meter)) {}

WaitScope::~WaitScope() {
  current_meter = before_;
}

// A wait within another one, such as a sum's in a function that waits, is part of that.
MeasuredWait::MeasuredWait(std::string_view name)
    : meter_(std::exchange(current_meter, nullptr)), name_(name) {
  if (meter_ != nullptr) begin_ = meter_->now();
}

MeasuredWait::~MeasuredWait() {
  if (meter_ == nullptr) return;
  current_meter = meter_;
  const Time end = meter_->now();
  meter_->waited_ += end - begin_;
  TraceRecorder* const trace = meter_->trace_;
  if (trace != nullptr) trace->record(TraceKind::wait, name_, trace->step(), begin_, end);
}

}  // namespace gradwire
