#pragma once

namespace gradwire {

/// A model with a switch: does the next backward average gradients over ranks?
class Synchronising {
 public:
  bool synchronises() const { return synchronises_; }
  void set_synchronises(bool yes) { synchronises_ = yes; }

 private:
  bool synchronises_ = true;
};

/// Disables gradient averaging during its lifetime: gradients accumulate locally. Run forward and
/// backward of all but the last accumulated batch inside.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(Synchronising& model) : model_(model), before_(model.synchronises()) {
    model_.set_synchronises(false);
  }
  ~NoSync() { model_.set_synchronises(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  Synchronising& model_;
  bool before_;
};

}  // namespace gradwire
