#include "gradwire/host/training_errors.h"

namespace gradwire {

void TrainingErrors::refuse_gradient(const NamedTensor& parameter) const {
  fail(ErrorKind::invalid_argument,
       fmt::format("backward produced a gradient of '{}' without a preceding forward, so it would "
                   "not be averaged. Call this {}, not the wrapped module, before each backward; "
                   "add the losses of one or several forwards and call backward once; to keep "
                   "gradients local to this rank, run forward inside no_sync()",
                   parameter.name, who_));
}

void TrainingErrors::refuse_second_gradient(const NamedTensor& parameter) const {
  fail(ErrorKind::invalid_argument,
       fmt::format("parameter '{}' got a second gradient in one backward pass, after the first had "
                   "been sent. Call forward before each backward, return everything that backward "
                   "starts from as the result of forward, and use a parameter in one activation "
                   "checkpoint at most",
                   parameter.name));
}

void TrainingErrors::require_dense(const NamedTensor& parameter) const {
  const auto& gradient = parameter.tensor.grad();
  if (!gradient.defined() || gradient.layout() == at::kStrided) return;
  fail(ErrorKind::unsupported,
       fmt::format("the gradient of '{}' is sparse; construct its layer with sparse = false",
                   parameter.name));
}

}  // namespace gradwire
