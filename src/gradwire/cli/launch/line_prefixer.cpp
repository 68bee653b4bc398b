#include "gradwire/cli/launch/line_prefixer.h"

namespace gradwire {

void LinePrefixer::end_line(std::string_view text, char end, std::string& out) {
  out += prefix_;
  out += line_;
  out += text;
  out += end;
  line_.clear();
}

void LinePrefixer::feed(std::string_view text, std::string& out) {
  while (!text.empty()) {
    if (after_cr_ && text.front() == '\n') {
      out += '\n';
      text.remove_prefix(1);
      after_cr_ = false;
      continue;
    }
    after_cr_ = false;
    const std::size_t end = text.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      line_ += text;
      if (line_.size() > kMaxLineBytes) end_line({}, '\n', out);
      return;
    }
    end_line(text.substr(0, end), text[end], out);
    after_cr_ = text[end] == '\r';
    text.remove_prefix(end + 1);
  }
}

void LinePrefixer::finish(std::string& out) {
  if (!line_.empty()) end_line({}, '\n', out);
}

}  // namespace gradwire
