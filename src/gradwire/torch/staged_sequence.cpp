#include "gradwire/torch/staged_sequence.h"

#include <utility>

#include <ATen/core/ivalue.h>

#include "gradwire/torch/tensor_work.h"

namespace gradwire {

c10::intrusive_ptr<StagedWork> StagedSequence::run(c10d::OpType type, TensorList inputs,
                                                   TensorList outputs, Begin begin,
                                                   TensorList results) {
  StagedOperation operation{.type = type,
                            .parts = {{std::move(inputs), std::move(outputs)}},
                            .outputs = std::move(results)};
  operation.post = [this, begin = std::move(begin)](TensorList& host_inputs,
                                                    TensorList& host_outputs) {
    auto over = c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
    waiter_.run(with_thread_state([over, wait = begin(host_inputs, host_outputs)] {
      try {
        wait();
        over->markCompleted();
      } catch (...) {
        over->setError(std::current_exception());
      }
    }));
    return c10d::Work::create_from_future(over);
  };
  return staging_.run(rank_, number_++, std::move(operation));
}

void StagedSequence::close() {
  staging_.close();
  waiter_.close();
}

}  // namespace gradwire
