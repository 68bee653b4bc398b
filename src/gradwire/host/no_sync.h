#pragma once

namespace gradwire {

/// A model with a switch: does the next backward average gradients over ranks?
class SyncControl {
 public:
  bool synchronizes() const { return synchronizes_; }
  void set_synchronizes(bool yes) { synchronizes_ = yes; }

 private:
  bool synchronizes_ = true;
};

/// Disables gradient averaging during its lifetime: gradients accumulate locally. Run forward and
/// backward of all but the last accumulated batch inside.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(SyncControl& model) : model_(model), before_(model.synchronizes()) {
    model_.set_synchronizes(false);
  }
  ~NoSync() { model_.set_synchronizes(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  SyncControl& model_;
  bool before_;
};

}  // namespace gradwire
