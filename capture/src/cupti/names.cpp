#include "cupti/names.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>

namespace ai_prof::cupti {
namespace {

// Programs that compile kernels for ever must not make us remember for ever.
constexpr std::size_t kMostNames = std::size_t{1} << 16;

struct Free {
  void operator()(char* text) const { std::free(text); }
};

}  // namespace

std::string demangle(const char* symbol) {
  if (std::strncmp(symbol, "_Z", 2) != 0) return symbol;
  int status = 0;
  const std::unique_ptr<char, Free> plain(abi::__cxa_demangle(symbol, nullptr, nullptr, &status));
  return status == 0 && plain ? plain.get() : symbol;
}

std::uint32_t Names::id(const char* name, Recorder& recorder) {
  if (name == nullptr) name = "unknown";
  const auto found = known_.find(name);
  const bool known = found != known_.end() && std::strcmp(found->second.text.c_str(), name) == 0;
  if (known && found->second.id != 0) return found->second.id;
  if (known_.size() >= kMostNames) known_.clear();
  Entry& entry = known_[name];
  entry.text = name;
  entry.id = recorder.intern(demangle(name));
  return entry.id;
}

}  // namespace ai_prof::cupti
