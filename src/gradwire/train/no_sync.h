#pragma once

namespace gradwire {

/// Whether the next backward's gradients are averaged over ranks.
class Synchronising {
 public:
  bool synchronises() const { return synchronises_; }
  void set_synchronises(bool yes) { synchronises_ = yes; }

 private:
  bool synchronises_ = true;
};

/// Gradients just accumulate on each rank for as long as it lives: forward and backward of all but
/// the last of several accumulated batches belong inside.
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
