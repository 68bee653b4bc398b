#include "gradwire/servers/server_thread.h"

#include <utility>

namespace gradwire::servers {

ServerThread::ServerThread(Communicator& pairs, std::function<void()> serve)
    : thread_([this, &pairs, serve = std::move(serve)] {
        try {
          serve();
        } catch (const std::exception& e) {
          failed_ = std::current_exception();
          pairs.abort(e.what());
        }
      }) {}

ServerThread::~ServerThread() {
  if (thread_.joinable()) thread_.join();
}

void ServerThread::join() {
  thread_.join();
  if (failed_) std::rethrow_exception(failed_);
}

}  // namespace gradwire::servers
