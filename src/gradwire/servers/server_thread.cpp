#include "gradwire/servers/server_thread.h"

namespace gradwire::servers {

ServerThread::ServerThread(Communicator& pairs, Server& server)
    : thread_([this, &pairs, &server] {
        try {
          server.run();
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
